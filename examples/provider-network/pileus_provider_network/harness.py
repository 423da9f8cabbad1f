"""The cloud as the conformance laws fill, break and inspect it: complete harnesses to copy from.

    class TestBalancers(BalancersLaws):
        def make(self):
            return NetworkBalancersHarness()

What a harness reports comes from the account, not from the provider.
"""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import cast

from pileus.cloud.abilities import DEFAULT_AFFINITY_SECONDS, Abilities
from pileus.cloud.balancer import BalancerSpec, Owner, Wish
from pileus.cloud.errors import Rejected, Unavailable
from pileus.cloud.model import NodeName, NodeRef
from pileus.testing.conformance.harness import (
    CRASH,
    BalancersHarness,
    Built,
    InstancesHarness,
    RoutesHarness,
)
from pileus_provider_network.balancers import NetworkBalancers
from pileus_provider_network.client import Client
from pileus_provider_network.connect import ABILITIES
from pileus_provider_network.instances import NetworkInstances, provider_id
from pileus_provider_network.model import (
    TABLES,
    Account,
    CreateBalancer,
    CreateRoute,
    DeleteBalancer,
    DeleteRoute,
    LoadBalancer,
    Machine,
    ModifyBalancer,
    ModifyTargetGroup,
    Operation,
    Page,
    RunInstance,
    SetPower,
    Tags,
    TargetGroup,
    TerminateInstance,
)
from pileus_provider_network.plan import host_name, owner_of
from pileus_provider_network.routes import NetworkRoutes
from pileus_provider_network.simulated import FurnishBalancer, RemoveTarget

PROVISIONING = 4.0
"""Seconds; one passes with every request."""


@dataclass
class BreakableApi:
    """The cloud, with a clock of its own, and a process that may die at each request."""

    account: Account = field(default_factory=Account)
    now: float = 0.0
    chance: Callable[[], bool] = lambda: False
    error: BaseException = CRASH
    overlooks: Callable[[], bool] = lambda: False
    refused: set[str] = field(default_factory=set[str])
    """Destinations of routes that the cloud refuses."""

    def do(self, operation: Operation) -> object:
        """What others do in the cloud."""
        self.account, answer = operation.step(self.account, self.now)
        return answer

    async def call(self, operation: Operation) -> object:
        """What the provider under test does."""
        self._perhaps()
        self.now += 1
        if isinstance(operation, CreateBalancer):
            operation = replace(operation, seconds=PROVISIONING)
        if getattr(operation, "destination", "") in self.refused:
            raise Rejected("the cloud refuses this route")
        answer = self.do(operation)
        self._perhaps()
        if isinstance(answer, Page) and self.overlooks():
            return replace(cast("Page[object]", answer), items=())
        return cast("object", answer)

    def _perhaps(self) -> None:
        if self.chance():
            raise self.error

    def machine(self, name: str) -> Machine:
        """Returns the instance of that name, which is started if there is none."""
        found = next((one for one in self.account.machines.values() if one.name == name), None)
        if found is None:
            self.do(RunInstance(name))
            return self.machine(name)
        return found


@dataclass
class NetworkInstancesHarness(InstancesHarness):
    api: BreakableApi = field(default_factory=BreakableApi)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[NetworkInstances]:
        yield NetworkInstances(Client(self.api))

    def add(self, name: str) -> NodeRef:
        self.api.machine(name)
        return NodeRef(name=NodeName(name))

    def remove(self, name: str) -> None:
        self.api.do(TerminateInstance(self.api.machine(name).id))

    def stop(self, name: str) -> None:
        self.api.do(SetPower(self.api.machine(name).id, is_running=False))

    @contextmanager
    def broken(self) -> Generator[None]:
        self.api.chance, self.api.error = lambda: True, Unavailable("the cloud is down")
        yield
        self.api.chance = lambda: False


