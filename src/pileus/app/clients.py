"""API clients by identity, each with its own user agent, credentials and rate."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol, Self

from pileus.app.settings import ManagerSettings
from pileus.clock import Clock
from pileus.dataclass import dataclass
from pileus.fence import Fence, Open
from pileus.kube.access import Access, Server
from pileus.kube.client import Client
from pileus.kube.config.choose import load_delegated_access
from pileus.kube.config.service_account import service_account_access
from pileus.kube.exchange import Adaptive, GivingWay, Throttle, TokenBucket
from pileus.kube.http import HttpTransport
from pileus.kube.settings import (
    DEFAULT_BURST,
    DEFAULT_QPS,
    ZERO_BURST,
    ZERO_QPS,
    ClientSettings,
)
from pileus.kube.transport import Permits, Restricted, Transport, all_requests
from pileus.server.reviews import Delegates, delegates_of
from pileus.server.settings import ServerSettings
from pileus.settings.config import Config
from pileus.telemetry.metrics import Metrics
from pileus.version import KUBERNETES, PILEUS, PROGRAM, system


class Connection(Transport, Protocol):
    """A transport that can be closed."""

    @property
    def host(self) -> str: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


Connect = Callable[[Access], Connection]


@dataclass(frozen=True, slots=True)
class Rate:
    """The values of `--kube-api-qps` and `--kube-api-burst`; None: no fixed rate."""

    qps: float
    burst: int

    @classmethod
    def of(cls, asked: ClientSettings) -> "Rate | None":
        """One flag given without the other means the other's upstream default.

        0 means what it means upstream: a low rate of its own.
        """
        qps, burst = asked.qps, asked.burst
        if (qps is None and burst is None) or (qps is not None and qps < 0):
            return None
        return cls(
            DEFAULT_QPS if qps is None else qps or ZERO_QPS,
            DEFAULT_BURST if burst is None else burst or ZERO_BURST,
        )


class Clients:
    """Creates clients. Leaving its `async with` block closes their connections."""

    def __init__(
        self,
        access: Access,
        config: Config,
        metrics: Metrics,
        clock: Clock,
        *,
        connect: Connect = HttpTransport,
        permits: Permits = all_requests,
    ) -> None:
        """`permits` applies to every request of every client, tokens and leases included."""
        self._access = access
        self._connect = connect
        self._permits = permits
        self.metrics = metrics
        self._clock = clock
        self._rate = Rate.of(config[ClientSettings])
        # Creating a token is a write, which a dry run must not send: it keeps its own identity.
        wanted = config[ClientSettings].own_service_accounts
        self._own_accounts = wanted and not config[ManagerSettings].dry_run
        self._shared_throttle = Adaptive()
        self._stack = AsyncExitStack()
        self._connections: dict[str, Connection] = {}
        self._accounts: dict[str, Access] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def main(self, suffix: str) -> Client:
        """Returns a client with the manager's own credentials, not fenced: standbys use it too."""
        return self._client(suffix, self._access, Open(), self._throttle())

    def giving_way(self, suffix: str) -> Client:
        """Returns the same for requests that can wait: they leave when there is no other one."""
        throttle = self._throttle() if self._rate else GivingWay(self._shared_throttle)
        return self._client(suffix, self._access, Open(), throttle)

    def own(self, suffix: str) -> Client:
        """Returns a client for leases and tokens that is not throttled.

        Other requests wait for tokens. If token requests waited behind them, none would end.
        """
        connection = self._connection(suffix, self._access)
        return Client(
            Restricted(connection, self._permits),
            user_agent=user_agent(suffix),
            metrics=self.metrics,
            server=Server(connection.host, self._access.refused),
        )

    def controller(self, identity: str, *, fence: Fence) -> Client:
        """Returns a fenced client of a controller, with its service account if that is enabled."""
        return self._client(identity, self.access_of(identity), fence, self._throttle())

    def access_of(self, identity: str) -> Access:
        """Returns the access of a controller, always the same one: it caches the token."""
        if not self._own_accounts:
            return self._access
        if identity not in self._accounts:
            tokens = self.own("tokens")
            account = service_account_access(self._access, tokens, identity, self._clock)
            self._accounts[identity] = account
        return self._accounts[identity]

    def _client(self, suffix: str, access: Access, fence: Fence, throttle: Throttle) -> Client:
        connection = self._connection("" if access is self._access else suffix, access)
        return Client(
            Restricted(connection, self._permits),
            user_agent=user_agent(suffix),
            metrics=self.metrics,
            fence=fence,
            throttle=throttle,
            server=Server(connection.host, access.refused),
        )

    def _connection(self, name: str, access: Access) -> Connection:
        """Returns one connection per name, shared by all its clients."""
        if name not in self._connections:
            connection = self._connections[name] = self._connect(access)
            self._stack.push_async_exit(connection)
        return self._connections[name]

    def _throttle(self) -> Throttle:
        if self._rate is None:
            return self._shared_throttle
        return TokenBucket(self._rate.qps, self._rate.burst)


def user_agent(suffix: str) -> str:
    """Returns a user agent like those of Go components, for audit logs and flow schemas."""
    return f"{PROGRAM}/{KUBERNETES} ({system()}) kubernetes/pileus-{PILEUS}/{suffix}"


def delegates(
    config: ServerSettings, environ: Mapping[str, str], metrics: Metrics, stack: AsyncExitStack
) -> Delegates:
    """Returns the API servers that review tokens and rights of callers of the HTTPS port.

    Their connections are closed with the stack. Raises InvalidConfiguration.
    """
    authentication = load_delegated_access(
        "--authentication-kubeconfig", config.authentication.kubeconfig, environ
    )
    authorization = load_delegated_access(
        "--authorization-kubeconfig", config.authorization.kubeconfig, environ
    )

    def client(access: Access | None, suffix: str) -> Client | None:
        if access is None:
            return None
        transport = HttpTransport(access)
        stack.push_async_exit(transport)
        agent = user_agent(suffix)
        server = Server(transport.host, access.refused)
        return Client(transport, user_agent=agent, metrics=metrics, server=server)

    return delegates_of(
        client(authentication, "delegated-authentication"),
        client(authorization, "delegated-authorization"),
    )
