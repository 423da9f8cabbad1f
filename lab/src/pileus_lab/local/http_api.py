"""The cloud's API over HTTP on a unix socket: JSON, server and client.

Both sides check that the socket belongs to the same user.
"""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import cast

import aiohttp
import msgspec
from aiohttp import web

from pileus.cloud import errors
from pileus.cloud.errors import (
    CloudError,
    Misconfigured,
    NotFound,
    Rejected,
    Throttled,
    Unavailable,
)
from pileus.suggest import did_you_mean
from pileus.telemetry.log import Log
from pileus_lab.local.cloud import LocalCloud
from pileus_lab.local.model import account, balancers, machines, routes, snapshots, volumes
from pileus_lab.local.model.state import A, Operation, Request

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0


def check_owner(endpoint: Path, user: int | None = None) -> None:
    """Refuses a socket that another user than `user` (default: that of this process) could replace.

    The socket and its folder must belong to the user or to root. Others may write to the folder
    only if it is sticky, as /tmp is: then they cannot replace the socket. Files that do not exist
    are accepted. Raises `Misconfigured`.
    """
    trusted = {os.geteuid() if user is None else user, _ROOT}
    folder = _status(endpoint.parent)
    if folder is None:
        return
    if folder.st_uid not in trusted:
        raise Misconfigured(_refusal(endpoint, f"{endpoint.parent} belongs to another user"))
    if folder.st_mode & _OTHERS_WRITE and not folder.st_mode & stat.S_ISVTX:
        found = f"other users can write to {endpoint.parent}"
        raise Misconfigured(f"{_refusal(endpoint, found)}, or run: chmod go-w {endpoint.parent}")
    socket = _status(endpoint)
    if socket is not None and socket.st_uid not in trusted:
        raise Misconfigured(_refusal(endpoint, "it belongs to another user"))


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _refusal(endpoint: Path, why: str) -> str:
    return f"the socket {endpoint} is refused: {why}. Use another endpoint"


MODULES = (machines, balancers, routes, volumes, snapshots, account)


def _operations() -> dict[str, type[Request]]:
    found = (thing for module in MODULES for thing in vars(module).values())
    requests = (thing for thing in found if isinstance(thing, type) and issubclass(thing, Request))
    return {str(vars(one)["NAME"]): one for one in requests if one is not Request}


OPERATIONS: Mapping[str, type[Request]] = MappingProxyType(_operations())


PREFIX = "/v1/"
OPERATOR = "Pileus-Operator"
"""Header of requests to which faults and rate limits do not apply."""
STATUS = {
    "NotFound": HTTPStatus.NOT_FOUND,
    "Conflict": HTTPStatus.CONFLICT,
    "Throttled": HTTPStatus.TOO_MANY_REQUESTS,
    "Unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "Unsupported": HTTPStatus.NOT_IMPLEMENTED,
    "Unauthorized": HTTPStatus.FORBIDDEN,
    "QuotaExceeded": HTTPStatus.FORBIDDEN,
}
"""By name of the error; all others are 422."""


