"""Clients of the API server by identity: each with its own user agent, credentials and rate."""

import platform
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pileus.app.config import Config
from pileus.clock import Clock
from pileus.fence import Fence, Open
from pileus.kube.access import Access
from pileus.kube.client import Client
from pileus.kube.config.service_account import service_account_access
from pileus.kube.dry import DryTransport
from pileus.kube.http import HttpTransport
from pileus.kube.throttle import Adaptive, Throttle, TokenBucket
from pileus.telemetry.metrics import Metrics
from pileus.version import KUBERNETES, PILEUS

PROGRAM = "cloud-controller-manager"
DEFAULT_RATE = 20.0
DEFAULT_BURST = 30
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Rate:
    """What `--kube-api-qps` and `--kube-api-burst` ask for; None: no fixed rate."""

    qps: float
    burst: int

    @classmethod
    def of(cls, config: Config) -> "Rate | None":
        """One flag given without the other means the other's upstream default."""
        qps, burst = config.client.qps, config.client.burst
        if (qps is None and burst is None) or (qps is not None and qps < 0):
            return None
        return cls(qps or DEFAULT_RATE, burst or DEFAULT_BURST)


class Clients:
    """Makes clients; closes their connections at the end of its `async with` block."""

    def __init__(self, access: Access, config: Config, metrics: Metrics, clock: Clock) -> None:
        self._access = access
        self._metrics = metrics
        self._clock = clock
        self._rate = Rate.of(config)
        self._own_accounts = config.shared.use_service_account_credentials
        self._dry_run = config.dry_run
        self._shared_throttle = Adaptive()
        self._stack = AsyncExitStack()
        self._transports: dict[str, HttpTransport] = {}

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
        """A client for leases and tokens: never dry, never behind other requests."""
        transport = self._transport(suffix, self._access)
        return Client(
            transport,
            user_agent=user_agent(suffix),
            metrics=self._metrics,
            host=transport.host,
        )

    def controller(self, identity: str, *, fence: Fence) -> Client:
        """A client of a controller: of its service account, where that is wanted."""
        return self._client(identity, self.access_of(identity), fence)

    def access_of(self, identity: str) -> Access:
        if not self._own_accounts:
            return self._access
        return service_account_access(self._access, self.own("tokens"), identity, self._clock)

    def _client(self, suffix: str, access: Access, fence: Fence) -> Client:
        transport = self._transport(suffix if access is not self._access else "", access)
        return Client(
            DryTransport(transport) if self._dry_run else transport,
            user_agent=user_agent(suffix),
            metrics=self._metrics,
            fence=fence,
            throttle=self._throttle(),
            host=transport.host,
        )

    def _transport(self, identity: str, access: Access) -> HttpTransport:
        """Connections are shared by all clients of one identity."""
        if identity not in self._transports:
            transport = self._transports[identity] = HttpTransport(access)
            self._stack.push_async_exit(transport)
        return self._transports[identity]

    def _throttle(self) -> Throttle:
        if self._rate is None:
            return self._shared_throttle
        return TokenBucket(self._rate.qps, self._rate.burst)


def user_agent(suffix: str) -> str:
    """As Go components name themselves, so that audit logs and flow schemas tell us apart."""
    machine = platform.machine()
    system = f"{sys.platform}/{_MACHINES.get(machine, machine)}"
    return f"{PROGRAM}/{KUBERNETES} ({system}) kubernetes/pileus-{PILEUS}/{suffix}"
