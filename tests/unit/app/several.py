"""A manager with two clouds, a and b, on an API server inside this process, in virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from pileus.app.manager import Manager
from pileus.app.plan import Plan, Planner, read_only_context
from pileus.app.startup import World
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.model import Absent, Found, Instance, InstanceId, NodeName, NodeRef
from pileus.cloud.registry import Registry
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import EVENTS, NODES, SERVICES, Event, Node
from pileus.objects.nodes import is_uninitialized, provider_id_of
from pileus.objects.preview import EVERYTHING
from pileus.server.health import Kind
from pileus.settings.config import Config
from pileus.telemetry.metrics import Metrics
from tests.unit.app.stage import TIMES, Kube, configured, manager_context, new_node
from tests.unit.controllers.service.plain import PlainBalancers


@dataclass
class Machines:
    """The machines of one cloud; it may fail, or hang."""

    scheme: str
    names: set[str] = field(default_factory=set[str])
    error: CloudError | None = None
    hangs: bool = False
    tells_absence: bool = True
    """False: only if asked with `fresh=True`, as ported providers do."""
    asked: int = 0

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        self.asked += 1
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        if self.error:
            raise self.error
        found = {node.name: self._machine(node.name) for node in nodes}
        if fresh or self.tells_absence:
            return found
        return {name: one for name, one in found.items() if isinstance(one, Instance)}

    def _machine(self, name: str) -> Found:
        if name not in self.names:
            return Absent(f"no server {name}")
        return Instance(id=InstanceId(name), provider_id=f"{self.scheme}://{name}")


@dataclass
class Account:
    """One cloud, and whether it can be connected to."""

    name: str
    scheme: str
    error: CloudError | None = None
    hangs: bool = False
    opened: int = 0
    closed: int = 0
    breaks: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends the connection while it is used."""

    def __post_init__(self) -> None:
        self.machines = Machines(self.scheme)
        self.balancers = PlainBalancers()
        self.cloud = Cloud(name=self.scheme, instances=self.machines, balancers=self.balancers)

    @asynccontextmanager
    async def connect(self, config: ProviderConfig) -> AsyncGenerator[Cloud]:
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        if self.error:
            raise self.error
        self.opened += 1
        try:
            async with asyncio.TaskGroup() as group:
                breaking = group.create_task(self._break())
                yield self.cloud
                breaking.cancel()
        finally:
            self.closed += 1

    async def _break(self) -> None:
        await self.breaks.wait()
        raise RuntimeError("the SDK gave up")


@dataclass
class TwoClouds:
    kube: Kube
    user: Client
    a: Account
    b: Account
    manager: Manager | None = None
    metrics: Metrics | None = None

    def world(self) -> World:
        providers = Registry(discover=tuple)
        providers.register("a", self.a.connect)
        providers.register("b", self.b.connect)
        return World({}, TIMES, Random(0), lambda _: None, providers, self.kube.connect)

    @asynccontextmanager
    async def managed(self, *flags: str) -> AsyncGenerator[Manager]:
        line = ("--cloud-provider=a,b", "--controller-start-interval=0s", *flags)
        self.manager = Manager(configured(*line), self.world())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self.manager.run())
            try:
                yield self.manager
            finally:
                running.cancel()

    def configured(self, *flags: str) -> Config:
        return configured("--cloud-provider=a,b", *flags)

    async def plan(self, *flags: str) -> Plan:
        config = self.configured(*flags)
        async with read_only_context(config, self.world()) as context:
            return await Planner(context).plan(EVERYTHING)

    async def add_node(self, name: str, provider_id: str = "") -> None:
        node = new_node(name)
        if provider_id:
            node["spec"] = {"providerID": provider_id}
        await self.user.create(NODES, node)

    async def add_service(self, name: str, chosen: str | None = None, **annotations: str) -> str:
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerClass": chosen}
        metadata = {"name": name, "annotations": annotations}
        made = await self.user.create(
            SERVICES, {"metadata": metadata, "spec": spec}, namespace="default"
        )
        return made.metadata.uid

    async def node(self, name: str) -> Node:
        return await self.user.get(NODES, name)

    async def is_initialized(self, name: str) -> str:
        """Its provider ID; empty: it is not initialized."""
        node = await self.node(name)
        return "" if is_uninitialized(node) else provider_id_of(node)

    async def events(self, about: str) -> list[Event]:
        listed = (await self.user.list(EVENTS)).items
        return [one for one in listed if one.involved_object and one.involved_object.name == about]

    def problem(self, manager: Manager, kind: Kind, name: str) -> str | None:
        """What a health check says."""
        checks = {check.name: check for check in manager._health.checkups(kind)}
        return checks[name]._ask()

    def ready(self) -> dict[str, str | None]:
        assert self.manager is not None
        checks = self.manager._health.checkups(Kind.READYZ)
        return {check.name: check._ask() for check in checks}


@asynccontextmanager
async def two_clouds(*, same_scheme: bool = False) -> AsyncGenerator[TwoClouds]:
    kube = Kube()
    a, b = Account("a", "a"), Account("b", "a" if same_scheme else "b")
    async with manager_context(Cloud(name="fake"), kube=kube) as context:
        yield TwoClouds(kube, context.clients.main("user"), a, b)
