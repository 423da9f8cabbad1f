"""The HTTPS port: opened early in the start-up, served later, closed at the end."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from ipaddress import IPv6Address, ip_address
from random import SystemRandom

from pileus.clock import Clock
from pileus.dataclass import dataclass
from pileus.http.server import Server
from pileus.runtime.supervision import Supervised
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
class PortContext:
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
        certified: Awaitable[None],
    ) -> None:
        """`certified` is done when `tls` has a certificate."""
        self._listener = listener
        self._certified = certified
        self._tls = tls
        self._authenticator = authenticator
        self._authorizer = authorizer

    @asynccontextmanager
    async def serving(self, routes: Routes) -> AsyncGenerator[Address]:
        """Serve requests while the block lasts, from when the certificate is created.

        Clients that connect earlier wait for it; the block does not.
        """
        pipeline = RequestPipeline(routes, self._authenticator, self._authorizer)
        server = Server(pipeline)
        try:
            host, port, *_ = self._listener.getsockname()
            async with asyncio.TaskGroup() as group:
                starting = group.create_task(self._start(server, Address(host, port)))
                yield Address(host, port)
                starting.cancel()
        finally:
            await server.close(LAST_ANSWERS)

    async def _start(self, server: Server, address: Address) -> None:
        await self._certified
        await server.start(self._listener, self._tls.context)
        log.info("Serving securely", address=address.host, port=address.port)


@asynccontextmanager
async def opened(options: ServerSettings, around: PortContext) -> AsyncGenerator[Port | None]:
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
    listener: socket.socket, options: ServerSettings, around: PortContext
) -> AsyncGenerator[Port]:
    """Add certificates, authentication and authorization to a listening socket.

    The socket is closed at the end. Raises `ServerError`.
    """
    with contextlib.ExitStack() as closing:
        closing.callback(listener.close)
        tls = Tls(options.serving)
        certificates = Certificates(options.serving, around.clock)
        closing.callback(certificates.close)
        authorizer = _authorizer(options, around)
        authenticator = Authenticator(around.clock, around.metrics, _tokens(options, around))

        def use(trust: Trust) -> None:
            tls.use_authorities(trust.bundle)
            authenticator.trust(trust)

        source = TrustSource(options.authentication, around.delegates.settings, use)
        await source.start()
        if certificates.may_be_invalid:
            await asyncio.to_thread(certificates.show, tls)
        async with asyncio.TaskGroup() as group:
            certified = group.create_task(asyncio.to_thread(certificates.show, tls))
            works = {CERTIFICATES: lambda: certificates.follow(tls), AUTHORITIES: source.follow}
            followers = [
                group.create_task(Supervised(name, work, SystemRandom(), around.metrics).run())
                for name, work in works.items()
            ]
            yield Port(listener, tls, authenticator, authorizer, asyncio.shield(certified))
            for follower in followers:
                follower.cancel()


def _tokens(options: ServerSettings, around: PortContext) -> CachedTokens | None:
    reviews = around.delegates.tokens
    if reviews is None:
        log.warning(
            "Bearer-token authentication disabled: set --authentication-kubeconfig",
        )
        return None
    lifetime = options.authentication.token_cache_ttl
    return CachedTokens(reviews, around.metrics, lifetime=lifetime)


def _authorizer(options: ServerSettings, around: PortContext) -> Authorizer:
    reviews = around.delegates.access
    if reviews is None:
        log.warning(
            "Serving only the always allowed paths: set --authorization-kubeconfig",
        )
    return Authorizer(options.authorization, reviews, around.metrics)


BACKLOG = 128

_ADVICE = {
    errno.EADDRINUSE: "the port is in use; stop the other process, or use another --{}secure-port",
    errno.EADDRNOTAVAIL: "no network interface has this address; check --{}bind-address",
    errno.EACCES: "not permitted; use a --{}secure-port above 1023, or grant CAP_NET_BIND_SERVICE",
}


def listen(options: ServingOptions, prefix: str = "") -> socket.socket | None:
    """Returns a socket that listens but is not served yet; None if the port is 0.

    The unspecified address, `0.0.0.0` or `::`, stands for both IP versions. `prefix` is that of
    the flags. Raises `CannotListen` with address and port.
    """
    if options.port == 0:
        return None
    try:
        return _open(options)
    except OSError as error:
        where = f"{_bracketed(options.bind_address)}:{options.port}"
        advice = _ADVICE.get(error.errno or 0)
        reason = advice.format(prefix) if advice else str(error)
        raise CannotListen(f"cannot listen on {where}: {reason}") from error
    except ValueError as error:
        given = f"--{prefix}bind-address={options.bind_address}"
        raise CannotListen(f"{given}: not an IP address") from error


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
