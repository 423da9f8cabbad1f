"""A whole cluster and a whole cloud in this process: managers come, plans are made, in between."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

from pileus.app.context import ManagerContext
from pileus.app.manager import Manager
from pileus.app.plan import Plan, Planner, read_only_context
from pileus.app.startup import World
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.registry import Registry
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import NODES, SERVICES
from pileus.objects.preview import EVERYTHING, Scope
from pileus.testing.virtual_time import LoopClock
from pileus_lab.local.cloud import CloudContext, LocalCloud
from pileus_lab.local.connect import cloud_of
from pileus_lab.local.model.machines import CreateMachine
from tests.unit.app.stage import TIMES, Kube, configured, manager_context, new_node

LIFE = ("--controller-start-interval=0s", "--controllers=*")


@dataclass
class Scene:
    kube: Kube
    client: Client
    cloud: LocalCloud
    flags: tuple[str, ...] = LIFE

    def world(self) -> World:
        @asynccontextmanager
        async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
            yield await cloud_of(self.cloud)

        providers = Registry(discover=tuple)
        providers.register("fake", connect)
        return World({}, TIMES, Random(0), lambda _: None, providers, self.kube.connect)

    async def add_nodes(self, *names: str) -> None:
        for name in names:
            await self.cloud.call(CreateMachine(name=name))
            await self.client.create(NODES, new_node(name))

    async def add_service(self, name: str, *ports: int) -> str:
        """Its UID."""
        wanted = [{"name": f"p{port}", "port": port} for port in ports]
        made = {"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": wanted}}
        return (await self.client.create(SERVICES, made, namespace="default")).metadata.uid

    async def managed(self, seconds: float = 30, *flags: str) -> None:
        """Let a manager run for so long."""
        async with asyncio.TaskGroup() as group:
            manager = Manager(configured(*self.flags, *flags), self.world())
            running = group.create_task(manager.run())
            await asyncio.sleep(seconds)
            running.cancel()

    @asynccontextmanager
    async def looked_at(
        self, *flags: str, may: frozenset[str] = frozenset()
    ) -> AsyncGenerator[ManagerContext]:
        async with read_only_context(
            configured(*self.flags, *flags), self.world(), may=may
        ) as context:
            yield context

    async def plan(self, scope: Scope = EVERYTHING, *flags: str) -> Plan:
        async with self.looked_at(*flags) as context:
            return await Planner(context).plan(scope)

    def writes(self) -> Sequence[str]:
        return [
            f"{request.method} {request.path}"
            for _, request in self.kube.requests
            if request.method != "GET"
        ]


@asynccontextmanager
async def scene(*names: str, kube: Kube | None = None) -> AsyncGenerator[Scene]:
    """With machines and their new nodes of these names."""
    kube = kube or Kube()
    cloud = LocalCloud(CloudContext(clock=LoopClock(), chance=Random(1)))
    async with manager_context(Cloud(name="fake"), kube=kube) as context:
        made = Scene(kube, context.clients.main("user"), cloud)
        await made.add_nodes(*names)
        yield made
