"""Changes from an observed balancer to its desired state. Pure; each change is one operation."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from msgspec.structs import replace as changed

from pileus.cloud import balancer as contract
from pileus.cloud.balancer import BalancerState, Effect, Ingress, Owner, Part, Wish
from pileus.cloud.errors import Conflict, Misconfigured
from pileus.cloud.fingerprint import usual_address
from pileus.cloud.model import NodeRef
from pileus.fix import quoted
from pileus_lab.local.api import instance_id
from pileus_lab.local.model.balancers import (
    AddMembers,
    ClaimBalancer,
    CreateBalancer,
    DeleteBalancer,
    PutPort,
    Readdress,
    RemoveMembers,
    RemovePort,
    SetTraffic,
    StampBalancer,
    checked_ports,
    checked_traffic,
)
from pileus_lab.local.model.records import (
    Balancer,
    Mark,
    Member,
    Outline,
    Port,
    Probe,
    ProxyHeader,
    Traffic,
)
from pileus_lab.local.model.state import family_of
from pileus_lab.local.options import ANNOTATIONS, DRAIN, PROXY_PROTOCOL

SHOWN = 3
"""How many members a plan line names; for more it shows the number."""

Alteration = PutPort | RemovePort | AddMembers | RemoveMembers | SetTraffic | Readdress
Step = CreateBalancer | DeleteBalancer | ClaimBalancer | StampBalancer | Alteration


@dataclass(frozen=True, slots=True)
class Change:
    effect: Effect
    summary: str
    step: Step
    part: Part = Part.WHOLE
    completes: CreateBalancer | None = None
    """What must exist before this last step may record completion."""


@dataclass(frozen=True, slots=True)
class Seen:
    owner: Owner
    found: Balancer | Outline | None = None
    """The owner's balancer; an outline if its parts were not needed."""
    named: Balancer | Outline | None = None
    """The balancer to adopt, while the owner has none."""

    @property
    def subject(self) -> Balancer | Outline | None:
        return self.found or self.named

    def with_parts(self, read: Mapping[str, Balancer]) -> "Seen":
        return Seen(self.owner, _whole(self.found, read), _whole(self.named, read))

    @property
    def balancer(self) -> contract.Balancer | None:
        found = self.subject
        if found is None:
            return None
        ready = BalancerState.FAILED if found.problem else BalancerState.READY
        return contract.Balancer(
            id=found.id,
            state=BalancerState.PENDING if found.is_busy else ready,
            ingress=tuple(Ingress(ip=address, proxied=True) for address in found.addresses),
            problem=found.problem,
            members=found.members if isinstance(found, Outline) else len(found.members),
            owner=Owner(found.mark.cluster, found.mark.owner) if found.mark != Mark() else None,
        )


def _whole(
    one: Balancer | Outline | None, read: Mapping[str, Balancer]
) -> Balancer | Outline | None:
    return None if one is None else read.get(one.id, one)


def mark_of(owner: Owner) -> Mark:
    return Mark(cluster=owner.cluster, owner=owner.uid)


def seen_of(owner: Owner, balancer: Balancer) -> Seen:
    """The balancer after a step: the owner's, or the one to adopt."""
    is_ours = balancer.mark == mark_of(owner)
    return Seen(owner, balancer) if is_ours else Seen(owner, named=balancer)


def needs_parts(wish: Wish, seen: Seen) -> bool:
    """Whether the outline is not enough to decide."""
    if wish.spec is None:
        return False
    return seen.found is None or seen.found.fingerprint != wish.fingerprint


def changes(wish: Wish, seen: Seen) -> tuple[Change, ...]:
    """Returns the changes that can be made now, in order.

    Raises `Misconfigured`, `Rejected` or `Unsupported` if the desired state is impossible.
    """
    found = seen.found
    if wish.spec is not None and found is None and wish.adopts and not wish.may_use_foreign:
        raise contract.foreign_refused(wish)
    if seen.subject is not None and seen.subject.is_busy:
        return ()
    if wish.spec is None:
        return () if found is None else (_delete(found),)
    if found is None:
        wanted = desired(wish, wish.spec)
        return _adoption(wish, seen.named, wanted) if wish.adopts else (_create(wanted),)
    if wish.adopts not in {"", found.id}:
        raise Misconfigured(
            f"balancer {wish.adopts} cannot be adopted: this Service has {found.id} already; "
            f"use that ID, or remove the annotation"
        )
    if isinstance(found, Outline) and not needs_parts(wish, seen):
        return ()
    return _repaired(_with_parts(found), desired(wish, wish.spec))


def _with_parts(found: Balancer | Outline) -> Balancer:
    if isinstance(found, Outline):
        raise Conflict(f"the parts of balancer {found.id} were not read; observe again")
    return found


