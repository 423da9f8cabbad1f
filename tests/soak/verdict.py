"""Whether cluster and cloud are as they should be: told from what there is, by nobody's memory.

Written anew, on purpose: it shares no decision with the controllers that it judges.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pileus.kube.model.core_v1 import Node, Service
from pileus_lab.local.model.records import Balancer, Machine, Power

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
CLASSES = (None, "pileus.dev/local")
APPROVAL = "pileus.dev/deletion"
DRAIN = "local.pileus/drain-seconds"

REMEMBERED = re.compile(r'^pileus_remembered_objects\{memory="([^"]+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class World:
    """Everything at one moment."""

    cluster_id: str
    nodes: Sequence[Node]
    services: Sequence[Service]
    machines: Sequence[Machine]
    balancers: Sequence[Balancer]
    foreign: Mapping[str, Balancer]
    """Balancers of others, by id, as they were in the beginning."""


def problems(world: World) -> list[str]:
    """All that differs from what should be; nothing: desired is actual."""
    return [*_nodes(world), *_services(world), *_leftovers(world), *_foreign(world)]


def orphans(world: World) -> list[Balancer]:
    """Balancers marked as the cluster's whose Service is not there, or wants none."""
    owners = {service.metadata.uid for service in world.services if is_served(service)}
    ours = [one for one in world.balancers if one.mark.cluster == world.cluster_id]
    return [one for one in ours if one.mark.owner not in owners]


def kept(world: World) -> list[Node]:
    """Nodes that the guard keeps because no machine is known to have been theirs: for a human."""
    return [
        node
        for node in world.nodes
        for condition in (node.status and node.status.conditions) or ()
        if (condition.type, condition.reason) == ("CloudProviderInstanceGone", "NeverInitialized")
        and APPROVAL not in (node.metadata.annotations or {})
    ]


def is_served(service: Service) -> bool:
    spec = service.spec
    if spec is None or spec.type != "LoadBalancer" or service.metadata.deletion_timestamp:
        return False
    return spec.load_balancer_class in CLASSES


def members(nodes: Sequence[Node]) -> set[str]:
    """The nodes that every balancer should have."""
    return {
        node.metadata.name
        for node in nodes
        if EXCLUDED not in (node.metadata.labels or {})
        and not node.metadata.deletion_timestamp
        and UNINITIALIZED not in _taints(node)
    }


def _nodes(world: World) -> Iterator[str]:
    nodes = {node.metadata.name: node for node in world.nodes}
    machines = {machine.name: machine for machine in world.machines}
    for name in machines.keys() - nodes.keys():
        if machines[name].power is Power.RUNNING:  # one stopped at once never registered
            yield f"machine {name} has no node"
    yield from (f"node {name} has no machine" for name in nodes.keys() - machines.keys())
    for name in machines.keys() & nodes.keys():
        yield from _node(nodes[name], machines[name])


def _node(node: Node, machine: Machine) -> Iterator[str]:
    name, taints = node.metadata.name, _taints(node)
    if UNINITIALIZED in taints:
        yield f"node {name} is not initialized"
    elif not node.spec or node.spec.provider_id != f"local://{machine.id}":
        yield f"node {name} is not {machine.id}"
    if (SHUTDOWN in taints) is not (machine.power is Power.STOPPED):
        yield f"node {name}: machine is {machine.power}, taints are {sorted(taints)}"


def _taints(node: Node) -> set[str]:
    return {taint.key for taint in (node.spec and node.spec.taints) or ()}


def _services(world: World) -> Iterator[str]:
    owned: dict[str, list[Balancer]] = defaultdict(list)
    for balancer in world.balancers:
        if balancer.mark.cluster == world.cluster_id:
            owned[balancer.mark.owner].append(balancer)
    wanted = members(world.nodes)
    for service in world.services:
        name, found = service.metadata.name, owned[service.metadata.uid]
        if service.metadata.deletion_timestamp:
            yield f"service {name} is still being deleted"
        elif not is_served(service):
            yield from _released(service)
        elif len(found) != 1:
            yield f"service {name} has {len(found)} balancers"
        else:
            yield from (f"service {name}: {what}" for what in _differs(service, found[0], wanted))


def _released(service: Service) -> Iterator[str]:
    """What is not ours carries nothing of ours. Services of another class keep their finalizer."""
    is_plain = service.spec is None or service.spec.type != "LoadBalancer"
    if is_plain and (FINALIZER in (service.metadata.finalizers or ()) or _ingress(service)):
        yield f"service {service.metadata.name} is not served, but still claimed or addressed"


def _differs(service: Service, found: Balancer, wanted: set[str]) -> Iterator[str]:
    spec = service.spec
    assert spec
    ports = {(one.port, one.node_port, one.protocol) for one in spec.ports or ()}
    if ports != {(one.port, one.node_port, one.transport.value) for one in found.ports}:
        yield f"ports {sorted(ports)}, not {found.ports}"
    has = {member.name for member in found.members}
    if has != wanted:
        yield f"members: {len(has - wanted)} too many, {len(wanted - has)} too few"
    if _ingress(service) != set(found.addresses):
        yield f"shows {_ingress(service)}, is at {found.addresses}"
    if FINALIZER not in (service.metadata.finalizers or ()):
        yield "no finalizer"
    if set(spec.load_balancer_source_ranges or ()) != set(found.traffic.sources):
        yield f"may be reached from {found.traffic.sources}"
    if (spec.session_affinity == "ClientIP") is not (found.traffic.sticky_seconds is not None):
        yield f"affinity {spec.session_affinity}, sticky {found.traffic.sticky_seconds}"
    drain = int((service.metadata.annotations or {}).get(DRAIN, "30"))
    if found.traffic.drain_seconds != drain:
        yield f"drains for {found.traffic.drain_seconds} s, not {drain}"


def _ingress(service: Service) -> set[str]:
    status = service.status.load_balancer if service.status else None
    return {one.ip or "" for one in (status.ingress if status else None) or ()}


def _leftovers(world: World) -> Iterator[str]:
    yield from (f"balancer {one.name} is an orphan" for one in orphans(world))


def _foreign(world: World) -> Iterator[str]:
    now = {one.id: one for one in world.balancers}
    for identity, before in world.foreign.items():
        if now.get(identity) != before:
            yield f"someone else's balancer {before.name} was touched"


def overgrown(metrics: str, nodes: int, services: int) -> list[str]:
    """The maps of per-object state, by a manager's metrics, that are larger than what exists."""
    most = {"nodes": nodes, "services": services, "objects": max(nodes, services) + 1}
    found = REMEMBERED.findall(metrics)
    if not found:
        return ["no map of per-object state is counted"]
    there = f"{nodes} nodes and {services} Services"
    return [
        f"{memory} has entries for {float(entries):.0f} objects, of {there}"
        for memory, entries in found
        if float(entries) > most[memory.partition("/")[0]]
    ]
