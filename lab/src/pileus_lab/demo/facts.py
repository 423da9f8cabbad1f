"""What nodes, Services, instances and balancers report, and how it changes. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from pileus.cloud.balancer import Effect
from pileus.kube.model.core_v1 import Event, Node, Service
from pileus_lab.demo.state import BalancerRow, EventRow, NodeRow, NodeState
from pileus_lab.local.model.machines import machine_as_of
from pileus_lab.local.model.records import Balancer, Machine, Power, R
from pileus_lab.local.model.state import State

UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
ZONE = "topology.kubernetes.io/zone"

Told: TypeAlias = tuple[Effect, str]


def is_tainted(node: Node) -> bool:
    taints = node.spec.taints if node.spec else None
    return any(taint.key == UNINITIALIZED for taint in taints or ())


def provider_id_of(node: Node) -> str:
    return (node.spec.provider_id if node.spec else None) or ""


def zone_of(node: Node) -> str:
    return (node.metadata.labels or {}).get(ZONE, "")


def address_of(node: Node) -> str:
    addresses = node.status.addresses if node.status else None
    return next((one.address for one in addresses or () if one.type == "InternalIP"), "")


def readiness_of(node: Node) -> str:
    conditions = node.status.conditions if node.status else None
    for condition in conditions or ():
        if condition.type == "Ready":
            return "Ready" if condition.status == "True" else "NotReady"
    return ""


def missing_in(node: Node) -> str:
    """What a node still lacks to be initialized; empty: it is initialized."""
    lacks = {
        "the taint is still there": is_tainted(node),
        "no provider ID": not provider_id_of(node),
        "no zone": not zone_of(node),
        "no address": not address_of(node),
    }
    return ", ".join(text for text, is_so in lacks.items() if is_so)


def node_changes(old: Node | None, new: Node | None) -> Iterator[Told]:
    """Describes that a node appeared, changed or was deleted."""
    node = new or old
    if node is None:
        return
    name = f"node {node.metadata.name}"
    if new is None:
        yield Effect.DELETE, name
    elif old is None:
        yield Effect.CREATE, f"{name} registers{', tainted' if is_tainted(new) else ''}"
    elif told := ", ".join(_differences(old, new)):
        yield Effect.UPDATE, f"{name}: {told}"


def _differences(old: Node, new: Node) -> Iterator[str]:
    if address_of(old) != address_of(new):
        yield f"address {address_of(new) or 'gone'}"
    if zone_of(old) != zone_of(new):
        yield f"zone {zone_of(new) or 'gone'}"
    if is_tainted(old) != is_tainted(new):
        yield "tainted" if is_tainted(new) else "taint removed"
    if provider_id_of(old) != provider_id_of(new):
        yield f"ID {provider_id_of(new)}"
    if readiness_of(old) != readiness_of(new):
        yield readiness_of(new) or "readiness unknown"


def address_of_service(service: Service) -> str:
    """The address that the Service publishes; empty: none."""
    balancer = service.status.load_balancer if service.status else None
    ingress = (balancer.ingress if balancer else None) or ()
    return next((one.ip for one in ingress if one.ip), "")


def service_changes(old: Service | None, new: Service | None) -> Iterator[Told]:
    """Describes that a Service appeared, changed or was deleted."""
    service = new or old
    if service is None or not (service.spec and service.spec.type == "LoadBalancer"):
        return
    name = f"service {service.metadata.name}"
    if new is None:
        yield Effect.DELETE, name
    elif old is None:
        yield Effect.CREATE, name
    elif told := ", ".join(_service_differences(old, new)):
        yield Effect.UPDATE, f"{name}: {told}"


def _service_differences(old: Service, new: Service) -> Iterator[str]:
    if address_of_service(old) != address_of_service(new):
        yield f"address {address_of_service(new) or 'gone'}"
    if old.metadata.deletion_timestamp != new.metadata.deletion_timestamp:
        yield "is being deleted"


def listeners(state: State) -> set[tuple[str, int]]:
    """Every address and port on which balancers and their members listen."""
    fronts = {
        (address, port.port)
        for one in state.balancers.values()
        for address in one.addresses
        for port in one.ports
    }
    backs = {
        (address, port.node_port)
        for one in state.balancers.values()
        for port in one.ports
        for machine in state.machines.values()
        for address in machine.internal
    }
    return fronts | backs


def cloud_changes(old: State, new: State) -> Iterator[Told]:
    for effect, machine in _come_and_gone(old.machines, new.machines):
        yield effect, f"instance {machine.name} in {machine.zone}"
    for effect, balancer in _come_and_gone(old.balancers, new.balancers):
        yield effect, f"balancer {balancer.name} at {where_of(balancer)}"


def _come_and_gone(old: Mapping[str, R], new: Mapping[str, R]) -> Iterator[tuple[Effect, R]]:
    yield from ((Effect.CREATE, one) for key, one in new.items() if key not in old)
    yield from ((Effect.DELETE, one) for key, one in old.items() if key not in new)


def where_of(balancer: Balancer) -> str:
    """Each address and port as in a URL."""
    hosts = (f"[{ip}]" if ":" in ip else ip for ip in balancer.addresses)
    return " ".join(f"{host}:{port.port}" for host in hosts for port in balancer.ports)


def node_rows(
    machines: Iterable[Machine], nodes: Iterable[Node], now: float
) -> tuple[NodeRow, ...]:
    """Instances with their nodes, sorted by name."""
    known = {machine.name: machine_as_of(machine, now) for machine in machines}
    joined = {node.metadata.name: node for node in nodes}
    return tuple(
        _row(name, known.get(name), joined.get(name)) for name in sorted({*known, *joined})
    )


def _row(name: str, machine: Machine | None, node: Node | None) -> NodeRow:
    return NodeRow(
        name=name,
        state=_state(machine, node),
        address=address_of(node) if node else "",
        zone=zone_of(node) if node else "",
        type=machine.type if machine else "",
        ready=readiness_of(node) if node else "",
    )


def _state(machine: Machine | None, node: Node | None) -> NodeState:
    if machine is None or machine.power is Power.STOPPED:
        return NodeState.LOST
    if node is None:
        return NodeState.BOOTING
    return NodeState.TAINTED if is_tainted(node) else NodeState.INITIALIZED


def balancer_row(balancer: Balancer, answers: Mapping[str, int]) -> BalancerRow:
    members = tuple(member.name for member in balancer.members)
    return BalancerRow(
        name=balancer.name,
        where=where_of(balancer),
        members=members,
        answers={name: answers.get(name, 0) for name in members},
    )


def event_row(event: Event) -> EventRow:
    about = event.involved_object
    return EventRow(
        about=f"{about.kind.lower()}/{about.name}",
        reason=event.reason,
        message=event.message,
        is_warning=event.type == "Warning",
    )
