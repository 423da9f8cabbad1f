"""The local cloud keeps the laws that every provider has to keep."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import cast

from msgspec.structs import replace as changed

from pileus.cloud.balancer import BalancerSpec, Owner, Wish
from pileus.cloud.interface import Cloud
from pileus.cloud.model import InstanceId, NodeName, NodeRef, SshKey
from pileus.cloud.volume import ZONE_LABEL, VolumeId, Volumes
from pileus.testing.conformance.balancers import BalancersLaws
from pileus.testing.conformance.harness import CRASH, BalancersHarness, Built, RoutesHarness
from pileus.testing.conformance.instances import InstancesLaws
from pileus.testing.conformance.routes import RoutesLaws
from pileus.testing.conformance.snapshots import SnapshotsLaws
from pileus.testing.conformance.ssh_keys import SshKeysLaws
from pileus.testing.conformance.volumes import VolumesLaws
from pileus.testing.virtual_time import VirtualTimeLoop
from pileus_lab.local.capabilities import LocalBalancers, LocalInstances, LocalRoutes, LocalSshKeys
from pileus_lab.local.cloud import Behaviour, LocalCloud
from pileus_lab.local.connect import ABILITIES, cloud_of
from pileus_lab.local.model.account import AddFault, AddKey, ListKeys, RemoveFault
from pileus_lab.local.model.balancers import (
    ClaimBalancer,
    CreateBalancer,
    DeleteBalancer,
    RemoveMembers,
    SetTraffic,
)
from pileus_lab.local.model.machines import CreateMachine, DeleteMachine, StopMachine
from pileus_lab.local.model.records import FaultKind, Mark, Page, Port, Traffic
from pileus_lab.local.model.routes import CreateRoute
from pileus_lab.local.model.snapshots import ListSnapshots
from pileus_lab.local.model.state import A, Operation, Settings, family_of
from pileus_lab.local.model.volumes import CreateVolume, ListVolumes
from tests.unit.providers.local.clouds import Hands, local_cloud

CLUSTERS = ("our-cluster", "their-cluster")


class Doors:
    """A cloud that the laws may furnish from outside of the event loop."""

    def __init__(self, cloud: LocalCloud) -> None:
        self.cloud = cloud

    def do(self, operation: Operation[A]) -> A:
        return self.cloud._perform(operation, 0.0)


class Machines(Doors):
    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[LocalInstances]:
        cloud = await cloud_of(self.cloud)
        assert isinstance(cloud.instances, LocalInstances)
        yield cloud.instances

    def add(self, name: str) -> NodeRef:
        self.do(CreateMachine(name=name))
        return NodeRef(name=NodeName(name))

    def remove(self, name: str) -> None:
        self.do(DeleteMachine(machine=name))

    def stop(self, name: str) -> None:
        self.do(StopMachine(machine=name))

    @contextmanager
    def broken(self) -> Generator[None]:
        fault = self.do(AddFault(kind=FaultKind.ERROR))
        yield
        self.do(RemoveFault(fault=fault.id))


class TestInstances(InstancesLaws):
    def new_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualTimeLoop()

    def make(self) -> Machines:
        return Machines(local_cloud())


class TestInstancesOfASlowCloudWithOldAnswers(TestInstances):
    def make(self) -> Machines:
        behaviour = Behaviour(lag_seconds=30, latency_seconds=0.5)
        return Machines(local_cloud(behaviour=behaviour))


class Crashing:
    """The API of a cloud, called by a process that may die before or after each request."""

    def __init__(self, cloud: LocalCloud) -> None:
        self.cloud = cloud
        self.dies: Callable[[], bool] = lambda: False
        self.error: BaseException = CRASH
        self.overlooks: Callable[[], bool] = lambda: False

    async def call(self, operation: Operation[A]) -> A:
        self._perhaps()
        answer = await self.cloud.call(operation)
        self._perhaps()
        if isinstance(answer, Page) and self.overlooks():
            return cast("A", changed(cast("Page[object]", answer), items=()))
        return answer

    def _perhaps(self) -> None:
        if self.dies():
            raise self.error


class Balancers(Doors, BalancersHarness):
    finds_leftovers = True
    keeps_fingerprints = True
    abilities = ABILITIES

    def __init__(self, clock: Hands, settings: Settings) -> None:
        super().__init__(local_cloud(clock, settings=settings))
        self._clock = clock
        self._api = Crashing(self.cloud)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[LocalBalancers]:
        yield Impatient(self._api, self._clock)

    def wish(self, owner: Owner, spec: BalancerSpec | None) -> Wish:
        return Wish(owner=owner, spec=spec)

    def member(self, name: str) -> NodeRef:
        return NodeRef(name=NodeName(name), provider_id=f"local://{name}")

    def crash_when(self, chance: Callable[[], bool], error: BaseException = CRASH) -> None:
        self._api.dies, self._api.error = chance, error

    def overlook_when(self, chance: Callable[[], bool]) -> bool:
        self._api.overlooks = chance
        return True

    def vandalise(self, owner: Owner) -> None:
        self._clock.forward(60)
        for one in list(self.cloud.state.balancers.values()):
            if (one.mark.cluster, one.mark.owner) == (owner.cluster, owner.uid):
                self.do(DeleteBalancer(balancer=one.id))

    def tamper(self, owner: Owner) -> bool:
        self._clock.forward(60)
        (ours,) = (
            one for one in self.cloud.state.balancers.values() if one.mark.owner == owner.uid
        )
        self.do(RemoveMembers(balancer=ours.id, names=("a",)))
        self._clock.forward(60)
        self.do(SetTraffic(balancer=ours.id, traffic=Traffic(sticky_seconds=7)))
        self._clock.forward(60)
        return True

    def furnish(self, name: str, mark: Owner | None) -> str | None:
        whose = Mark(cluster=mark.cluster, owner=mark.uid) if mark else Mark()
        made = self.do(CreateBalancer(name=name, mark=whose, ports=(Port(port=1, node_port=9),)))
        self._clock.forward(60)
        return made.id

    def unmark(self, owner: Owner) -> bool:
        (ours,) = (
            one for one in self.cloud.state.balancers.values() if one.mark.owner == owner.uid
        )
        self.do(ClaimBalancer(balancer=ours.id, mark=Mark(), was=ours.mark))
        self._clock.forward(60)
        return True

    def built(self) -> Mapping[Owner, Built]:
        return {
            Owner(one.mark.cluster, one.mark.owner): Built(
                frozenset(port.port for port in one.ports),
                frozenset(member.name for member in one.members),
                one.traffic.sticky_seconds,
                frozenset(one.traffic.sources),
                frozenset(map(family_of, one.addresses)),
                address=one.addresses[0],
            )
            for one in self.cloud.state.balancers.values()
        }

    def strays(self) -> int:
        standing = self.cloud.state.balancers.values()
        known = {one.mark for one in standing if one.mark.cluster in CLUSTERS}
        return len(standing) - len(known)


class Impatient(LocalBalancers):
    """Time passes with each look."""

    def __init__(self, api: Crashing, clock: Hands) -> None:
        super().__init__(api)
        object.__setattr__(self, "_clock", clock)

    async def observe(self, wishes, *, deep):
        self._clock.forward(1.5)  # type: ignore[attr-defined]
        return await super().observe(wishes, deep=deep)


class TestBalancers(BalancersLaws):
    settings = Settings()

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualTimeLoop()

    def make(self) -> Balancers:
        return Balancers(Hands(), self.settings)


class TestBalancersThatAreBusyAfterEachChange(TestBalancers):
    settings = Settings(settle_seconds=2)


class Table(Doors, RoutesHarness):
    abilities = ABILITIES

    def __init__(self) -> None:
        super().__init__(local_cloud())
        for name in ("n1", "n2", "other"):
            self.do(CreateMachine(name=name))

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[LocalRoutes]:
        cloud: Cloud = await cloud_of(self.cloud)
        assert isinstance(cloud.routes, LocalRoutes)
        yield cloud.routes

    def add_foreign(self, destination: str) -> None:
        self.do(CreateRoute(destination=destination, target="other", cluster="theirs"))

    def reject(self, destination: str) -> None:
        assert destination == "10.1.0.0/24"
        self.do(DeleteMachine(machine="n1"))  # its target


class TestRoutes(RoutesLaws):
    def new_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualTimeLoop()

    def make(self) -> Table:
        return Table()


class Keys(Doors):
    can_tell = True

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[LocalSshKeys]:
        yield LocalSshKeys(self.cloud)

    def add_machine(self, name: str) -> NodeRef:
        self.do(CreateMachine(name=name))
        return NodeRef(name=NodeName(name))

    def add_by_hand(self, key: SshKey) -> None:
        self.do(AddKey(user=key.user, public_key=f"{key.public_key} someone@somewhere"))

    def accepted(self, name: str) -> frozenset[SshKey]:
        keys = self.do(ListKeys()).items
        return frozenset(SshKey(key.user, " ".join(key.public_key.split()[:2])) for key in keys)


class TestSshKeys(SshKeysLaws):
    def new_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualTimeLoop()

    def make(self) -> Keys:
        return Keys(local_cloud())


class Disks(Doors):
    abilities = ABILITIES
    other_topology: Mapping[str, str] | None = MappingProxyType({ZONE_LABEL: "local-1b"})
    countable = 8
    spacious = 10_000

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Volumes]:
        cloud = await cloud_of(self.cloud)
        assert cloud.volumes
        yield cloud.volumes

    def add_machine(self, name: str) -> InstanceId:
        return InstanceId(self.do(CreateMachine(name=name, zone="local-1a")).id)

    def add_unmarked(self, name: str) -> VolumeId | None:
        return VolumeId(self.do(CreateVolume(name=name, size_gib=10)).id)

    def built(self) -> Mapping[VolumeId, Owner | None]:
        return {
            VolumeId(one.id): Owner(one.mark.cluster, one.mark.owner) if one.mark.owner else None
            for one in self.do(ListVolumes()).items
        }

    def snapshots(self) -> int:
        return len(self.do(ListSnapshots()).items)

    @contextmanager
    def broken(self) -> Generator[None]:
        fault = self.do(AddFault(kind=FaultKind.ERROR))
        yield
        self.do(RemoveFault(fault=fault.id))


class TestVolumes(VolumesLaws):
    def new_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualTimeLoop()

    def make(self) -> Disks:
        return Disks(local_cloud())


class TestSnapshots(SnapshotsLaws):
    def new_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualTimeLoop()

    def make(self) -> Disks:
        return Disks(local_cloud())
