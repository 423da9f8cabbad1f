"""Operations on balancers and their listeners, members, addresses and health."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import ClassVar

from msgspec.structs import replace as changed

from pileus.cloud.balancer import Transport
from pileus.cloud.errors import Conflict, NotFound, Rejected, Unsupported
from pileus_lab.local.model.machines import machine_as_of
from pileus_lab.local.model.records import (
    Balancer,
    Machine,
    Mark,
    Member,
    Outline,
    Page,
    Port,
    Power,
    Record,
    Traffic,
)
from pileus_lab.local.model.state import (
    Moment,
    Request,
    Settings,
    State,
    check_requested,
    family_of,
    give,
    hold_quota,
    identified,
    with_item,
    without,
)

LISTENER = "listener "


class MemberHealth(Record, frozen=True):
    balancer: str
    member: str
    """Name of the member; `listener …` for a listener that cannot listen."""
    problem: str = ""
    """Empty: healthy."""


class ListHealth(Request, frozen=True):
    NAME: ClassVar[str] = "balancers.health"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[object] = Page[MemberHealth]

    def step(self, state: State, moment: Moment) -> tuple[State, Page[MemberHealth]]:
        told = (
            MemberHealth(
                balancer=balancer.id,
                member=member.name,
                problem=_problem(state, balancer, member, moment),
            )
            for balancer in state.balancers.values()
            for member in balancer.members
        )
        return state, Page(items=(*told, *_listeners(state, moment)))


def _listeners(state: State, moment: Moment) -> Iterator[MemberHealth]:
    for (balancer, name), problem in (moment.health or {}).items():
        if balancer in state.balancers and name.startswith(LISTENER):
            yield MemberHealth(balancer=balancer, member=name, problem=problem)


def listener_problems(moment: Moment) -> Mapping[str, str]:
    """Returns why balancers cannot listen, by ID; balancers without problems are left out."""
    told: dict[str, list[str]] = {}
    for (balancer, name), problem in (moment.health or {}).items():
        if name.startswith(LISTENER) and problem:
            told.setdefault(balancer, []).append(f"{name}: {problem}")
    return {balancer: "; ".join(sorted(problems)) for balancer, problems in told.items()}


def _problem(state: State, balancer: Balancer, member: Member, moment: Moment) -> str:
    if moment.health is not None:
        return moment.health.get((balancer.id, member.name), "not checked yet")
    machine = machine_of(state, member)
    if machine is None:
        return "no such instance"
    power = machine_as_of(machine, moment.now).power
    if power is not Power.RUNNING:
        return f"instance is {power}"
    probe = balancer.traffic.probe
    return "answers 503" if probe and probe.node_port in machine.failing_ports else ""


def machine_of(state: State, member: Member) -> Machine | None:
    """By ID if the member has one: names are reused."""
    if member.machine:
        return state.machines.get(member.machine)
    return state.machine_named(member.name)


HIGHEST_PORT = 65535


def balancer_as_of(balancer: Balancer, now: float, problem: str = "") -> Balancer:
    is_busy = now < balancer.busy_until
    return changed(balancer, is_busy=is_busy, problem=problem or _failure(balancer, now))


def _failure(balancer: Balancer, now: float) -> str:
    """Why its last change failed; empty until the change ends."""
    return "" if now < balancer.busy_until else balancer.doomed


class CreateBalancer(Request, frozen=True):
    """Creates a balancer with all its parts. Returns the existing one with that mark unchanged."""

    NAME: ClassVar[str] = "balancers.create"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Balancer

    name: str
    mark: Mark = Mark()
    ports: tuple[Port, ...] = ()
    members: tuple[Member, ...] = ()
    traffic: Traffic = Traffic()
    families: tuple[str, ...] = ("IPv4",)
    requested: str = ""
    fingerprint: str = ""

    def step(self, state: State, moment: Moment) -> tuple[State, Balancer]:
        made = [one for one in state.balancers.values() if one.mark == self.mark]
        if made and self.mark != Mark():
            return state, balancer_as_of(made[0], moment.now)
        hold_quota("balancers", len(state.balancers) + 1, state.quota.balancers)
        state, identity = identified(state, "lb", moment)
        balancer = Balancer(
            id=identity,
            name=self.name,
            mark=self.mark,
            addresses=(),
            ports=checked_ports(self.ports),
            members=_sorted_members(self.members),
            traffic=checked_traffic(self.traffic),
            fingerprint=self.fingerprint,
        )
        balancer = _addressed(state, balancer, self.families, self.requested, moment)
        return _put(state, balancer, moment)


class DeleteBalancer(Request, frozen=True):
    """Deletes a balancer with all its parts. Deleting a missing one succeeds."""

    NAME: ClassVar[str] = "balancers.delete"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[object] = None

    balancer: str

    def step(self, state: State, moment: Moment) -> tuple[State, None]:
        if self.balancer in state.balancers:
            _idle(state, self.balancer, moment)
        return replace(state, balancers=without(state.balancers, self.balancer)), None


class PutPort(Request, frozen=True):
    """Adds a listener, or changes the node port of an existing one."""

    NAME: ClassVar[str] = "balancers.put_port"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Balancer

    balancer: str
    port: Port
    fingerprint: str | None = None

    def step(self, state: State, moment: Moment) -> tuple[State, Balancer]:
        balancer = _idle(state, self.balancer, moment)
        others = (one for one in balancer.ports if one.key != self.port.key)
        balancer = changed(balancer, ports=checked_ports((*others, self.port)))
        for address in balancer.addresses:
            _check_free(state, balancer, address, moment.settings)
        return _put(state, balancer, moment, self.fingerprint)


class RemovePort(Request, frozen=True):
    NAME: ClassVar[str] = "balancers.remove_port"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Balancer

    balancer: str
    port: int
    transport: Transport = Transport.TCP
    fingerprint: str | None = None

    def step(self, state: State, moment: Moment) -> tuple[State, Balancer]:
        balancer = _idle(state, self.balancer, moment)
        gone = (self.port, self.transport)
        ports = tuple(one for one in balancer.ports if one.key != gone)
        return _put(state, changed(balancer, ports=ports), moment, self.fingerprint)


class AddMembers(Request, frozen=True):
    """Adds members; an existing member gets the machine that is named now."""

    NAME: ClassVar[str] = "balancers.add_members"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Balancer

    balancer: str
    members: tuple[Member, ...]
    fingerprint: str | None = None

    def step(self, state: State, moment: Moment) -> tuple[State, Balancer]:
        balancer = _idle(state, self.balancer, moment)
        members = _sorted_members((*balancer.members, *self.members))
        return _put(state, changed(balancer, members=members), moment, self.fingerprint)


class RemoveMembers(Request, frozen=True):
    NAME: ClassVar[str] = "balancers.remove_members"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Balancer

    balancer: str
    names: tuple[str, ...]
    fingerprint: str | None = None

    def step(self, state: State, moment: Moment) -> tuple[State, Balancer]:
        balancer = _idle(state, self.balancer, moment)
        members = tuple(one for one in balancer.members if one.name not in self.names)
        return _put(state, changed(balancer, members=members), moment, self.fingerprint)


class SetTraffic(Request, frozen=True):
    NAME: ClassVar[str] = "balancers.set_traffic"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Balancer

    balancer: str
    traffic: Traffic
    fingerprint: str | None = None

    def step(self, state: State, moment: Moment) -> tuple[State, Balancer]:
        balancer = _idle(state, self.balancer, moment)
        balancer = changed(balancer, traffic=checked_traffic(self.traffic))
        return _put(state, balancer, moment, self.fingerprint)


class Readdress(Request, frozen=True):
    """Assigns one address per family; addresses that fit stay."""

    NAME: ClassVar[str] = "balancers.readdress"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Balancer

    balancer: str
    families: tuple[str, ...] = ("IPv4",)
    requested: str = ""
    fingerprint: str | None = None

    def step(self, state: State, moment: Moment) -> tuple[State, Balancer]:
        balancer = _idle(state, self.balancer, moment)
        balancer = _addressed(state, balancer, self.families, self.requested, moment)
        return _put(state, balancer, moment, self.fingerprint)


class StampBalancer(Request, frozen=True):
    """Records the fingerprint of the desired state that the balancer matches; no other change."""

    NAME: ClassVar[str] = "balancers.stamp"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Balancer

    balancer: str
    fingerprint: str

    def step(self, state: State, moment: Moment) -> tuple[State, Balancer]:
        balancer = _idle(state, self.balancer, moment)
        return _put(state, balancer, moment, self.fingerprint)


class ClaimBalancer(Request, frozen=True):
    """Changes the mark of a balancer if it still has the observed one."""

    NAME: ClassVar[str] = "balancers.claim"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Balancer

    balancer: str
    mark: Mark
    was: Mark = Mark()

    def step(self, state: State, moment: Moment) -> tuple[State, Balancer]:
        balancer = _idle(state, self.balancer, moment)
        if balancer.mark not in {self.mark, self.was}:
            raise Conflict(f"balancer {balancer.id} was adopted by another owner; observe again")
        if any(one.mark == self.mark and one is not balancer for one in state.balancers.values()):
            raise Conflict(f"{self.mark.owner} already has a balancer; observe again")
        return _put(state, changed(balancer, mark=self.mark), moment, "")


class ListBalancers(Request, frozen=True):
    NAME: ClassVar[str] = "balancers.list"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[object] = Page[Balancer]

    fresh: bool = True
    ids: tuple[str, ...] | None = None
    """IDs to list; None: all."""

    def step(self, state: State, moment: Moment) -> tuple[State, Page[Balancer]]:
        asked = state.balancers if self.ids is None else self.ids
        known = (state.balancers[identity] for identity in asked if identity in state.balancers)
        problems = listener_problems(moment)
        return state, Page(
            items=tuple(balancer_as_of(one, moment.now, problems.get(one.id, "")) for one in known)
        )


class OutlineBalancers(Request, frozen=True):
    """Lists all balancers without their parts: the answer stays short with many members."""

    NAME: ClassVar[str] = "balancers.list_outlines"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[object] = Page[Outline]

    fresh: bool = True

    def step(self, state: State, moment: Moment) -> tuple[State, Page[Outline]]:
        problems = listener_problems(moment)
        outlines = (
            Outline(
                id=one.id,
                name=one.name,
                mark=one.mark,
                addresses=one.addresses,
                members=len(one.members),
                fingerprint=one.fingerprint,
                is_busy=moment.now < one.busy_until,
                problem=problems.get(one.id, "") or _failure(one, moment.now),
            )
            for one in state.balancers.values()
        )
        return state, Page(items=tuple(outlines))


def _idle(state: State, identity: str, moment: Moment) -> Balancer:
    balancer = state.balancers.get(identity)
    if balancer is None:
        raise NotFound(f"no balancer {identity}")
    if moment.now < balancer.busy_until:
        left = balancer.busy_until - moment.now
        raise Conflict(f"balancer {identity} is busy for another {left:.1f} s")
    return balancer


def _put(
    state: State, balancer: Balancer, moment: Moment, fingerprint: str | None = None
) -> tuple[State, Balancer]:
    """Stores the balancer with that fingerprint; None keeps the one it has (manual changes)."""
    others = (one for one in state.balancers.values() if one.id != balancer.id)
    listeners = sum(len(one.ports) for one in others) + len(balancer.ports)
    hold_quota("listeners", listeners, state.quota.listeners)
    before = state.balancers.get(balancer.id)
    balancer = changed(balancer, doomed="")
    if moment.doom:
        balancer, fingerprint = changed(before or balancer, doomed=moment.doom), ""
    if balancer != before or moment.doom:
        balancer = changed(balancer, busy_until=moment.now + moment.settings.settle_seconds)
    if fingerprint is not None:
        balancer = changed(balancer, fingerprint=fingerprint)
    if balancer != before:
        state = replace(state, balancers=with_item(state.balancers, balancer.id, balancer))
    return state, balancer_as_of(balancer, moment.now)


def _addressed(
    state: State, balancer: Balancer, families: tuple[str, ...], requested: str, moment: Moment
) -> Balancer:
    settings = moment.settings
    pools = {"IPv4": settings.balancer_pool, "IPv6": settings.balancer_pool_v6}
    if not families or not set(families) <= set(pools):
        given = ", ".join(families) or "neither"
        raise Rejected(f"a balancer is IPv4, IPv6 or both, not {given}")
    asked = check_requested(requested, tuple(pools.values())) if requested else ""
    if asked and family_of(asked) not in families:
        raise Rejected(f"{asked} is not an address of {' or '.join(families)}")
    addresses: list[str] = []
    for family in families:
        kept = [ip for ip in balancer.addresses if family_of(ip) == family]
        if asked and family_of(asked) == family:
            kept = [asked]
        address = kept[0] if kept else _give(state, pools[family])
        _check_free(state, balancer, address, settings)
        addresses.append(address)
    return changed(balancer, addresses=tuple(addresses), requested=asked)


def _give(state: State, pool: str) -> str:
    taken = {ip for one in state.balancers.values() for ip in one.addresses}
    if ip_network(pool).num_addresses == 1:
        return give(pool, 0, lambda _: True)
    return give(pool, state.serial - 1, lambda address: address not in taken)


def _check_free(state: State, balancer: Balancer, address: str, settings: Settings) -> None:
    """Balancers share an address, each with ports of its own, only if it is the pool's only one.

    Raises `Rejected` without the name of the other balancer, which may be of someone else.
    """
    pools = map(ip_network, (settings.balancer_pool, settings.balancer_pool_v6))
    is_shared = any(one.num_addresses == 1 and ip_address(address) in one for one in pools)
    wanted = {port.key for port in balancer.ports}
    for other in state.balancers.values():
        if other.id == balancer.id or address not in other.addresses:
            continue
        if not is_shared:
            raise Rejected(f"{address} is taken by another balancer; choose another address")
        if twice := sorted(str(port) for port in other.ports if port.key in wanted):
            raise Rejected(
                f"{address} port {', '.join(twice)} is taken by another balancer; choose another "
                "port or address"
            )


def _sorted_members(members: Iterable[Member]) -> tuple[Member, ...]:
    by_name = {member.name: member for member in members}
    return tuple(by_name[name] for name in sorted(by_name))


def checked_ports(ports: tuple[Port, ...]) -> tuple[Port, ...]:
    """Returns the ports in order. Raises `Rejected` or `Unsupported`."""
    for port in ports:
        if port.transport is Transport.SCTP:
            raise Unsupported(f"port {port}: the local cloud carries TCP and UDP only")
        if not (0 < port.port <= HIGHEST_PORT and 0 < port.node_port <= HIGHEST_PORT):
            raise Rejected(f"port {port} to {port.node_port}: ports are from 1 to {HIGHEST_PORT}")
    if len({port.key for port in ports}) < len(ports):
        raise Rejected(f"a port is given twice: {', '.join(map(str, ports))}")
    return tuple(sorted(ports, key=lambda port: port.key))


def checked_traffic(traffic: Traffic) -> Traffic:
    """Returns the traffic settings in canonical form. Raises `Rejected`."""
    try:
        sources = sorted({str(ip_network(source, strict=False)) for source in traffic.sources})
    except ValueError as error:
        raise Rejected(f"source ranges: {error}") from error
    if traffic.drain_seconds < 0 or (traffic.sticky_seconds or 1) < 1:
        raise Rejected("times for draining and affinity cannot be negative")
    return changed(traffic, sources=tuple(sources))
