"""Serves the services of CSI, and others, by gRPC on a unix socket.

A request that has begun is completed even if the client gives up: a filesystem that is half made,
or a mount that is half done, is worse than a late one. The client's next attempt is answered with
ABORTED until then.
"""

import asyncio
import os
import re
import socket
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from pileus.csi.errors import CsiError, code_of
from pileus.csi.spec import csi_pb2 as csi
from pileus.telemetry.log import Log
from pileus.telemetry.mask import masked

log = Log(__name__)

GRACE = 20.0
"""Seconds for which requests under way may continue when the process ends."""
LONGEST_PATH = 107
"""Bytes of the path of a unix socket, by the kernel."""
ACCESS = 0o660
SHOWN = ("volume_id", "name", "node_id", "snapshot_id", "target_path", "staging_target_path")
"""Fields of requests in the log. Secrets are never there."""
LOG_LEVEL = 4
BUG = "CSI request failed: this is a bug of the driver"
Method = Callable[[Any], Awaitable[Message]]
Observe = Callable[[str, Status, float, str], None]
"""Called after each request with its path, its code, its duration, and the volume or snapshot."""
SUBJECTS = ("volume_id", "snapshot_id", "name")
"""Fields that say which volume or snapshot a request is about, the first that is there."""


class InvalidEndpoint(ValueError):
    """The endpoint is no unix socket that can be served. The message says why."""


def socket_path(endpoint: str) -> Path:
    """Returns the path in `unix:///csi/csi.sock`. Raises InvalidEndpoint."""
    scheme, separator, rest = endpoint.partition(":")
    path = rest if separator and scheme == "unix" else endpoint
    if separator and scheme != "unix":
        raise InvalidEndpoint(f'"{endpoint}" is not a unix socket, such as unix:///csi/csi.sock')
    path = re.sub(r"^/{2,}", "/", path)
    if not path.startswith("/"):
        raise InvalidEndpoint(f'"{endpoint}" is not an absolute path: unix:///csi/csi.sock')
    if len(path.encode()) > LONGEST_PATH:
        raise InvalidEndpoint(f'"{path}" is longer than {LONGEST_PATH} bytes')
    return Path(path)


def _unobserved(_path: str, _code: Status, _seconds: float, _about: str) -> None:
    return


class Services:
    """The methods of the driver, for gRPC. A method without an implementation is UNIMPLEMENTED."""

    def __init__(
        self,
        implementations: Mapping[str, Sequence[object]],
        descriptor: FileDescriptor = csi.DESCRIPTOR,
        observe: Observe = _unobserved,
    ) -> None:
        """`implementations` are objects by the name of a service, such as `Controller`."""
        self._observe = observe
        self._running: set[asyncio.Task[Message | CsiError]] = set()
        self._handlers: dict[str, Handler] = {}
        for name, service in descriptor.services_by_name.items():
            for method in service.methods:
                function = _function(method.name, implementations.get(name, ()))
                path = f"/{service.full_name}/{method.name}"
                self._handlers[path] = self._handler(path, method, function or _unimplemented)

    def __mapping__(self) -> dict[str, Handler]:
        return self._handlers

    def _handler(self, path: str, method: MethodDescriptor, function: Method) -> Handler:
        async def handle(stream: "Stream[Any, Any]") -> None:
            request = await stream.recv_message()
            if request is None:
                raise GRPCError(Status.INVALID_ARGUMENT, "there is no request")
            answer = await self._completed(path, function, request)
            if isinstance(answer, CsiError):
                raise GRPCError(answer.status, str(answer))
            await stream.send_message(answer)

        kinds = (GetMessageClass(method.input_type), GetMessageClass(method.output_type))
        is_stream = bool(method.server_streaming)
        cardinality = Cardinality.UNARY_STREAM if is_stream else Cardinality.UNARY_UNARY
        return Handler(handle, cardinality, *kinds)

    async def _completed(self, path: str, function: Method, request: Message) -> Message | CsiError:
        """Returns the answer. If the caller is cancelled, the work goes on."""
        work = self._observed(path, function, request)
        task = asyncio.get_running_loop().create_task(work, name=path)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _observed(self, path: str, function: Method, request: Message) -> Message | CsiError:
        now = asyncio.get_running_loop().time
        began = now()
        answer = await _answer(path.rpartition("/")[2], function, request)
        code = answer.status if isinstance(answer, CsiError) else Status.OK
        subjects = (str(getattr(request, field, "")) for field in SUBJECTS)
        self._observe(path, code, now() - began, next(filter(None, subjects), ""))
        return answer

    async def finish(self) -> None:
        """Wait for requests under way, but not for long. What is left is cancelled."""
        if self._running:
            await asyncio.wait(self._running, timeout=GRACE)
        for task in tuple(self._running):
            task.cancel()