def _adoption(
    wish: Wish, named: Balancer | Outline | None, wanted: CreateBalancer
) -> tuple[Change, ...]:
    """Adopts the balancer before any other change, so that it has an owner if a later one fails."""
    if named is None:
        raise Misconfigured(
            f"balancer {wish.adopts} cannot be adopted: there is no balancer with that ID; "
            f"list them with `pileus local balancers list`"
        )
    if named.mark.cluster not in {"", wish.owner.cluster}:
        raise Misconfigured(
            f"balancer {named.id} ({named.name}) cannot be adopted: it belongs to cluster "
            f"{named.mark.cluster}, owner {named.mark.owner}"
        )
    step = ClaimBalancer(balancer=named.id, mark=wanted.mark, was=named.mark)
    whose = f"of {named.mark.owner}" if named.mark != Mark() else "created manually"
    claim = Change(Effect.UPDATE, f"balancer {named.name} ({named.id}), {whose}: adopt it", step)
    repairs = _cleared(_differences(_with_parts(named), wanted))
    return claim, *repairs, _stamp(named.id, wanted)


def _repaired(found: Balancer, wanted: CreateBalancer) -> tuple[Change, ...]:
    """Returns the differences. Only the last change records the fingerprint on the balancer."""
    match tuple(_differences(found, wanted)):
        case ():
            done = found.fingerprint == wanted.fingerprint
            return () if done else (_stamp(found.id, wanted),)
        case (only,):
            return tuple(_fingerprinted([only], wanted.fingerprint))
        case several:
            return *_cleared(several), _stamp(found.id, wanted)


def _cleared(steps: Iterable[Change]) -> Iterator[Change]:
    """Clears the fingerprint first: an interrupted update must be followed by a full check."""
    return _fingerprinted(steps, "")


def _fingerprinted(steps: Iterable[Change], fingerprint: str) -> Iterator[Change]:
    for one in steps:
        if isinstance(one.step, Alteration):
            yield replace(one, step=changed(one.step, fingerprint=fingerprint))


def _stamp(balancer: str, wanted: CreateBalancer) -> Change:
    step = StampBalancer(balancer=balancer, fingerprint=wanted.fingerprint)
    summary = (
        f"balancer {wanted.name}: record that it matches the desired state ({wanted.fingerprint})"
    )
    return Change(Effect.UPDATE, summary, step, Part.RECORD, completes=wanted)


def is_complete(change: Change, seen: Seen) -> bool:
    """Whether every change planned before this one was made; some may be kept back."""
    return (
        change.completes is not None
        and isinstance(seen.found, Balancer)
        and not any(_differences(seen.found, change.completes))
    )


def desired(wish: Wish, spec: contract.BalancerSpec) -> CreateBalancer:
    """Returns the desired balancer in the cloud's terms."""
    values = ANNOTATIONS.read(wish.options)
    probe = spec.health and Probe(node_port=spec.health.node_port, path=spec.health.path)
    traffic = Traffic(
        sources=tuple(spec.source_ranges),
        sticky_seconds=spec.sticky_seconds,
        probe=probe,
        proxy=ProxyHeader(values[PROXY_PROTOCOL]),
        drain_seconds=values[DRAIN],
    )
    return CreateBalancer(
        name=wish.name or wish.owner.uid,
        mark=mark_of(wish.owner),
        ports=checked_ports(tuple(_port(listener) for listener in spec.listeners)),
        members=tuple(sorted(map(_member, spec.members), key=lambda member: member.name)),
        traffic=checked_traffic(traffic),
        families=spec.families,
        requested=_requested(spec),
        fingerprint=wish.fingerprint,
    )


def _requested(spec: contract.BalancerSpec) -> str:
    """Returns the address in canonical form. Raises `Misconfigured` if it cannot be assigned."""
    text = usual_address(spec.requested_address)
    if not text:
        return ""
    try:
        family = family_of(text)
    except ValueError:
        raise Misconfigured(f"the requested address {quoted(text)} is not an IP address") from None
    if family not in spec.families:
        raise Misconfigured(
            f"the requested address {text} is {family}, "
            f"but the load balancer is for {' and '.join(spec.families)}"
        )
    return text


def _port(listener: contract.Listener) -> Port:
    return Port(
        port=listener.port,
        node_port=listener.node_port,
        transport=listener.transport,
        name=listener.name,
    )


def _member(node: NodeRef) -> Member:
    """Raises `Misconfigured` for a machine of another cloud: its address is not reachable here."""
    machine = instance_id(node.provider_id)
    if machine is None and node.provider_id:
        raise Misconfigured(
            f"node {node.name} with provider ID {node.provider_id} is a machine of another cloud; "
            "members of balancers must be machines of the local cloud. Fix: remove the annotation "
            "pileus.dev/members from the Service"
        )
    return Member(name=node.name, machine=machine or "")


