"""The local cloud for the simulation: its pure model, and the provider `local`."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import ClassVar, Generic, TypeVar, cast

from msgspec.structs import replace as changed

from pileus.cloud.balancer import Owner
from pileus.cloud.interface import Cloud
from pileus_lab.local import capabilities
from pileus_lab.local.api import provider_id
from pileus_lab.local.capabilities import STATES, addresses_of
from pileus_lab.local.connect import cloud_of
from pileus_lab.local.model import account, balancers, machines, records, routes, volumes
from pileus_lab.local.model.records import Mark, Page, Power
from pileus_lab.local.model.state import Moment as LocalMoment
from pileus_lab.local.model.state import Operation, Request, Settings, State, family_of
from pileus_lab.simulation.clouds import deeds
from pileus_lab.simulation.clouds.deeds import BalancerDeed, CloudDeed, MachineDeed, RouteDeed
from pileus_lab.simulation.clouds.interface import Api, Asked, Moment
from pileus_lab.simulation.clouds.truth import (
    Balancer,
    Key,
    Machine,
    Port,
    Route,
    Traffic,
    Truth,
    Volume,
)

R = TypeVar("R")
T = TypeVar("T")


class SimulatedLocal:
    """Its speed is drawn."""

    impossible_address = "203.0.113.9"
    gives_free_addresses = True
    shares_by = ""
    annotations: Sequence[tuple[str, str]] = (
        ("local.pileus/drain-seconds", "5"),
        ("local.pileus/drain-secnds", "5"),
        ("local.pileus/drain-seconds", "a while"),
    )

    def __init__(self, chance: Random) -> None:
        self._settings = Settings(
            boot_seconds=chance.choice((0.0, 3.0)),
            settle_seconds=chance.choice((0.0, 0.0, 4.0)),
            balancer_pool_v6="fd78::/64",
        )
        self._lax = replace(self._settings, shares_volumes=True, deletes_attached=True)
        self._machines = _Machines()
        self._balancers = _Kept(_balancer)
        self._routes = _Kept(_route)
        self._keys = _Kept(_key)
        self._volumes = _Kept(_volume)

    @asynccontextmanager
    async def connect(self, api: Api) -> AsyncGenerator[Cloud]:
        yield await cloud_of(api)

    def start(self) -> State:
        return State()

    def step(
        self, state: State, operation: Operation[object], moment: Moment
    ) -> tuple[State, object]:
        settings = self._lax if moment.is_lax else self._settings
        if moment.at_work:
            settings = replace(settings, settle_seconds=settings.settle_seconds + moment.at_work)
        given = LocalMoment(moment.now, moment.chance, settings, doom=moment.doom)
        after, answer = operation.step(state, given)
        return after, _shuffled(answer) if moment.is_shuffled else answer

    def asked(self, operation: Operation[object]) -> Asked:
        return Asked(operation.NAME, operation.WRITES)

    def items(self, answer: object) -> Sequence[object] | None:
        return cast("Page[object]", answer).items if isinstance(answer, Page) else None

    def page(self, answer: object, items: Sequence[object], *, is_whole: bool) -> object:
        return changed(cast("Page[object]", answer), items=tuple(items), is_complete=is_whole)

    def operation(self, state: State, deed: CloudDeed) -> Operation[object] | None:  # noqa: ARG002
        match deed:
            case deeds.AddRoute() | deeds.DeleteRoute():
                return _to_route(deed)
            case deeds.AddKey(user, public_key, comment):
                return account.AddKey(user=user, public_key=f"{public_key} {comment}")
            case deeds.DeleteVolume(volume):
                return volumes.DeleteVolume(volume=volume)
            case (
                deeds.AddMachine()
                | deeds.DeleteMachine()
                | deeds.StopMachine()
                | deeds.StartMachine()
            ):
                return _to_machine(deed, self._settings.zones[0])
            case deeds.StrangeDeed():
                return None
            case _:
                return _to_balancer(deed)

    def truth(self, state: State, now: float) -> Truth:
        machines = self._machines.at(state.machines, now)
        balancers = self._balancers.of(state.balancers)
        routes = self._routes.of(state.routes)
        keys = self._keys.of(state.keys)
        disks = self._volumes.of(state.volumes)
        return Truth(
            machines=machines, balancers=balancers, routes=routes, keys=keys, volumes=disks
        )


class _Machines:
    """The machines as `truth`, cached until one of them changes or starts to run."""

    def __init__(self) -> None:
        self._source: Mapping[str, records.Machine] = {}
        self._until = float("inf")
        self._made: tuple[Machine, ...] = ()

    def at(self, source: Mapping[str, records.Machine], now: float) -> tuple[Machine, ...]:
        if source is not self._source or now >= self._until:
            booting = (one.ready_at for one in source.values() if one.power is Power.PENDING)
            self._source = source
            self._until = min((at for at in booting if at > now), default=float("inf"))
            self._made = tuple(
                _machine(machines.machine_as_of(one, now)) for one in source.values()
            )
        return self._made


class _Kept(Generic[R, T]):
    """Records as `truth`, each cached until it changes."""

    def __init__(self, translate: Callable[[R], T]) -> None:
        self._translate = translate
        self._source: Mapping[str, R] = {}
        self._made: Mapping[str, T] = {}

    def of(self, source: Mapping[str, R]) -> Mapping[str, T]:
        if source is not self._source:
            self._made = {key: self._one(key, record) for key, record in source.items()}
            self._source = source
        return self._made

    def _one(self, key: str, record: R) -> T:
        is_same = self._source.get(key) is record
        return self._made[key] if is_same else self._translate(record)


def _shuffled(answer: object) -> object:
    """Returns a list of machines with their addresses in another order; other answers unchanged."""
    if not isinstance(answer, Page):
        return answer
    page = cast("Page[object]", answer)
    return changed(page, items=tuple(_reversed(one) for one in page.items))


def _reversed(item: object) -> object:
    if not isinstance(item, records.Machine):
        return item
    return changed(item, internal=item.internal[::-1], external=item.external[::-1])


def _machine(machine: records.Machine) -> Machine:
    return Machine(
        id=machine.id,
        provider_id=provider_id(machine.id),
        name=machine.name,
        uuid=machine.uuid,
        state=STATES[machine.power],
        type=machine.type,
        zone=machine.zone,
        addresses=addresses_of(machine),
    )


def _balancer(balancer: records.Balancer) -> Balancer:
    mark = balancer.mark
    return Balancer(
        id=balancer.id,
        owner=Owner(mark.cluster, mark.owner) if mark != Mark() else None,
        addresses=balancer.addresses,
        ports=frozenset(Port(one.port, one.node_port, one.transport) for one in balancer.ports),
        members=frozenset(one.name for one in balancer.members),
        machines=frozenset(one.machine for one in balancer.members if one.machine),
        source_ranges=frozenset(balancer.traffic.sources),
        families=frozenset(map(family_of, balancer.addresses)),
        traffic=Traffic(
            affinity_seconds=balancer.traffic.sticky_seconds,
            health_port=balancer.traffic.probe.node_port if balancer.traffic.probe else None,
        ),
        is_noted=bool(balancer.fingerprint),
        record=balancer,
    )


def _route(route: records.Route) -> Route:
    there = route.destination
    return Route(
        id=there, destination=there, target=route.target, cluster=route.cluster, record=route
    )


def _key(key: records.Key) -> Key:
    algorithm, body, *comment = key.public_key.split()
    prefix = capabilities.mark("")
    marks = [one.removeprefix(prefix) for one in comment if one.startswith(prefix)]
    return Key(key.user, f"{algorithm} {body}", marks[0] if marks else None)


def _volume(volume: records.Volume) -> Volume:
    mark = volume.mark
    return Volume(
        id=volume.id,
        owner=Owner(mark.cluster, mark.owner) if mark != Mark() else None,
        size_gib=volume.size_gib,
        machine=volume.machine,
        zone=volume.zone,
        machines=frozenset(volume.machines),
    )


class Disown(Request, frozen=True):
    """Another manager made the balancer: it has no mark, and nothing is recorded about it."""

    NAME: ClassVar[str] = "balancers.disown"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = object

    balancer: str

    def step(self, state: State, moment: LocalMoment) -> tuple[State, object]:
        del moment
        found = state.balancers.get(self.balancer)
        if found is None:
            return state, None
        unmarked = changed(found, mark=Mark(), fingerprint="")
        return replace(state, balancers={**state.balancers, found.id: unmarked}), None


def _to_route(deed: RouteDeed) -> Operation[object]:
    match deed:
        case deeds.AddRoute(there, target, cluster):
            return routes.CreateRoute(destination=there, target=target, cluster=cluster)
        case deeds.DeleteRoute(route):
            cluster = route.cluster or ""
            return routes.DeleteRoute(destination=route.destination, cluster=cluster)


def _to_machine(deed: MachineDeed, zone: str) -> Operation[object]:
    """`zone`: that of volumes."""
    match deed:
        case deeds.AddMachine(name, external, uuid, ipv6, near):
            return machines.CreateMachine(
                name=name, external=external, uuid=uuid, ipv6=ipv6, zone=zone if near else ""
            )
        case deeds.DeleteMachine(machine):
            return machines.DeleteMachine(machine=machine)
        case deeds.StopMachine(machine):
            return machines.StopMachine(machine=machine)
        case deeds.StartMachine(machine):
            return machines.StartMachine(machine=machine)


def _to_balancer(deed: BalancerDeed) -> Operation[object]:
    match deed:
        case deeds.AddBalancer():
            owner = deed.owner
            return balancers.CreateBalancer(
                name=deed.name,
                mark=Mark(cluster=owner.cluster, owner=owner.uid) if owner else Mark(),
                ports=(records.Port(port=deed.port, node_port=deed.node_port),),
                members=(records.Member(name=deed.member),),
            )
        case deeds.DeleteBalancer(balancer):
            return balancers.DeleteBalancer(balancer=balancer)
        case deeds.AddPort(balancer, port, node_port):
            added = records.Port(port=port, node_port=node_port)
            return balancers.PutPort(balancer=balancer, port=added)
        case deeds.RemoveMember(balancer, member):
            return balancers.RemoveMembers(balancer=balancer, names=(member,))
        case deeds.DisownBalancer(balancer):
            return Disown(balancer=balancer)
