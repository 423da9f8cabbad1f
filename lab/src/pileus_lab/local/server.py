"""The local cloud's API on a unix socket: `POST /v1/<operation>` with a JSON body."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web

from pileus.cloud.errors import CloudError, Misconfigured, Throttled
from pileus.telemetry.log import Log
from pileus_lab.local.endpoint import check_owner
from pileus_lab.local.host import LocalCloud
from pileus_lab.local.wire import OPERATOR, decode_operation, encode_error

log = Log(__name__)


@asynccontextmanager
async def serving(cloud: LocalCloud, endpoint: Path) -> AsyncGenerator[None]:
    """Answer on that socket for as long as the block lasts. Only its owner may connect.

    Errors: `Misconfigured` if another cloud answers there, or the socket cannot be made.
    """
    listener = await asyncio.to_thread(_listen, endpoint)
    runner = web.AppRunner(_application(cloud), access_log=None, handle_signals=False)
    try:
        await runner.setup()
        await web.SockSite(runner, listener).start()
        log.info("Local cloud is served", endpoint=str(endpoint))
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
        raise Misconfigured(f"{endpoint} is no socket; name another endpoint")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(endpoint))
        except ConnectionRefusedError:
            endpoint.unlink()  # left behind by a cloud that was killed
            return
    raise Misconfigured(f"a local cloud answers at {endpoint} already; stop it, or name another")


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
