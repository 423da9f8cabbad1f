"""Clients of the API server by identity: each with its own user agent, credentials and rate."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from pileus.app.config import ClientConnection, Config
from pileus.app.declared.generic import KUBE_API_BURST, KUBE_API_QPS
from pileus.clock import Clock
from pileus.fence import Fence, Open
from pileus.kube.access import Access, Server
from pileus.kube.client import Client
from pileus.kube.config.service_account import service_account_access
from pileus.kube.http import HttpTransport
from pileus.kube.restricted import Permits, Restricted, all_requests
from pileus.kube.throttle import Adaptive, Throttle, TokenBucket
from pileus.kube.transport import Transport
from pileus.telemetry.metrics import Metrics
from pileus.version import KUBERNETES, PILEUS, PROGRAM, system


class Connection(Transport, Protocol):
    """A transport that is closed at the end."""

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
    """What `--kube-api-qps` and `--kube-api-burst` ask for; None: no fixed rate."""

    qps: float
    burst: int

    @classmethod
    def of(cls, asked: ClientConnection) -> "Rate | None":
        """One flag given without the other means the other's upstream default."""
        qps, burst = asked.qps, asked.burst
        if (qps is None and burst is None) or (qps is not None and qps < 0):
            return None
        return cls(qps or KUBE_API_QPS.default, burst or KUBE_API_BURST.default)


class Clients:
    """Makes clients; closes their connections at the end of its `async with` block."""

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
        """`permits` holds for every request of every client, tokens and leases included."""
        self._access = access
        self._connect = connect
        self._permits = permits
        self.metrics = metrics
        self._clock = clock
        self._rate = Rate.of(config.client)
        # Tokens are made by a write, which a dry run must not send: it keeps its own identity.
        self._own_accounts = config.shared.use_service_account_credentials and not config.dry_run
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
        """A client with the manager's own credentials, for what stand-bys do as well."""
        return self._client(suffix, self._access, Open())

    def own(self, suffix: str) -> Client:
        """A client for leases and tokens: never behind other requests.

        Other requests wait for tokens: did tokens wait for their turn among them, none would end.
        """
        connection = self._connection(suffix, self._access)
        return Client(
            Restricted(connection, self._permits),
            user_agent=user_agent(suffix),
            metrics=self.metrics,
            server=Server(connection.host, self._access.refused),
        )

    def controller(self, identity: str, *, fence: Fence) -> Client:
        """A client of a controller: of its service account, where that is wanted."""
        return self._client(identity, self.access_of(identity), fence)

    def access_of(self, identity: str) -> Access:
        """The access of a controller; the same one each time, for its token is kept in it."""
        if not self._own_accounts:
            return self._access
        if identity not in self._accounts:
            tokens = self.own("tokens")
            account = service_account_access(self._access, tokens, identity, self._clock)
            self._accounts[identity] = account
        return self._accounts[identity]

    def _client(self, suffix: str, access: Access, fence: Fence) -> Client:
        connection = self._connection("" if access is self._access else suffix, access)
        return Client(
            Restricted(connection, self._permits),
            user_agent=user_agent(suffix),
            metrics=self.metrics,
            fence=fence,
            throttle=self._throttle(),
            server=Server(connection.host, access.refused),
        )

    def _connection(self, name: str, access: Access) -> Connection:
        """One for each name, shared by all clients of it."""
        if name not in self._connections:
            connection = self._connections[name] = self._connect(access)
            self._stack.push_async_exit(connection)
        return self._connections[name]

    def _throttle(self) -> Throttle:
        if self._rate is None:
            return self._shared_throttle
        return TokenBucket(self._rate.qps, self._rate.burst)


def user_agent(suffix: str) -> str:
    """As Go components name themselves, so that audit logs and flow schemas tell us apart."""
    return f"{PROGRAM}/{KUBERNETES} ({system()}) kubernetes/pileus-{PILEUS}/{suffix}"
