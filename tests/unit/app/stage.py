"""The whole manager on an API server inside this process, in virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from types import TracebackType
from typing import Self

from pileus.app.clients import Clients
from pileus.app.cluster_id import ClusterIdentity
from pileus.app.context import ManagerContext
from pileus.app.registry import CONTROLLERS, Controllers
from pileus.app.settings import TABLE, build_config
from pileus.cloud.interface import Cloud
from pileus.fence import Open
from pileus.kube.access import Access
from pileus.kube.errors import Unreachable
from pileus.kube.model.core_v1 import ObjectReference
from pileus.kube.transport import Permits, Reply, Request, Transport, all_requests
from pileus.objects.cloud_scope import only_scope
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    RunningController,
    Skipped,
)
from pileus.objects.nodes import UNINITIALIZED
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.objects.settings import ClusterSettings
from pileus.runtime.informers import Informers
from pileus.runtime.leadership import Election, Times
from pileus.runtime.lease import Candidate, KubeLease
from pileus.runtime.settings import Durations
from pileus.settings.config import Config
from pileus.settings.sources import gather
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import LoopClock, loop_time
from pileus_lab.apiserver.in_process import InProcessTransport
from pileus_lab.apiserver.server import api_in_memory


def new_node(name: str) -> dict[str, object]:
    """A node as a kubelet with `--cloud-provider=external` registers it."""
    taint = {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"taints": [taint]},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.1.1.1"}]},
    }


class Nobody:
    """Credentials of nobody: inside this process nobody asks for them."""

    async def headers(self) -> Mapping[str, str]:
        return {}

    def tls(self) -> None:
        return None

    def rejected(self) -> None:
        pass


ACCESS = Access("http://127.0.0.1:1", Nobody())


def configured(*arguments: str) -> Config:
    line = ("--cloud-provider=fake", "--master=http://127.0.0.1:1", "--secure-port=0", *arguments)
    return build_config(gather(TABLE, "cloud-controller-manager", line, {}).values)


APART = Controllers(
    *(replace(each, names=replace(each.names, identity=each.names.alias)) for each in CONTROLLERS)
)
"""The controllers with an account each, so that the record tells them apart."""
TIMES = Times(LoopClock(), loop_time)


class Wire:
    """One connection to the API server of this process."""

    host = "in-process"

    def __init__(self, kube: "Kube", access: Access) -> None:
        self.access = access
        self.is_open = True
        self._kube = kube

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.is_open = False

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[Reply]:
        self._kube.requests.append((self, request))
        if request.path in self._kube.hangs:
            await asyncio.get_running_loop().create_future()
        if self._kube.is_down or request.path in self._kube.refuses:
            raise Unreachable(request.path, self.host, "connection refused")
        async with self._kube.transport.send(request) as reply:
            yield reply


@dataclass
class Kube:
    """An API server that keeps all in memory, or is scripted; notes who asked for what."""

    transport: Transport = field(
        default_factory=lambda: InProcessTransport(
            api_in_memory(clock=LoopClock(), random=Random(0))
        )
    )
    wires: list[Wire] = field(default_factory=list[Wire])
    requests: list[tuple[Wire, Request]] = field(default_factory=list[tuple[Wire, Request]])
    hangs: set[str] = field(default_factory=set[str])
    refuses: set[str] = field(default_factory=set[str])
    is_down: bool = False

    def connect(self, access: Access) -> Wire:
        self.wires.append(Wire(self, access))
        return self.wires[-1]

    def go_down(self) -> None:
        self.is_down = True


@asynccontextmanager
async def manager_context(
    cloud: Cloud,
    *arguments: str,
    kube: Kube | None = None,
    seed: int = 0,
    permits: Permits = all_requests,
) -> AsyncGenerator[ManagerContext]:
    config, metrics, random = configured(*arguments), Metrics(MetricRegistry()), Random(seed)
    connect = (kube or Kube()).connect
    async with Clients(
        ACCESS, config, metrics, LoopClock(), connect=connect, permits=permits
    ) as clients:
        yield ManagerContext(
            config=config,
            scope=only_scope(cloud),
            clients=clients,
            informers=Informers(clients.main("shared-informers"), random, 0.0),
            cluster_identity=ClusterIdentity(
                clients.main("cluster-id"), config[ClusterSettings].id
            ),
            fence=Open(),
            metrics=metrics,
            clock=LoopClock(),
            random=random,
        )


@dataclass(frozen=True)
class NoSettings:
    """Of a controller without flags."""


@dataclass
class Stub:
    """A controller that only waits, unless told otherwise."""

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        return ()

    def stuck(self, limit: float) -> str | None:
        return None

    def failing(self) -> str | None:
        return None


def described(
    names: ControllerNames,
    build: Callable[[ControllerContext], RunningController | Skipped],
) -> ControllerDescriptor[NoSettings]:
    return ControllerDescriptor(
        names=names, settings=NoSettings, build=lambda context, _: build(context)
    )


def election(context: ManagerContext, name: str, identity: str = "me") -> Election:
    candidate = Candidate("kube-system", name, identity, Durations())
    store = KubeLease(context.clients.own("leader-election"), "kube-system", name)
    return Election(
        candidate,
        store,
        random=context.random,
        metrics=context.metrics,
        events=Silent(),
        times=TIMES,
    )


class Silent:
    def record(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        pass
