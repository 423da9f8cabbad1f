"""What a network load balancer lacks, decided without I/O.

    balancer ──listener per port──▶ target group ──▶ instances

A port has a target group of its own, because the node port of a group cannot be changed. Groups
carry the same mark as the balancer: they outlive it, and are found by the mark.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pileus.cloud.balancer import (
    Balancer,
    BalancerSpec,
    BalancerState,
    Effect,
    Ingress,
    Owner,
    Part,
    Wish,
    foreign_refused,
)
from pileus.cloud.errors import Misconfigured
from pileus.cloud.fingerprint import digest
from pileus_provider_network.instances import instance_id
from pileus_provider_network.model import Listener, LoadBalancer, Port, Tags, TargetGroup


def mark_of(owner: Owner) -> Tags:
    return Tags(owner.cluster, owner.uid)


def host_name(balancer: LoadBalancer) -> str:
    return f"{balancer.id}.network.example"


def owner_of(tags: Tags) -> Owner | None:
    return Owner(tags.cluster, tags.owner) if tags.cluster or tags.owner else None


@dataclass(frozen=True, slots=True)
class Seen:
    """All that one decision needs."""

    owner: Owner
    found: LoadBalancer | None = None
    """The owner's."""
    named: LoadBalancer | None = None
    """The one that the user names, while the owner has none."""
    groups: tuple[TargetGroup, ...] = ()
    """With the owner's mark, or used by a listener."""
    listeners: tuple[Listener, ...] | None = None
    """None: not read, because the fingerprint says that nothing has to be changed."""
    machines: frozenset[str] = frozenset()
    """IDs of all instances."""

    @property
    def subject(self) -> LoadBalancer | None:
        return self.found or self.named

    @property
    def balancer(self) -> Balancer | None:
        one = self.subject
        if one is None:
            return None
        return Balancer(
            id=one.id,
            state=BalancerState.READY if one.is_ready else BalancerState.PROVISIONING,
            ingress=(Ingress(hostname=host_name(one)),),
            members=max((len(group.targets) for group in self.groups), default=0),
            owner=owner_of(one.tags),
        )

    def claimed(self) -> "Seen":
        """Returns the state after the load balancer that the user names got the owner's mark."""
        mark = mark_of(self.owner)
        return replace(self, groups=tuple(replace(one, tags=mark) for one in self.groups))

    def group(self, id_: str) -> TargetGroup | None:
        return next((one for one in self.groups if one.id == id_), None)

    def with_group(self, group: TargetGroup) -> "Seen":
        others = tuple(one for one in self.groups if one.id != group.id)
        return replace(self, groups=(*others, group))

    def without_group(self, id_: str) -> "Seen":
        return replace(self, groups=tuple(one for one in self.groups if one.id != id_))

    def with_listener(self, listener: Listener) -> "Seen":
        others = self.without_listener(listener.port).listeners or ()
        return replace(self, listeners=(*others, listener))

    def without_listener(self, port: Port) -> "Seen":
        left = tuple(one for one in self.listeners or () if one.port != port)
        return replace(self, listeners=left)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The desired load balancer, in the cloud's own terms."""

    owner: Owner
    sources: frozenset[str]
    families: frozenset[str]
    is_sticky: bool
    health_port: int | None
    ports: Mapping[Port, int]
    """The node port of each."""
    members: frozenset[str]
    """IDs of all members' instances, also of missing ones."""
    targets: frozenset[str]
    """Those of them that exist."""

    def group_name(self, port: Port) -> str:
        """A name of its own for each node port: target groups of one name are one group."""
        facts = (self.owner.cluster, self.owner.uid, port.port, port.transport, self.ports[port])
        return f"k8s-{digest(*facts)}"


def wanted_of(wish: Wish, spec: BalancerSpec, machines: frozenset[str]) -> Wanted:
    return Wanted(
        owner=wish.owner,
        sources=spec.source_ranges,
        families=frozenset(spec.families),
        is_sticky=spec.sticky_seconds is not None,
        health_port=spec.health.node_port if spec.health else None,
        ports={Port(one.port, one.transport): one.node_port for one in spec.listeners},
        members=_members(spec),
        targets=_members(spec) & machines,
    )


def _members(spec: BalancerSpec) -> frozenset[str]:
    return frozenset(instance_id(node) for node in spec.members)


def is_current(wish: Wish, tags: Tags, machines: frozenset[str]) -> bool:
    """Whether the fingerprint says that nothing has to be changed.

    Members without an instance are left out. As soon as such an instance is found, the fingerprint
    does not count any more, and the load balancer is updated.
    """
    return tags.fingerprint == wish.fingerprint and not tags.missing & machines


@dataclass(frozen=True, slots=True)
class Create:
    name: str
    sources: frozenset[str]
    families: frozenset[str]


@dataclass(frozen=True, slots=True)
class Claim:
    balancer: str


@dataclass(frozen=True, slots=True)
class SetSources:
    sources: frozenset[str]


@dataclass(frozen=True, slots=True)
class SetFamilies:
    families: frozenset[str]


@dataclass(frozen=True, slots=True)
class PutPort:
    port: Port
    group: TargetGroup
    """The desired state; its ID is known once it exists."""
    members: frozenset[str]
    """IDs of all members' instances: those that are targets already stay, also if a list of
    instances lacks them."""


@dataclass(frozen=True, slots=True)
class SetGroup:
    group: TargetGroup


@dataclass(frozen=True, slots=True)
class SetTargets:
    group: str
    targets: frozenset[str]


@dataclass(frozen=True, slots=True)
class RemovePort:
    port: Port


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    group: str