def _function(name: str, parts: Sequence[object]) -> Method | None:
    """Returns `create_volume` of the first part that has it, for `CreateVolume`."""
    attribute = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    found = (getattr(part, attribute, None) for part in parts)
    return cast("Method | None", next((each for each in found if each is not None), None))


async def _unimplemented(_: Message) -> Message:
    raise CsiError(
        Status.UNIMPLEMENTED, "this driver does not have this method, or not in its mode"
    )


async def _answer(name: str, function: Method, request: Message) -> Message | CsiError:
    about = {field: value for field in SHOWN if (value := getattr(request, field, ""))}
    try:
        answer = await function(request)
    except Exception as error:  # noqa: BLE001 -- every error is an answer, also a bug
        return _failure(name, error, about)
    log.info("Answered CSI request", v=LOG_LEVEL, method=name, **about)
    return answer


def _failure(name: str, error: Exception, about: Mapping[str, object]) -> CsiError:
    code = code_of(error)
    if code is None:
        log.exception(BUG, error=error, method=name, **about)  # noqa: LOG004 -- has its traceback
        return CsiError(Status.INTERNAL, f"a bug in the driver: {masked(repr(error))}")
    log.warning("CSI request failed", method=name, code=code.name, err=error, **about)
    return CsiError(code, masked(str(error)))


@asynccontextmanager
async def serving(path: Path, services: Services) -> AsyncGenerator[None]:
    """Serve on the socket for the length of the block. Raises InvalidEndpoint."""
    _make_free(path)
    server = Server([services])
    try:
        await server.start(path=str(path))
    except OSError as error:
        raise InvalidEndpoint(f"cannot listen on {path}: {error.strerror}") from error
    os.chmod(path, ACCESS)
    log.info("Serving gRPC", socket=path)
    try:
        yield
    finally:
        await services.finish()
        server.close()
        await server.wait_closed()
        _remove(path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    """Create the folder of the socket. Raises InvalidEndpoint."""
    fix = "Fix: give a socket in a folder that this user can write to, or run as root"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise InvalidEndpoint(f"{folder} is not a folder. {fix}") from error
    except OSError as error:
        raise InvalidEndpoint(f"cannot create folder {folder}: {error.strerror}. {fix}") from error
    if not os.access(folder, os.W_OK):
        raise InvalidEndpoint(f"no right to create a socket in {folder}. {fix}")


def _make_free(path: Path) -> None:
    """Remove the socket of a process that has ended. Raises InvalidEndpoint if one is in use."""
    _make_folder(path.parent)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidEndpoint(f"cannot use {path}: {error.strerror}") from error
    if not stat.S_ISSOCK(mode):
        raise InvalidEndpoint(f"{path} exists and is no socket: it is not removed")
    with socket.socket(socket.AF_UNIX) as trial:
        if trial.connect_ex(str(path)) == 0:
            raise InvalidEndpoint(f"another process serves {path}; stop it first")
    path.unlink()
