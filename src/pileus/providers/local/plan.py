"""From a wish and what is seen to the changes between them. Pure; each change is one operation."""

from collections.abc import Iterator
from dataclasses import dataclass

from pileus.cloud import balancer as contract
from pileus.cloud.balancer import BalancerState, Effect, Ingress, Owner, Part, Wish
from pileus.cloud.model import NodeRef
from pileus.providers.local.identity import instance_id
from pileus.providers.local.model.addresses import family_of
from pileus.providers.local.model.balancers import (
    AddMembers,
    CreateBalancer,
    DeleteBalancer,
    PutPort,
    Readdress,
    RemoveMembers,
    RemovePort,
    SetTraffic,
    checked_ports,
    checked_traffic,
)
from pileus.providers.local.model.records import (
    Balancer,
    Mark,
    Member,
    Port,
    Probe,
    ProxyHeader,
    Traffic,
)
from pileus.providers.local.options import ANNOTATIONS, DRAIN, PROXY_PROTOCOL

SHOWN = 3
"""Members named in a line of the plan; of more, only the number."""

Step = (
    CreateBalancer
    | DeleteBalancer
    | PutPort
    | RemovePort
    | AddMembers
    | RemoveMembers
    | SetTraffic
    | Readdress
)


@dataclass(frozen=True, slots=True)
class Change:
    effect: Effect
    summary: str
    step: Step
    part: Part = Part.WHOLE


@dataclass(frozen=True, slots=True)
class Seen:
    owner: Owner
    found: Balancer | None = None

    @property
    def balancer(self) -> contract.Balancer | None:
        if self.found is None:
            return None
        return contract.Balancer(
            id=self.found.id,
            state=BalancerState.PENDING if self.found.is_busy else BalancerState.READY,
            ingress=tuple(Ingress(ip=address, proxied=True) for address in self.found.addresses),
            members=len(self.found.members),
        )


def changes(wish: Wish, seen: Seen) -> tuple[Change, ...]:
    """What can be done now, in order.

    Errors: `Misconfigured`, `Rejected` or `Unsupported` for a wish that cannot be met.
    """
    found = seen.found
    if found is not None and found.is_busy:
        return ()
    if wish.spec is None:
        return () if found is None else (_delete(found),)
    wanted = desired(wish, wish.spec)
    if found is None:
        return (_create(wanted),)
    return tuple(_differences(found, wanted))


def desired(wish: Wish, spec: contract.BalancerSpec) -> CreateBalancer:
    """The balancer that the wish asks for, in the cloud's own terms."""
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
        mark=Mark(cluster=wish.owner.cluster, owner=wish.owner.uid),
        ports=checked_ports(tuple(_port(listener) for listener in spec.listeners)),
        members=tuple(sorted(map(_member, spec.members), key=lambda member: member.name)),
        traffic=checked_traffic(traffic),
        families=spec.families,
        requested=spec.requested_address,
    )


def _port(listener: contract.Listener) -> Port:
    return Port(
        port=listener.port,
        node_port=listener.node_port,
        transport=listener.transport,
        name=listener.name,
    )


def _member(node: NodeRef) -> Member:
    return Member(name=node.name, machine=instance_id(node.provider_id) or "")


def _create(wanted: CreateBalancer) -> Change:
    ports = ", ".join(map(str, wanted.ports)) or "no port"
    summary = f"balancer {wanted.name} on {ports} with {_names(wanted.members)}"
    return Change(Effect.CREATE, summary, wanted)


def _delete(found: Balancer) -> Change:
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
    names = {member.name for member in wanted.members}
    added = tuple(member for member in wanted.members if member not in found.members)
    removed = tuple(member for member in found.members if member.name not in names)
    if added:
        step = AddMembers(balancer=found.id, members=added)
        yield Change(Effect.CREATE, _names(added), step, Part.MEMBERS)
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