@dataclass(frozen=True, slots=True)
class Delete:
    balancer: str


@dataclass(frozen=True, slots=True)
class Stamp:
    fingerprint: str = ""
    missing: frozenset[str] = frozenset()


Repair = SetSources | SetFamilies | PutPort | SetGroup | SetTargets | RemovePort
Step = Create | Claim | Repair | RemoveGroup | Delete | Stamp


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a plan."""

    effect: Effect
    summary: str
    step: Step
    part: Part = Part.WHOLE


def changes(wish: Wish, seen: Seen) -> tuple[Change, ...]:
    if wish.spec is None:
        return (*_deletion(seen),)
    if seen.found is not None and seen.listeners is None:
        return ()
    if wish.spec.requested_address:
        raise Misconfigured(
            "loadBalancerIP: this cloud chooses the address of each load balancer. Fix: remove "
            "spec.loadBalancerIP from the Service"
        )
    bare = sorted(one.port for one in wish.spec.listeners if not one.node_port)
    if bare:
        raise Misconfigured(
            f"port {bare[0]} has no node port, which this cloud needs. Fix: set "
            "spec.allocateLoadBalancerNodePorts of the Service to true"
        )
    wanted = wanted_of(wish, wish.spec, seen.machines)
    if seen.found is None:
        return _adoption(wish, wanted, seen) if wish.adopts else (_creation(wish, wanted),)
    repairs = (*_repairs(wanted, seen),)
    if repairs or is_current(wish, seen.found.tags, seen.machines):
        return repairs
    stamp = Stamp(wish.fingerprint, _members(wish.spec) - seen.machines)
    return (Change(Effect.UPDATE, f"fingerprint of {seen.found.id}", stamp, Part.RECORD),)


def _creation(wish: Wish, wanted: Wanted) -> Change:
    name = f"k8s-{digest(wish.owner.cluster, wish.owner.uid)}"
    summary = f"network load balancer for {wish.name or wish.owner.uid}"
    return Change(Effect.CREATE, summary, Create(name, wanted.sources, wanted.families))


def _adoption(wish: Wish, wanted: Wanted, seen: Seen) -> tuple[Change, ...]:
    named = seen.named
    if not wish.may_use_foreign:
        raise foreign_refused(wish)
    if named is None:
        raise Misconfigured(f"there is no network load balancer {wish.adopts} to adopt")
    if named.tags.cluster not in {"", wish.owner.cluster}:
        raise Misconfigured(f"{named.id} belongs to cluster {named.tags.cluster}")
    claim = Change(Effect.UPDATE, f"owner of {named.id}", Claim(named.id))
    return claim, *_repairs(wanted, seen.claimed())


def _deletion(seen: Seen) -> Iterator[Change]:
    if seen.found is not None:
        summary = f"network load balancer {seen.found.id}"
        yield Change(Effect.DELETE, summary, Delete(seen.found.id))
    for group in seen.groups:
        if owner_of(group.tags) == seen.owner:
            yield _unused(group)


def _unused(group: TargetGroup) -> Change:
    return Change(Effect.DELETE, f"target group {group.id}", RemoveGroup(group.id))


def _repairs(wanted: Wanted, seen: Seen) -> Iterator[Change]:
    subject = seen.subject
    if subject is not None and subject.sources != wanted.sources:
        yield Change(Effect.UPDATE, f"client ranges of {subject.id}", SetSources(wanted.sources))
    if subject is not None and subject.families != wanted.families:
        yield Change(Effect.UPDATE, f"families of {subject.id}", SetFamilies(wanted.families))
    listeners = {one.port: one for one in seen.listeners or ()}
    for port in sorted(wanted.ports):
        yield from _repairs_of(wanted, port, seen, listeners.get(port))
    for port in sorted(listeners.keys() - wanted.ports.keys()):
        yield Change(Effect.DELETE, f"port {port.port}/{port.transport}", RemovePort(port))
    kept = {(one.group, wanted.ports.get(port)) for port, one in listeners.items()}
    planned = {wanted.group_name(port) for port in wanted.ports}
    for group in seen.groups:
        if (group.id, group.port) not in kept and group.name not in planned:
            yield _unused(group)


def _repairs_of(
    wanted: Wanted, port: Port, seen: Seen, listener: Listener | None
) -> Iterator[Change]:
    """Yields what one port needs. The group of a new port has its members before it is used."""
    group = seen.group(listener.group) if listener else None
    named = f"port {port.port}/{port.transport}"
    if group is None or group.port != wanted.ports[port]:
        effect = Effect.CREATE if listener is None else Effect.UPDATE
        yield Change(effect, named, PutPort(port, _group(wanted, port), wanted.members))
        return
    right = replace(
        group,
        tags=mark_of(wanted.owner),
        is_sticky=wanted.is_sticky,
        health_port=wanted.health_port,
    )
    if right != group:
        yield Change(Effect.UPDATE, f"target group of {named}", SetGroup(right))
    # A list of instances may be wrong: what is a target and should be one is never removed.
    targets = wanted.targets | (wanted.members & group.targets)
    if group.targets != targets:
        step = SetTargets(group.id, targets)
        yield Change(Effect.UPDATE, f"members of {named}", step, Part.MEMBERS)


def _group(wanted: Wanted, port: Port) -> TargetGroup:
    return TargetGroup(
        id="",
        name=wanted.group_name(port),
        port=wanted.ports[port],
        tags=mark_of(wanted.owner),
        is_sticky=wanted.is_sticky,
        health_port=wanted.health_port,
        targets=wanted.targets,
    )
