"""The cloud as `pileus simulate` runs it: what others do in it, and what is true of it.

pileus simulate --cloud pileus_provider_network.simulated:SimulatedNetwork
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Generic, TypeVar, cast

from pileus.cloud.abilities import DEFAULT_AFFINITY_SECONDS
from pileus.cloud.balancer import Owner, Transport
from pileus.cloud.errors import Unavailable
from pileus.cloud.interface import Cloud
from pileus.cloud.model import InstanceState
from pileus_lab.simulation.clouds import deeds, truth
from pileus_lab.simulation.clouds.interface import Api, Asked, Moment
from pileus_provider_network.connect import cloud_of
from pileus_provider_network.instances import addresses_of, provider_id
from pileus_provider_network.model import (
    TABLES,
    Account,
    CreateBalancer,
    DeleteBalancer,
    Listener,
    LoadBalancer,
    Machine,
    Operation,
    Page,
    Port,
    RunInstance,
    SetPower,
    Tags,
    TargetGroup,
    TerminateInstance,
)
from pileus_provider_network.plan import owner_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DisownBalancer(Operation):
    """Another manager made the load balancer: neither it nor its target groups have tags."""

    id: str
    NAME: ClassVar[str] = "balancers.disown"

    def step(self, account: Account, now: float) -> tuple[Account, None]:
        del now
        tags = account.balancer(self.id).tags
        for group in account.groups.values():
            if owner_of(group.tags) == owner_of(tags):
                account = account.with_group(replace(group, tags=Tags()))
        return account.with_balancer(replace(account.balancer(self.id), tags=Tags())), None


@dataclass(frozen=True, slots=True)
class FurnishBalancer(Operation):
    """Someone creates a load balancer with one port, in one go. The answer is its ID."""

    name: str
    tags: Tags
    port: int
    node_port: int
    member: str = ""
    """The name of an instance."""
    NAME: ClassVar[str] = "balancers.furnish"

    def step(self, account: Account, now: float) -> tuple[Account, str]:
        del now
        for one in account.balancers.values():
            if one.tags == self.tags and owner_of(one.tags) is not None:
                return account, one.id
        made = account.made + 1
        targets = frozenset(one.id for one in account.machines.values() if one.name == self.member)
        balancer = LoadBalancer(f"nlb-{made:06}", self.name, self.tags)
        group = TargetGroup(
            f"tg-{made:06}", f"of-{balancer.id}", self.node_port, self.tags, targets=targets
        )
        listener = Listener(balancer.id, Port(self.port), group.id)
        account = account.with_balancer(balancer).with_group(group)
        listeners = {**account.listeners, (balancer.id, listener.port): listener}
        return replace(account, made=made, listeners=listeners), balancer.id


@dataclass(frozen=True, slots=True)
class AddPort(Operation):
    """Someone lets a load balancer listen on another port, with the targets that it has."""

    balancer: str
    port: int
    node_port: int
    NAME: ClassVar[str] = "balancers.add_port"

    def step(self, account: Account, now: float) -> tuple[Account, None]:
        del now
        made = account.made + 1
        used = [one.group for one in account.listeners.values() if one.balancer == self.balancer]
        targets = account.groups[used[0]].targets if used else frozenset[str]()
        tags = account.balancers[self.balancer].tags
        mark = Tags(tags.cluster, tags.owner)
        group = TargetGroup(f"tg-{made:06}", f"tg-{made}", self.node_port, mark, targets=targets)
        listener = Listener(self.balancer, Port(self.port), group.id)
        listeners = {**account.listeners, (self.balancer, listener.port): listener}
        return replace(account.with_group(group), made=made, listeners=listeners), None


@dataclass(frozen=True, slots=True)
class RemoveTarget(Operation):
    """Someone removes an instance from all target groups of a load balancer."""

    balancer: str
    machine: str
    NAME: ClassVar[str] = "balancers.remove_target"

    def step(self, account: Account, now: float) -> tuple[Account, None]:
        del now
        used = {one.group for one in account.listeners.values() if one.balancer == self.balancer}
        groups = {
            key: replace(one, targets=one.targets - {self.machine}) if key in used else one
            for key, one in account.groups.items()
        }
        return replace(account, groups=groups), None


@dataclass(frozen=True, slots=True)
class ChangeRoute(Operation):
    """Someone creates or deletes a route in all tables."""

    destination: str
    machine: str
    is_there: bool
    NAME: ClassVar[str] = "routes.change"

    def step(self, account: Account, now: float) -> tuple[Account, None]:
        del now
        entry = {(self.destination, self.machine)}
        taken = {name for name, table in account.tables.items() if self.destination in dict(table)}
        tables = dict(account.tables)
        for name, table in account.tables.items():
            added = table if name in taken else table | entry
            tables[name] = added if self.is_there else table - entry
        return replace(account, tables=tables), None


class Kept(Generic[T]):
    """A value that stays the same object while what it is made from does."""

    def __init__(self) -> None:
        self._sources: tuple[object, ...] = ()
        self._made: T | None = None

    def of(self, make: Callable[[], T], *sources: object) -> T:
        same = len(sources) == len(self._sources) and all(
            one is other for one, other in zip(sources, self._sources, strict=True)
        )
        if self._made is None or not same:
            self._made, self._sources = make(), sources
        return self._made


class SimulatedNetwork:
    impossible_address = ""
    gives_free_addresses = False
    shares_by = ""
    annotations: Sequence[tuple[str, str]] = ()

    def __init__(self, chance: Random) -> None:
        self._seconds = chance.choice((0.0, 5.0, 20.0))
        self._machines = Kept[tuple[truth.Machine, ...]]()
        self._balancers = Kept[Mapping[str, truth.Balancer]]()
        self._known: Mapping[str, truth.Balancer] = {}
        self._last: dict[Owner, str] = {}
        self._routes = Kept[Mapping[str, truth.Route]]()

    @asynccontextmanager
    async def connect(self, api: Api) -> AsyncGenerator[Cloud]:
        yield cloud_of(api)

    def start(self) -> Account:
        return Account()

    def step(self, state: Account, operation: Operation, moment: Moment) -> tuple[Account, object]:
        if isinstance(operation, CreateBalancer):
            operation = replace(operation, seconds=self._seconds + moment.at_work)
        return operation.step(state, moment.now)

    def asked(self, operation: Operation) -> Asked:
        return Asked(operation.NAME, operation.WRITES)

    def items(self, answer: object) -> Sequence[object] | None:
        return cast("Page[object]", answer).items if isinstance(answer, Page) else None

    def page(self, answer: object, items: Sequence[object], *, is_whole: bool) -> object:
        if not is_whole:
            raise Unavailable("the list broke off")
        return replace(cast("Page[object]", answer), items=tuple(items))

    def operation(self, state: Account, deed: deeds.CloudDeed) -> Operation | None:
        match deed:
            case deeds.AddMachine(name, _, uuid):
                return RunInstance(name, uuid)
            case deeds.DeleteMachine(id_):
                return TerminateInstance(id_)
            case deeds.StopMachine(id_) | deeds.StartMachine(id_):
                return SetPower(id_, is_running=isinstance(deed, deeds.StartMachine))
            case deeds.AddRoute() | deeds.DeleteRoute():
                return _to_route(state, deed)
            case deeds.AddKey() | deeds.DeleteVolume() | deeds.StrangeDeed():
                return None
            case _:
                return _to_balancer(state, deed)

    def _kept(self, state: Account) -> Mapping[str, truth.Balancer]:
        """What stays the same stays the same object."""
        before, now = self._known, _balancers(state)
        self._last |= {one.owner: one.id for one in now.values() if one.owner is not None}
        now = {**now, **_remains(state, self._last)}
        self._known = {
            key: before[key] if before.get(key) == one else one for key, one in now.items()
        }
        return self._known

    def truth(self, state: Account, now: float) -> truth.Truth:
        del now
        machines = self._machines.of(lambda: _machines(state), state.machines)
        parts = (state.balancers, state.groups, state.listeners, state.machines)
        return truth.Truth(
            machines=machines,
            balancers=self._balancers.of(lambda: self._kept(state), *parts),
            routes=self._routes.of(lambda: _routes(state), state.tables, state.machines),
        )


def _to_route(state: Account, deed: deeds.RouteDeed) -> Operation | None:
    match deed:
        case deeds.AddRoute(destination, target):
            machine = _named(state, target)
            return ChangeRoute(destination, machine, is_there=True) if machine else None
        case deeds.DeleteRoute(route):
            machine = _named(state, route.target)
            return ChangeRoute(route.destination, machine, is_there=False)


def _to_balancer(state: Account, deed: deeds.BalancerDeed) -> Operation | None:
    match deed:
        case deeds.AddPort(id_) if id_ not in state.balancers:
            return None  # only target groups are left of it
        case deeds.AddBalancer():
            tags = Tags(deed.owner.cluster, deed.owner.uid) if deed.owner else Tags()
            return FurnishBalancer(deed.name, tags, deed.port, deed.node_port, deed.member)
        case deeds.DeleteBalancer(id_):
            return DeleteBalancer(id_)
        case deeds.AddPort(id_, port, node_port):
            return AddPort(id_, port, node_port)
        case deeds.RemoveMember(id_, member):
            return RemoveTarget(id_, _named(state, member))
        case deeds.DisownBalancer(id_):
            return DisownBalancer(id_)


def _named(state: Account, name: str) -> str:
    found = sorted(one.id for one in state.machines.values() if one.name == name)
    return found[-1] if found else ""


def _machines(state: Account) -> tuple[truth.Machine, ...]:
    return tuple(map(_machine, state.machines.values()))


def _machine(machine: Machine) -> truth.Machine:
    return truth.Machine(
        id=machine.id,
        provider_id=provider_id(machine.id),
        name=machine.name,
        uuid=machine.uuid,
        state=InstanceState.RUNNING if machine.is_running else InstanceState.STOPPED,
        type="n1.small",
        zone="zone-a",
        region="region",
        addresses=addresses_of(machine),
    )


def _balancers(state: Account) -> Mapping[str, truth.Balancer]:
    return {one.id: _balancer(state, one) for one in state.balancers.values()}


def _remains(state: Account, last: Mapping[Owner, str]) -> Mapping[str, truth.Balancer]:
    """Returns target groups that outlive the load balancer of their owner, by the ID of that."""
    present = {owner_of(one.tags) for one in state.balancers.values()}
    left: dict[Owner, list[TargetGroup]] = {}
    for group in state.groups.values():
        owner = owner_of(group.tags)
        if owner is not None and owner in last and owner not in present:
            left.setdefault(owner, []).append(group)
    return {
        last[owner]: truth.Balancer.remains(last[owner], owner, tuple(groups))
        for owner, groups in left.items()
    }


def _balancer(state: Account, one: LoadBalancer) -> truth.Balancer:
    listeners = [each for each in state.listeners.values() if each.balancer == one.id]
    groups = [state.groups[each.group] for each in listeners if each.group in state.groups]
    ids = frozenset(target for group in groups for target in group.targets)
    ports = frozenset(
        truth.Port(each.port.port, state.groups[each.group].port, Transport(each.port.transport))
        for each in listeners
    )
    return truth.Balancer(
        id=one.id,
        owner=owner_of(one.tags),
        addresses=(f"{one.id}.network.example",),
        ports=ports,
        members=frozenset(state.machines[each].name for each in ids if each in state.machines),
        machines=ids,
        source_ranges=one.sources,
        families=one.families,
        traffic=_traffic(groups),
        is_noted=bool(one.tags.fingerprint),
        record=(one, tuple(listeners), tuple(groups)),
    )


def _traffic(groups: Sequence[TargetGroup]) -> truth.Traffic:
    """Groups that differ are in no state that anyone asked for."""
    sticky = _one(group.is_sticky for group in groups)
    return truth.Traffic(
        affinity_seconds=DEFAULT_AFFINITY_SECONDS if sticky else None,
        health_port=_one(group.health_port for group in groups),
    )


def _one(values: Iterable[T]) -> T | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _routes(state: Account) -> Mapping[str, truth.Route]:
    """Each route that is in all tables, and what is in some of them, as what it is."""
    names = {one.id: one.name for one in state.machines.values()}
    found: dict[str, truth.Route] = {}
    for destination, machine in sorted({entry for t in state.tables.values() for entry in t}):
        where = [name for name in TABLES if (destination, machine) in state.tables[name]]
        is_whole = len(where) == len(TABLES)
        found[f"{destination} {machine}"] = truth.Route(
            id=f"{destination} {machine}",
            destination=destination,
            target=names.get(machine, machine) if is_whole else f"{machine} in {where}",
            cluster=None,
            record=tuple(where),
        )
    return found
