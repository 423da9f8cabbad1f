"""Clouds of machines and routes in memory, with providers in the modern shape."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from pileus.cloud.abilities import Abilities
from pileus.cloud.errors import CloudError, Rejected, Unavailable
from pileus.cloud.model import (
    Absent,
    Found,
    Instance,
    InstanceId,
    InstanceState,
    NodeName,
    NodeRef,
    Route,
)
from pileus.testing.conformance.harness import RoutesHarness


@dataclass
class Machines:
    machines: dict[str, InstanceState] = field(default_factory=dict)
    is_broken: bool = False


class MachineInstances:
    def __init__(self, cloud: Machines) -> None:
        self.cloud = cloud

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        await asyncio.sleep(0.01)
        if self.cloud.is_broken:
            raise Unavailable("the cloud is down")
        return {node.name: self.answer(node.name) for node in nodes}

    def answer(self, name: NodeName) -> Found:
        state = self.cloud.machines.get(name)
        if state is None:
            return Absent(f"no machine is called {name}")
        return Instance(id=InstanceId(name), provider_id=f"mem://{name}", state=state)


@dataclass
class MachinesHarness:
    provider: type[MachineInstances] = MachineInstances
    cloud: Machines = field(default_factory=Machines)

    @asynccontextmanager
    async def connect(self):
        yield self.provider(self.cloud)

    def add(self, name: str) -> NodeRef:
        self.cloud.machines[name] = InstanceState.RUNNING
        return NodeRef(name=NodeName(name))

    def remove(self, name: str) -> None:
        del self.cloud.machines[name]

    def stop(self, name: str) -> None:
        self.cloud.machines[name] = InstanceState.STOPPED

    @contextmanager
    def broken(self):
        self.cloud.is_broken = True
        yield
        self.cloud.is_broken = False


class RouteTable:
    def __init__(self, table: dict[str, Route], rejected: set[str]) -> None:
        self.table = table
        self.rejected = rejected

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        return list(self.table.values())

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        errors = self.errors(routes)
        self.table |= {route.destination: route for route in routes if route not in errors}
        return errors

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        errors = self.errors(routes)
        for route in routes:
            if route not in errors:
                self.table.pop(route.destination, None)
        return errors

    def errors(self, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        return {route: Rejected("no") for route in routes if route.destination in self.rejected}


@dataclass
class RouteTableHarness(RoutesHarness):
    provider: type[RouteTable] = RouteTable
    table: dict[str, Route] = field(default_factory=dict)
    rejected: set[str] = field(default_factory=set)
    abilities: Abilities = field(default_factory=Abilities)

    @asynccontextmanager
    async def connect(self):
        yield self.provider(self.table, self.rejected)

    def add_foreign(self, destination: str) -> None:
        self.table[destination] = Route(destination=destination, target=None)

    def reject(self, destination: str) -> None:
        self.rejected.add(destination)
