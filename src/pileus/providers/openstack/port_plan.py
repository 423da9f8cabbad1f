"""What has to be changed of the listeners, pools, members and monitors of a load balancer. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import cast

from pileus.cloud.balancer import Effect, Part, family_of, no_client_admitted
from pileus.cloud.errors import Misconfigured
from pileus.cloud.fingerprint import usual_address, usual_network
from pileus.dataclass import dataclass, replace
from pileus.providers.openstack import octavia
from pileus.providers.openstack.balancer_seen import Parts
from pileus.providers.openstack.balancer_steps import (
    Change,
    CreateMember,
    CreatePart,
    DeleteMember,
    DeletePart,
    Foreseen,
    SetMembers,
    UpdatePart,
)
from pileus.providers.openstack.desired import Desired
from pileus.providers.openstack.draining import Draining, drained, is_draining, returned
from pileus.providers.openstack.marks import CLUSTER, SERVICE
from pileus.providers.openstack.ownership import (
    is_mine,
    services_of,
    transport_of,
)
from pileus.providers.openstack.ports import Body, Member, Monitor, Port

NEVER = Draining()
Key = tuple[int, str]
"""Port and transport: unique among the listeners of a load balancer."""


@dataclass(frozen=True)
class PortPlan:
    """Compares the desired ports with the parts of a load balancer."""

    desired: Desired
    balancer: octavia.LoadBalancer
    parts: Parts
    subnet_id: str
    """Of new members."""
    is_serial: bool = False
    """Whether members are written one by one."""
    draining: Draining = NEVER

    @cached_property
    def _listeners(self) -> Mapping[Key, octavia.Listener]:
        return {key_of(one): one for one in self.parts.listeners}

    def changes(self) -> Iterator[Change]:
        """Raises `Misconfigured` if a port is used by another Service."""
        self.check_ports()
        listeners = self._listeners
        for port in self.desired.ports:
            listener = listeners.get((port.port, port.transport.value))
            yield from self._port(self._admitting(port), listener)
        wanted = self.desired.by_port
        for key, listener in sorted(listeners.items()):
            if key not in wanted and self._is_mine(listener):
                yield from deletion_of(listener, self.parts)
        yield from self._unused_pools()

    def has_other_listeners(self) -> bool:
        """Whether a listener has other settings than it should have, or is missing."""
        listeners = self._listeners
        for port in map(self._admitting, self.desired.ports):
            listener = listeners.get((port.port, port.transport.value))
            if listener is None or listener.protocol != port.protocol:
                return True
            if any(_listener_changes(port, listener)):
                return True
        return False

    def members(self, *, also_of_others: bool) -> Iterator[Change]:
        """Yields the changes of members alone, also on a load balancer without our mark.

        `also_of_others`: whether the Service may fill pools that are not its own.
        """
        listeners = self._listeners
        for port in self.desired.ports:
            listener = listeners.get((port.port, port.transport.value))
            if listener is not None and not also_of_others and not self._is_mine(listener):
                continue
            pool = self.parts.pool_of(listener) if listener else None
            if pool is not None and pool.protocol == port.pool_protocol:
                yield from self._members(port, pool)

    def check_ports(self) -> None:
        """Raises `Misconfigured` if a port is used by a listener that is not this Service's.

        HTTP and TERMINATED_HTTPS listeners occupy the TCP port, too. The author of the Service
        learns nothing about the listener.
        """
        listeners = self._listeners
        for port in self.desired.ports:
            other = listeners.get((port.port, port.transport.value))
            if other is not None and not self._is_mine(other):
                raise Misconfigured(
                    f"port {port.label} is already used on the load balancer by something else, "
                    "such as another Service. Fix: use another port, or another load balancer"
                )

    def _admitting(self, port: Port) -> Port:
        """Returns the port without source ranges of an IP family that the load balancer lacks.

        Octavia refuses them. The load balancer may be older than the second family of the Service.
        """
        if "allowed_cidrs" not in port.settings or self._admitted is None:
            return port
        return replace(port, settings={**port.settings, "allowed_cidrs": self._admitted})

    @cached_property
    def _admitted(self) -> list[str] | None:
        """Returns the source ranges that are left, the same for all ports; None: all."""
        context, present = self.desired.context, families_of(self.balancer)
        families = tuple(one for one in self.desired.families if one in present)
        kept = [one for one in context.allowed_cidrs if family_of(one) in families]
        if not families or len(kept) == len(context.allowed_cidrs):
            return None
        if not kept:
            raise no_client_admitted(replace(context.spec, families=families))
        return kept

    def _is_mine(self, listener: octavia.Listener) -> bool:
        return is_mine(listener, self.balancer, self.desired.name, self.desired.owner)

    def _port(self, port: Port, listener: octavia.Listener | None) -> Iterator[Change]:
        if listener is None:
            body = {**port.listener_body(), "loadbalancer_id": self.balancer.id}
            yield Change(Effect.CREATE, f"port {port.label}", CreatePart("listener", body))
            yield from self._foreseen(port)
            return
        pool = self.parts.pool_of(listener)
        if listener.protocol != port.protocol:
            step = DeletePart("pool", pool.id) if pool else DeletePart("listener", listener.id)
            what = f"listener protocol {listener.protocol} to {port.protocol}"
            yield Change(Effect.REPLACE, f"port {port.label}: {what}", step)
            yield Change(Effect.CREATE, f"port {port.label}", Foreseen())
            yield from self._foreseen(port)
            return
        yield from _listener_changes(port, listener)
        yield from self._pool(port, listener, pool)

    def _foreseen(self, port: Port, *, has_pool: bool = False) -> Iterator[Change]:
        """Yields what is created of a port after its listener, or after its pool.

        Members are no `Part.MEMBERS` here: without the pool they cannot be added alone.
        """
        label, foreseen = f"of port {port.label}", Foreseen()
        if not has_pool:
            yield Change(Effect.CREATE, f"pool {label}", foreseen)
        if self.is_serial:
            for member in port.members:
                yield Change(Effect.CREATE, f"member {member.name} {label}", foreseen)
        elif port.members:
            summary = f"members {label}: {len(port.members)} added"
            yield Change(Effect.UPDATE, summary, foreseen)
        if port.monitor is not None:
            yield Change(Effect.CREATE, f"health monitor {label}", foreseen)

    def _pool(
        self, port: Port, listener: octavia.Listener, pool: octavia.Pool | None
    ) -> Iterator[Change]:
        if pool is None:
            body = {**port.pool_body(), "listener_id": listener.id}
            yield Change(Effect.CREATE, f"pool of port {port.label}", CreatePart("pool", body))
            yield from self._foreseen(port, has_pool=True)
            return
        if pool.protocol != port.pool_protocol:
            what = f"protocol {pool.protocol} to {port.pool_protocol}"
            summary = f"pool of port {port.label}: {what}"
            yield Change(Effect.REPLACE, summary, DeletePart("pool", pool.id))
            yield from self._foreseen(port)
            return
        yield from _pool_changes(port, pool)
        yield from self._members(port, pool)
        monitor = self.parts.monitors.get(pool.healthmonitor_id or "")
        yield from _monitor_changes(port, pool, monitor)

    def _members(self, port: Port, pool: octavia.Pool) -> Iterator[Change]:
        current = {_key(one.address, one.protocol_port): one for one in self._current(pool)}
        wanted = {_key(one.address, one.protocol_port): one for one in port.members}
        for one in _kept(port, current.values()):
            wanted.setdefault(_key(one.address, one.protocol_port), one)
        if self.draining.grace > 0 and _has_to_wait(port, wanted):
            return
        changed = [key for key in wanted if key in current and _differs(wanted[key], current[key])]
        added, gone = wanted.keys() - current.keys(), current.keys() - wanted.keys()
        if self.is_serial:
            yield from self._one_by_one(port, pool, current, wanted)
            return
        kept = {key for key in gone if self.draining.left(current[key]) > 0}
        started = [key for key in kept if not is_draining(current[key])]
        if not added and not changed and not started and gone == kept:
            return
        bodies = (
            *(self._member(wanted[key], current.get(key)) for key in sorted(wanted)),
            *(drained(current[key]) for key in sorted(kept)),
        )
        counts = _counts(added, gone - kept, changed, started)
        summary = f"members of port {port.label}: {counts}"
        step = SetMembers(pool.id, bodies, bool(changed or started))
        yield Change(Effect.UPDATE, summary, step, Part.MEMBERS)

    def _current(self, pool: octavia.Pool) -> tuple[octavia.Member, ...]:
        return self.parts.members.get(pool.id, ())

    def _member(self, member: Member, current: octavia.Member | None) -> Body:
        """A batch resets what it does not name: a weight that an administrator set is kept."""
        if current is None:
            return member.body(self.subnet_id)
        kept: Body = {"monitor_port": member.monitor_port, **returned(current)}
        return {**member.body(current.subnet_id or ""), **kept}

    def _one_by_one(
        self,
        port: Port,
        pool: octavia.Pool,
        current: Mapping[Key, octavia.Member],
        wanted: Mapping[Key, Member],
    ) -> Iterator[Change]:
        """Members join before others leave. A changed one is removed and created again."""
        label = f"of port {port.label}"
        for key, member in sorted(wanted.items()):
            if key not in current:
                step = CreateMember(pool.id, member.body(self.subnet_id))
                yield Change(Effect.CREATE, f"member {member.name} {label}", step, Part.MEMBERS)
        for key, old in sorted(current.items(), key=lambda one: one[0]):
            if key not in wanted or _differs(wanted[key], old):
                gone = DeleteMember(pool.id, old.id)
                yield Change(Effect.DELETE, f"member {old.name} {label}", gone, Part.MEMBERS)

    def _unused_pools(self) -> Iterator[Change]:
        """Pools of this Service that no listener uses are left from a crash."""
        for pool in self.parts.pools:
            if not pool.listeners and self.desired.owner.uid in services_of(pool.tags):
                yield Change(Effect.DELETE, f"unused pool {pool.id}", DeletePart("pool", pool.id))


def has_other_listeners(
    desired: Desired, balancer: octavia.LoadBalancer, listeners: tuple[octavia.Listener, ...]
) -> bool:
    """Whether settings of listeners differ from the desired ones, without reading other parts."""
    return PortPlan(desired, balancer, Parts(listeners), "").has_other_listeners()


def _kept(port: Port, current: Iterable[octavia.Member]) -> Iterator[Member]:
    """Yields members whose node has no address now, with the address that they have."""
    unaddressed = {one.name: one for one in port.unaddressed}
    for one in current:
        if one.name in unaddressed:
            yield replace(unaddressed[one.name], address=one.address)


def _has_to_wait(port: Port, wanted: Mapping[Key, Member]) -> bool:
    """Whether members that leave have to serve until one that joins has an address."""
    return not wanted and bool(port.unaddressed)


def families_of(balancer: octavia.LoadBalancer) -> frozenset[str]:
    """Returns the IP families of its addresses; empty if it has none yet."""
    vips = (balancer.vip_address or "", *(one.ip_address for one in balancer.additional_vips))
    return frozenset(map(family_of, filter(None, vips)))


def key_of(listener: octavia.Listener) -> Key:
    return listener.protocol_port, transport_of(listener.protocol)


def deletion_of(listener: octavia.Listener, parts: Parts) -> Iterator[Change]:
    """Yields what deletes a listener: its pool first, which deletes members and monitor."""
    label = f"port {listener.protocol_port}/{transport_of(listener.protocol)}"
    pool = parts.pool_of(listener)
    if pool is not None:
        yield Change(Effect.DELETE, f"pool of {label}", DeletePart("pool", pool.id))
    yield Change(Effect.DELETE, label, DeletePart("listener", listener.id))


def marked(tags: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Returns the tags with our mark: those of others stay, stale marks are replaced."""
    needed = tuple(wanted)
    kept = [tag for tag in tags if not tag.startswith((CLUSTER, SERVICE)) and tag not in needed]
    return [*kept, *needed]


