"""The HTTPS port as a lifetime: opened early in the start-up, served later, closed at the end."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import SystemRandom

from aiohttp import web

from pileus.clock import Clock
from pileus.runtime.supervision import Supervised
from pileus.server.authentication import Authenticator, CachedTokens
from pileus.server.authorization import Authorizer
from pileus.server.certificates import Certificates
from pileus.server.chain import Chain
from pileus.server.connection import Server
from pileus.server.listener import listen
from pileus.server.options import ServerOptions
from pileus.server.review import NO_DELEGATES, Delegates
from pileus.server.router import Routes
from pileus.server.tls import Tls
from pileus.server.trust import Trust, TrustSource
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

CERTIFICATES, AUTHORITIES = "serving-certificates", "client-authorities"
"""Names of the tasks that follow changes of files and cluster settings."""
LAST_ANSWERS = 2.0
"""Seconds that requests under way get when the port closes."""

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the port needs of the process around it."""

    metrics: Metrics
    clock: Clock
    delegates: Delegates = NO_DELEGATES


class Port:
    """A port that listens, with everything at hand to serve it."""

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
        """Answer requests while the block lasts."""
        chain = Chain(routes, self._authenticator, self._authorizer)
        runner = web.ServerRunner(Server(chain), shutdown_timeout=LAST_ANSWERS)
        await runner.setup()
        try:
            host, port, *_ = self._listener.getsockname()
            await web.SockSite(runner, self._listener, ssl_context=self._tls.context).start()
            log.info("Serving securely", address=host, port=port)
            yield Address(host, port)
        finally:
            await runner.cleanup()


@asynccontextmanager
async def opened(options: ServerOptions, around: Surroundings) -> AsyncGenerator[Port | None]:
    """Open the port without serving it yet; None if `--secure-port` is 0.

    Guarantees: whatever is wrong with address, certificates, TLS flags or the cluster's settings
    is raised here, the taken port first. Files and settings are followed while the block lasts.
    Errors: `ServerError`.
    """
    listener = listen(options.serving)
    if listener is None:
        yield None
        return
    async with secured(listener, options, around) as port:
        yield port


@asynccontextmanager
async def secured(
    listener: socket.socket, options: ServerOptions, around: Surroundings
) -> AsyncGenerator[Port]:
    """Put certificates, authentication and authorization before a socket that listens already.

    The socket is closed at the end. Errors: `ServerError`.
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


def _tokens(options: ServerOptions, around: Surroundings) -> CachedTokens | None:
    reviews = around.delegates.tokens
    if reviews is None:
        log.warning(
            "No credentials for token reviews: bearer tokens do not count",
            flag="--authentication-kubeconfig",
        )
        return None
    lifetime = options.authentication.token_cache_ttl
    return CachedTokens(reviews, around.metrics, lifetime=lifetime)


def _authorizer(options: ServerOptions, around: Surroundings) -> Authorizer:
    reviews = around.delegates.access
    if reviews is None:
        log.warning(
            "No credentials for access reviews: only the always allowed paths are served",
            flag="--authorization-kubeconfig",
        )
    return Authorizer(options.authorization, reviews, around.metrics)
