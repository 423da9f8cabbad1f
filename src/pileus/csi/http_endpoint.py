"""The HTTP port of the driver: metrics and probes. Plain HTTP, as the CSI sidecars do."""

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from pileus.csi.address import HttpAddress
from pileus.http.messages import Request, Response
from pileus.http.server import Server, plain
from pileus.server.metrics import exposing
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.log import Log

log = Log(__name__)

LAST_ANSWERS = 2.0
"""Seconds for running requests when the port closes."""
LIVE, READY = "/healthz", "/readyz"
"""Paths that kubelets ask for: the process answers, and the driver serves its socket."""
OK, NOT_FOUND, NOT_READY = 200, 404, 503


class CannotServe(OSError):
    """The port cannot be opened. The message names the address and the reason."""


@asynccontextmanager
async def serving_metrics(
    address: HttpAddress,
    path: str,
    registry: MetricRegistry,
    is_ready: Callable[[], bool] = lambda: True,
) -> AsyncGenerator[None]:
    """Serve the metrics at this path, and probes, during the block. Raises CannotServe."""
    metrics = exposing(registry)

    async def handle(request: Request) -> Response:
        if request.path == LIVE or (request.path == READY and is_ready()):
            return plain("ok\n", OK)
        if request.path == READY:
            return plain("the driver does not serve its socket yet\n", NOT_READY)
        if request.path != path:
            return plain(f"not found: metrics are at {path}\n", NOT_FOUND)
        return await metrics(request)

    server = Server(handle)
    await server.start(_listener(address))
    log.info("Serving metrics", address=address, path=path)
    try:
        yield
    finally:
        await server.close(LAST_ANSWERS)


def _listener(address: HttpAddress) -> socket.socket:
    """Returns a listening socket. Raises CannotServe.

    During an update, the old and the new process on one host share the port: the new one has to
    start before the old one is stopped.
    """
    try:
        if not address.host and socket.has_dualstack_ipv6():
            place = ("", address.port)
            opened = socket.create_server(
                place, family=socket.AF_INET6, dualstack_ipv6=True, reuse_port=True
            )
        else:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            place = (address.host, address.port)
            opened = socket.create_server(place, family=family, reuse_port=True)
    except OSError as error:
        raise CannotServe(f"cannot listen on {address}: {error.strerror or error}") from error
    opened.settimeout(0)
    return opened