def _listener_changes(port: Port, listener: octavia.Listener) -> Iterator[Change]:
    body: Body = {
        name: value
        for name, value in port.settings.items()
        if not _is_same(name, getattr(listener, name), value, is_open=port.is_open)
    }
    yield from _update("listener", listener.id, f"listener of port {port.label}", body)
    yield from _marking("listener", listener, port.tags, f"listener of port {port.label}")


def _pool_changes(port: Port, pool: octavia.Pool) -> Iterator[Change]:
    body: Body = {}
    if pool.lb_algorithm != port.algorithm:
        body["lb_algorithm"] = port.algorithm
    current = pool.session_persistence.type if pool.session_persistence else None
    if current != ("SOURCE_IP" if port.is_sticky else None):
        body["session_persistence"] = port.persistence
    yield from _update("pool", pool.id, f"pool of port {port.label}", body)
    yield from _marking("pool", pool, port.tags[1:], f"pool of port {port.label}")


def _marking(
    kind: str, found: octavia.Listener | octavia.Pool, wanted: tuple[str, ...], what: str
) -> Iterator[Change]:
    """Yields the change that adds our mark, if it is missing, and changes nothing else."""
    if not frozenset(wanted) <= frozenset(found.tags):
        step = UpdatePart(kind, found.id, {"tags": marked(found.tags, wanted)})
        yield Change(Effect.UPDATE, f"tags of {what}", step)