class Refusal(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An error as JSON."""

    error: str
    message: str
    retry_after: float | None = None


def decode_operation(name: str, body: bytes) -> Operation[object]:
    """Raises `NotFound` if the operation is unknown, `Rejected` with the wrong field."""
    request = OPERATIONS.get(name)
    if request is None:
        raise NotFound(f'no operation "{name}"{did_you_mean(name, OPERATIONS)}')
    try:
        return cast("Operation[object]", msgspec.json.decode(body or b"{}", type=request))
    except msgspec.MsgspecError as error:
        raise Rejected(f"{name}: {error}") from error


def encode_error(error: CloudError) -> tuple[int, bytes]:
    name = type(error).__name__
    wait = error.retry_after if isinstance(error, Throttled) else None
    status = STATUS.get(name, HTTPStatus.UNPROCESSABLE_ENTITY)
    return status, msgspec.json.encode(Refusal(name, str(error), wait))


def decode_error(body: bytes) -> CloudError:
    try:
        refusal = msgspec.json.decode(body, type=Refusal)
    except msgspec.MsgspecError:
        return Unavailable("the answer of the local cloud is malformed")
    kind = getattr(errors, refusal.error, Unavailable)
    if kind is Throttled:
        return Throttled(refusal.message, retry_after=refusal.retry_after or 1.0)
    return cast("CloudError", kind(refusal.message))


DEADLINE = aiohttp.ClientTimeout(total=30)


class RemoteCloud:
    """A cloud behind a socket; see `reaching`."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: Path) -> None:
        self._session = session
        self._endpoint = endpoint

    async def call(self, operation: Operation[A]) -> A:
        """Performs one operation.

        Raises what the operation raises, `Unavailable` if there is no answer in time, and
        `Misconfigured` if the socket could be another user's.
        """
        check_owner(self._endpoint)
        body = msgspec.json.encode(operation)
        url = f"http://local{PREFIX}{operation.NAME}"
        try:
            async with self._session.post(url, data=body) as response:
                status, answer = response.status, await response.read()
        except TimeoutError as error:
            raise Unavailable(
                f"the local cloud at {self._endpoint} did not answer in time"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(
                f"no local cloud answers at {self._endpoint} ({_reason(error)}); "
                "start one with `pileus local serve`"
            ) from error
        if status != HTTPStatus.OK:
            raise decode_error(answer)
        try:
            return cast("A", msgspec.json.decode(answer, type=operation.ANSWER))
        except msgspec.MsgspecError as error:
            raise Unavailable(f"{operation.NAME}: the answer is malformed: {error}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__


@asynccontextmanager
async def reaching(endpoint: Path, *, operator: bool = False) -> AsyncGenerator[RemoteCloud]:
    """Yields the cloud at that socket. The first call shows whether one answers.

    With `operator`, rate limits and faults do not apply.
    """
    headers = {OPERATOR: "true"} if operator else None
    connector = aiohttp.UnixConnector(path=str(endpoint))
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=DEADLINE
    ) as session:
        yield RemoteCloud(session, endpoint)


log = Log(__name__)


@asynccontextmanager
async def serving(cloud: LocalCloud, endpoint: Path) -> AsyncGenerator[None]:
    """Serves the cloud on that socket while the block lasts. Only the owner may connect.

    Raises `Misconfigured` if another cloud answers there or the socket cannot be created.
    """
    listener = await asyncio.to_thread(_listen, endpoint)
    runner = web.AppRunner(_application(cloud), access_log=None, handle_signals=False)
    try:
        await runner.setup()
        await web.SockSite(runner, listener).start()
        log.info("Serving local cloud", endpoint=str(endpoint))
        yield
    finally:
        await runner.cleanup()
        listener.close()
        endpoint.unlink(missing_ok=True)  # noqa: ASYNC240 -- takes no time


def _listen(endpoint: Path) -> socket.socket:
    try:
        endpoint.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_owner(endpoint)
        if endpoint.exists():
            _remove_stale(endpoint)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(str(endpoint))
        finally:
            os.umask(before)
        listener.listen(128)
        listener.setblocking(False)  # noqa: FBT003 -- the library's
    except OSError as error:
        raise Misconfigured(f"cannot serve the local cloud at {endpoint}: {error}") from error
    return listener


def _remove_stale(endpoint: Path) -> None:
    if not endpoint.is_socket():
        raise Misconfigured(f"{endpoint} is not a socket; use another endpoint")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(endpoint))
        except ConnectionRefusedError:
            endpoint.unlink()  # left behind by a cloud that was killed
            return
    raise Misconfigured(
        f"a local cloud already answers at {endpoint}; stop it or use another endpoint"
    )


def _application(cloud: LocalCloud) -> web.Application:
    async def answer(request: web.Request) -> web.Response:
        call = cloud.operate if OPERATOR in request.headers else cloud.call
        try:
            operation = decode_operation(request.match_info["operation"], await request.read())
            answered = await call(operation)
        except CloudError as error:
            return _refused(error)
        return _json(200, msgspec.json.encode(answered))

    application = web.Application()
    application.router.add_post("/v1/{operation}", answer)
    return application


def _refused(error: CloudError) -> web.Response:
    status, body = encode_error(error)
    response = _json(status, body)
    if isinstance(error, Throttled):
        response.headers["Retry-After"] = str(max(1, round(error.retry_after or 1.0)))
    return response


def _json(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")