@dataclass
class NetworkBalancersHarness(BalancersHarness):
    provider: type[NetworkBalancers] = NetworkBalancers
    api: BreakableApi = field(default_factory=BreakableApi)
    abilities: Abilities = ABILITIES
    finds_leftovers: bool = True
    keeps_fingerprints: bool = True
    machines: dict[str, str] = field(default_factory=dict[str, str])
    """IDs of the members' instances, also of terminated ones, by name."""

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[NetworkBalancers]:
        yield self.provider(Client(self.api))

    def wish(self, owner: Owner, spec: BalancerSpec | None) -> Wish:
        return Wish(owner=owner, spec=spec)

    def member(self, name: str) -> NodeRef:
        if name not in self.machines:
            self.machines[name] = self.api.machine(name).id
        return NodeRef(name=NodeName(name), provider_id=provider_id(self.machines[name]))

    def delete_machine(self, name: str) -> bool:
        self.api.do(TerminateInstance(self.machines[name]))
        return True

    def crash_when(self, chance: Callable[[], bool], error: BaseException = CRASH) -> None:
        self.api.chance, self.api.error = chance, error

    def overlook_when(self, chance: Callable[[], bool]) -> bool:
        self.api.overlooks = chance
        return True

    def vandalise(self, owner: Owner) -> None:
        for one in list(self.api.account.balancers.values()):
            if owner_of(one.tags) == owner:
                self.api.do(DeleteBalancer(one.id))

    def tamper(self, owner: Owner) -> bool:
        for one in self.api.account.balancers.values():
            if owner_of(one.tags) == owner:
                self.api.do(RemoveTarget(one.id, self.machines["a"]))
                self.api.do(ModifyBalancer(one.id, sources=frozenset({"198.51.100.0/24"})))
                return True
        return False

    def furnish(self, name: str, mark: Owner | None) -> str | None:
        tags = Tags(mark.cluster, mark.uid) if mark else Tags()
        made = self.api.do(FurnishBalancer(f"{name}-{self.api.account.made}", tags, 1, 30001))
        return str(made)

    def unmark(self, owner: Owner) -> bool:
        account = self.api.account
        for one in list(account.balancers.values()):
            if owner_of(one.tags) == owner:
                self.api.do(ModifyBalancer(one.id, tags=Tags()))
        for one in list(account.groups.values()):
            if owner_of(one.tags) == owner:
                self.api.do(ModifyTargetGroup(one.id, Tags(), one.is_sticky, one.health_port))
        return True

    def built(self) -> Mapping[Owner, Built]:
        return {
            owner_of(one.tags) or Owner("", one.id): self._built(one)
            for one in self.api.account.balancers.values()
        }

    def _built(self, balancer: LoadBalancer) -> Built:
        account = self.api.account
        listeners = [one for one in account.listeners.values() if one.balancer == balancer.id]
        groups = [account.groups[one.group] for one in listeners]
        return Built(
            ports=frozenset(one.port.port for one in listeners),
            members=self._members(groups),
            sticky_seconds=_stickiness(groups),
            source_ranges=balancer.sources,
            families=balancer.families,
            address=host_name(balancer),
        )

    def _members(self, groups: list[TargetGroup]) -> frozenset[str]:
        """Nodes to which every port leads."""
        names = {machine: name for name, machine in self.machines.items()}
        targets = [one.targets for one in groups]
        common = reduce(lambda one, other: one & other, targets) if targets else frozenset[str]()
        return frozenset(names[each] for each in common)

    def strays(self) -> int:
        """Unmarked balancers, marks that are there twice, and groups whose balancer is gone."""
        account = self.api.account
        marks = [owner_of(one.tags) for one in account.balancers.values()]
        used = {one.group for one in account.listeners.values()}
        return len(marks) - len({*marks} - {None}) + len(account.groups.keys() - used)


def _stickiness(groups: list[TargetGroup]) -> int | None:
    """Half of the groups being sticky is neither on nor off."""
    found = {one.is_sticky for one in groups}
    if found == {True}:
        return DEFAULT_AFFINITY_SECONDS
    return -1 if len(found) > 1 else None


@dataclass
class NetworkRoutesHarness(RoutesHarness):
    provider: type[NetworkRoutes] = NetworkRoutes
    api: BreakableApi = field(default_factory=BreakableApi)
    abilities: Abilities = ABILITIES

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[NetworkRoutes]:
        yield self.provider(Client(self.api))

    def node(self, name: str) -> NodeRef:
        machine = self.api.machine(name)
        return NodeRef(name=NodeName(name), provider_id=provider_id(machine.id))

    def add_foreign(self, destination: str) -> None:
        for table in TABLES:
            self.api.do(CreateRoute(table, destination, self.api.machine("other").id))

    def reject(self, destination: str) -> None:
        self.api.refused.add(destination)

    def remove_from_one_table(self, destination: str) -> bool:
        machine = dict(self.api.account.tables[TABLES[1]])[destination]
        self.api.do(DeleteRoute(TABLES[1], destination, machine))
        return True