def _create(wanted: CreateBalancer) -> Change:
    ports = ", ".join(map(str, wanted.ports)) or "no port"
    summary = f"balancer {wanted.name} on {ports} with {_names(wanted.members)}"
    return Change(Effect.CREATE, summary, wanted)


def _delete(found: Balancer | Outline) -> Change:
    summary = f"balancer {found.name} ({', '.join(found.addresses)}) with all its parts"
    return Change(Effect.DELETE, summary, DeleteBalancer(balancer=found.id))


def _differences(found: Balancer, wanted: CreateBalancer) -> Iterator[Change]:
    yield from _address_changes(found, wanted)
    yield from _port_changes(found, wanted)
    yield from _member_changes(found, wanted)
    if found.traffic != wanted.traffic:
        summary = _traffic_summary(found.traffic, wanted.traffic)
        step = SetTraffic(balancer=found.id, traffic=wanted.traffic)
        yield Change(Effect.UPDATE, summary, step)


def _address_changes(found: Balancer, wanted: CreateBalancer) -> Iterator[Change]:
    have = tuple(map(family_of, found.addresses))
    if have == wanted.families and found.requested == wanted.requested:
        return
    is_moved = wanted.requested not in {"", *found.addresses}
    breaks = is_moved or not set(have) <= set(wanted.families)
    whither = wanted.requested or " and ".join(wanted.families)
    yield Change(
        Effect.REPLACE if breaks else Effect.UPDATE,
        f"address {', '.join(found.addresses)} to {whither}",
        Readdress(balancer=found.id, families=wanted.families, requested=wanted.requested),
    )


def _port_changes(found: Balancer, wanted: CreateBalancer) -> Iterator[Change]:
    have = {port.key: port for port in found.ports}
    want = {port.key: port for port in wanted.ports}
    for key, port in have.items():
        if key not in want:
            step = RemovePort(balancer=found.id, port=port.port, transport=port.transport)
            yield Change(Effect.DELETE, f"listener {port}", step)
    for key, port in want.items():
        if key not in have:
            summary = f"listener {port} to node port {port.node_port}"
            yield Change(Effect.CREATE, summary, PutPort(balancer=found.id, port=port))
        elif have[key] != port:
            summary = f"listener {port}: node port {have[key].node_port} to {port.node_port}"
            yield Change(Effect.UPDATE, summary, PutPort(balancer=found.id, port=port))


def _member_changes(found: Balancer, wanted: CreateBalancer) -> Iterator[Change]:
    names, have = {member.name for member in wanted.members}, frozenset(found.members)
    known = {member.name for member in found.members}
    new = tuple(member for member in wanted.members if member not in have)
    added = tuple(member for member in new if member.name not in known)
    moved = tuple(member for member in new if member.name in known)
    removed = tuple(member for member in found.members if member.name not in names)
    if added:
        step = AddMembers(balancer=found.id, members=added)
        yield Change(Effect.CREATE, _names(added), step, Part.MEMBERS)
    if moved:
        step = AddMembers(balancer=found.id, members=moved)
        yield Change(Effect.UPDATE, f"machine of {_names(moved)}", step, Part.MEMBERS)
    if removed:
        gone = tuple(member.name for member in removed)
        step = RemoveMembers(balancer=found.id, names=gone)
        yield Change(Effect.DELETE, _names(removed), step, Part.MEMBERS)


def _names(members: tuple[Member, ...]) -> str:
    if not members:
        return "no member"
    if len(members) > SHOWN:
        return f"{len(members)} members"
    names = ", ".join(member.name for member in members)
    return f"member{'s' if len(members) > 1 else ''} {names}"


def _traffic_summary(before: Traffic, after: Traffic) -> str:
    aspects = (
        ("source ranges", _sources(before), _sources(after)),
        ("affinity", _seconds(before.sticky_seconds), _seconds(after.sticky_seconds)),
        ("health check", _probe(before), _probe(after)),
        ("PROXY protocol", before.proxy.value, after.proxy.value),
        ("draining", _seconds(before.drain_seconds), _seconds(after.drain_seconds)),
    )
    changed = (f"{name} {old} to {new}" for name, old, new in aspects if old != new)
    return "; ".join(changed)


def _sources(traffic: Traffic) -> str:
    return ", ".join(traffic.sources) or "everyone"


def _seconds(seconds: int | None) -> str:
    return "none" if seconds is None else f"{seconds} s"


def _probe(traffic: Traffic) -> str:
    return f"{traffic.probe.node_port}{traffic.probe.path}" if traffic.probe else "by connection"