def _update(kind: str, id_: str, what: str, body: Body) -> Iterator[Change]:
    if body:
        names = ", ".join(sorted(body))
        yield Change(Effect.UPDATE, f"{what}: {names}", UpdatePart(kind, id_, body))


def _monitor_changes(
    port: Port, pool: octavia.Pool, found: octavia.HealthMonitor | None
) -> Iterator[Change]:
    what = f"health monitor of port {port.label}"
    wanted = port.monitor
    if found is None:
        if wanted is not None and not pool.healthmonitor_id:
            step = CreatePart("healthmonitor", {**wanted.body(), "pool_id": pool.id})
            yield Change(Effect.CREATE, what, step)
        return
    if wanted is None:
        yield Change(Effect.DELETE, what, DeletePart("healthmonitor", found.id))
    elif wanted.type != found.type:
        summary = f"{what}: type {found.type} to {wanted.type}"
        yield Change(Effect.REPLACE, summary, DeletePart("healthmonitor", found.id))
        yield Change(Effect.CREATE, what, Foreseen())
    else:
        yield from _update("healthmonitor", found.id, what, _monitor_body(wanted, found))


def _monitor_body(wanted: Monitor, found: octavia.HealthMonitor) -> Body:
    settings = wanted.settings()
    return {name: value for name, value in settings.items() if getattr(found, name) != value}


def _is_same(name: str, current: object, wanted: object, *, is_open: bool) -> bool:
    match name:
        case "allowed_cidrs" if is_open and not current:
            return True
        case "allowed_cidrs":
            return _ranges(current) == _ranges(wanted)
        case "insert_headers":
            return (current or {}) == wanted
        case _:
            return current == wanted


def _ranges(value: object) -> frozenset[str]:
    return frozenset(usual_network(one) for one in cast("Iterable[str]", value or ()))


def _key(address: str, port: int) -> Key:
    return port, usual_address(address)


def _differs(wanted: Member, found: octavia.Member) -> bool:
    is_other = (wanted.name, wanted.monitor_port) != (found.name or "", found.monitor_port)
    return is_other or is_draining(found)


def _counts(*groups: Iterable[object]) -> str:
    counts = (len(list(one)) for one in groups)
    named = zip(counts, ("added", "removed", "changed", "drained"), strict=True)
    return ", ".join(f"{count} {what}" for count, what in named if count)
