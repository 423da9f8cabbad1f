"""The HTTPS port: opened early in the start-up, served later, closed at the end."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from random import SystemRandom

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from pileus.clock import Clock
from pileus.runtime.supervision import Supervised
from pileus.server import responses
from pileus.server.authentication import Authenticator, CachedTokens
from pileus.server.authorization import Authorizer
from pileus.server.client_certificates import Trust, TrustSource
from pileus.server.errors import CannotListen
from pileus.server.request_pipeline import RequestPipeline
from pileus.server.reviews import NO_DELEGATES, Delegates
from pileus.server.router import Routes
from pileus.server.serving_certificates import Certificates
from pileus.server.settings import ServerSettings, ServingOptions
from pileus.server.tls import Tls
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)


CERTIFICATES, AUTHORITIES = "serving-certificates", "client-authorities"
"""Names of the tasks that follow changes of files and cluster settings."""
LAST_ANSWERS = 2.0
"""Seconds for running requests when the port closes."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the port needs from the process."""

    metrics: Metrics
    clock: Clock
    delegates: Delegates = NO_DELEGATES


class Port:
    """A listening port that is ready to be served."""

    def __init__(
        self,
        listener: socket.socket,
        tls: Tls,
        authenticator: Authenticator,
        authorizer: Authorizer,
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._authenticator = authenticator
        self._authorizer = authorizer

    @asynccontextmanager
    async def serving(self, routes: Routes) -> AsyncGenerator[Address]:
        """Serve requests while the block lasts."""
        pipeline = RequestPipeline(routes, self._authenticator, self._authorizer)
        runner = web.ServerRunner(Server(pipeline), shutdown_timeout=LAST_ANSWERS)
        await runner.setup()
        try:
            host, port, *_ = self._listener.getsockname()
            await web.SockSite(runner, self._listener, ssl_context=self._tls.context).start()
            log.info("Serving securely", address=host, port=port)
            yield Address(host, port)
        finally:
            await runner.cleanup()


@asynccontextmanager
async def opened(options: ServerSettings, around: Surroundings) -> AsyncGenerator[Port | None]:
    """Open the port without serving it yet; None if `--secure-port` is 0.

    Guarantees: every problem with address, certificates, TLS flags or the cluster's settings is
    raised here, a port in use first. Files and settings are followed while the block lasts.
    Raises `ServerError`.
    """
    listener = listen(options.serving)
    if listener is None:
        yield None
        return
    async with secured(listener, options, around) as port:
        yield port


@asynccontextmanager
async def secured(
    listener: socket.socket, options: ServerSettings, around: Surroundings
) -> AsyncGenerator[Port]:
    """Add certificates, authentication and authorization to a listening socket.

    The socket is closed at the end. Raises `ServerError`.
    """
    with contextlib.closing(listener):
        tls = Tls(options.serving)
        certificates = Certificates(options.serving, around.clock)
        certificates.show(tls)
        authorizer = _authorizer(options, around)
        authenticator = Authenticator(around.clock, around.metrics, _tokens(options, around))

        def use(trust: Trust) -> None:
            tls.use_authorities(trust.bundle)
            authenticator.trust(trust)

        source = TrustSource(options.authentication, around.delegates.settings, use)
        await source.start()
        async with asyncio.TaskGroup() as group:
            works = {CERTIFICATES: lambda: certificates.follow(tls), AUTHORITIES: source.follow}
            followers = [
                group.create_task(Supervised(name, work, SystemRandom(), around.metrics).run())
                for name, work in works.items()
            ]
            yield Port(listener, tls, authenticator, authorizer)
            for follower in followers:
                follower.cancel()


def _tokens(options: ServerSettings, around: Surroundings) -> CachedTokens | None:
    reviews = around.delegates.tokens
    if reviews is None:
        log.warning(
            "Bearer-token authentication disabled: set --authentication-kubeconfig",
        )
        return None
    lifetime = options.authentication.token_cache_ttl
    return CachedTokens(reviews, around.metrics, lifetime=lifetime)


def _authorizer(options: ServerSettings, around: Surroundings) -> Authorizer:
    reviews = around.delegates.access
    if reviews is None:
        log.warning(
            "Serving only the always allowed paths: set --authorization-kubeconfig",
        )
    return Authorizer(options.authorization, reviews, around.metrics)


BACKLOG = 128

_ADVICE = {
    errno.EADDRINUSE: "the port is in use; stop the other process, or use another --secure-port",
    errno.EADDRNOTAVAIL: "no network interface has this address; check --bind-address",
    errno.EACCES: "not permitted; use a --secure-port above 1023, or grant CAP_NET_BIND_SERVICE",
}


def listen(options: ServingOptions) -> socket.socket | None:
    """Returns a socket that listens but is not served yet; None if the port is 0.

    The unspecified address, `0.0.0.0` or `::`, stands for both IP versions.
    Raises `CannotListen` with address and port.
    """
    if options.port == 0:
        return None
    try:
        return _open(options)
    except OSError as error:
        where = f"{_bracketed(options.bind_address)}:{options.port}"
        reason = _ADVICE.get(error.errno or 0, str(error))
        raise CannotListen(f"cannot listen on {where}: {reason}") from error
    except ValueError as error:
        raise CannotListen(f"--bind-address={options.bind_address}: not an IP address") from error


def _open(options: ServingOptions) -> socket.socket:
    address = ip_address(options.bind_address)
    dual = address.is_unspecified and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or isinstance(address, IPv6Address) else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if options.permit_port_sharing:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not dual)
        opened.bind(("::" if dual else options.bind_address, options.port))
        opened.listen(BACKLOG)
        opened.settimeout(0)
    except BaseException:
        opened.close()
        raise
    return opened


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


IDLE = 90.0
"""Seconds that a connection may stay open between two requests."""
HEADERS = 32.0
"""Seconds for all headers of a request, from its first byte or the start of the connection."""


class Request(web.BaseRequest):
    """A request whose response has no `Server` header."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        response.headers.pop(hdrs.SERVER, None)


class Connection(RequestHandler):
    """Closes itself when the headers of a request do not arrive in time."""

    __slots__ = ("_headers_due",)

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own way to switch it off
            keepalive_timeout=IDLE,
            auto_decompress=False,
        )
        self._headers_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        before = self._request_count
        super().data_received(data)
        if self._request_count > before:
            self._stop_waiting()
        elif not self._request_in_progress:
            self._expect_headers()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer 400 to what is not HTTP, with one log line; any other error is a bug."""
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        log.info("Bad request", v=2, source=request.remote, err=type(exc).__name__)
        response = responses.text("400 Bad Request\n", status=HTTPStatus.BAD_REQUEST)
        response.force_close()
        return response

    def _expect_headers(self) -> None:
        if self._headers_due is None:
            self._headers_due = self._loop.call_later(HEADERS, self._close_if_waiting)

    def _stop_waiting(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _close_if_waiting(self) -> None:
        self._headers_due = None
        if self._waiter is not None:
            self.force_close()


class Server(web.Server):
    """Creates a `Connection` for each client. Request bodies are not decompressed."""

    def __call__(self) -> RequestHandler:
        return Connection(self, self._loop)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        return Request(message, payload, protocol, writer, task, self._loop)
