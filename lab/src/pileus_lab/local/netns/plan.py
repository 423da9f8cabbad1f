"""The steps from the actual network to the desired one, as `ip -batch` commands. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_network
from typing import TypeVar, assert_never

from pileus_lab.local.netns.network import LINK, Address, Host, Network, Route

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Join:
    """Create the namespace of an instance and its link, which is down."""

    machine: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Remove the link and the namespace."""

    machine: str


@dataclass(frozen=True, slots=True)
class SetLink:
    machine: str
    is_up: bool


@dataclass(frozen=True, slots=True)
class AddAddress:
    machine: str
    address: Address


@dataclass(frozen=True, slots=True)
class RemoveAddress:
    machine: str
    address: Address


@dataclass(frozen=True, slots=True)
class AddRoute:
    route: Route


@dataclass(frozen=True, slots=True)
class RemoveRoute:
    route: Route


Step = Join | Leave | SetLink | AddAddress | RemoveAddress | AddRoute | RemoveRoute


def plan(present: Network, wanted: Network) -> tuple[Step, ...]:
    """Returns the steps, ordered so that no route ever leads to a link that is down or deleted."""
    return (
        *(
            RemoveRoute(route)
            for destination, route in present.routes.items()
            if wanted.routes.get(destination) != route
        ),
        *(Leave(machine) for machine in present.hosts if machine not in wanted.hosts),
        *(step for machine, host in wanted.hosts.items() for step in _host(present, machine, host)),
        *(
            AddRoute(route)
            for destination, route in wanted.routes.items()
            if present.routes.get(destination) != route
        ),
    )


def _host(present: Network, machine: str, wanted: Host) -> Iterator[Step]:
    host = present.hosts.get(machine)
    if host is None:
        yield Join(machine)
        host = Host()
    for address in sorted(host.addresses - wanted.addresses):
        yield RemoveAddress(machine, address)
    for address in sorted(wanted.addresses - host.addresses):
        yield AddAddress(machine, address)
    if host.is_up != wanted.is_up:
        yield SetLink(machine, wanted.is_up)


def after(network: Network, step: Step) -> Network:
    """The network after the step."""
    hosts, routes = network.hosts, network.routes
    match step:
        case AddRoute(route):
            return replace(network, routes={**routes, route.destination: route})
        case RemoveRoute(route):
            return replace(network, routes=_without(routes, route.destination))
        case Leave(machine):
            return replace(network, hosts=_without(hosts, machine))
        case Join(machine) | SetLink(machine) | AddAddress(machine) | RemoveAddress(machine):
            changed = _changed(hosts.get(machine, Host()), step)
            return replace(network, hosts={**hosts, machine: changed})
        case _:
            assert_never(step)


def _changed(host: Host, step: Join | SetLink | AddAddress | RemoveAddress) -> Host:
    match step:
        case Join():
            return Host()
        case SetLink(_, is_up):
            return replace(host, is_up=is_up)
        case AddAddress(_, address):
            return replace(host, addresses=host.addresses | {address})
        case RemoveAddress(_, address):
            return replace(host, addresses=host.addresses - {address})
        case _:
            assert_never(step)


def _without(items: Mapping[str, T], key: str) -> dict[str, T]:
    return {k: v for k, v in items.items() if k != key}


ROUTER = ""
PEER = "{namespace}"
"""Placeholder for the namespace of the instance, which has a descriptor and no name."""

SOURCE = {4: "169.254.77.1", 6: "fd78::1"}
"""The router's own addresses, from which balancers connect to instances."""
GATEWAY_V6, INSTANCE_V6 = "fe80::77", "fe80::2"
"""The two ends of every link."""

ROUTER_SETUP = (
    "link set lo up",
    f"address add {SOURCE[4]}/32 dev lo scope global",
    f"address add {SOURCE[6]}/128 dev lo nodad",
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines for one namespace: the router's, or that of the instance with this ID."""

    where: str
    lines: tuple[str, ...]


def device_of(machine: str) -> str:
    """The router's end of an instance's link: at most 15 characters, the limit of the kernel."""
    return f"v{machine.rpartition('-')[2]}"[:15]


def commands(step: Step) -> tuple[Batch, ...]:
    match step:
        case Join(machine):
            return _join(machine, device_of(machine))
        case Leave(machine):
            return (Batch(ROUTER, (f"link delete {device_of(machine)}",)),)
        case SetLink(machine, is_up):
            return (Batch(ROUTER, _link(device_of(machine), is_up=is_up)),)
        case AddAddress(machine, address):
            nodad = " nodad" if ":" in address.ip else ""
            lines = (f"address add {ip_network(address.ip)} dev {address.device}{nodad}",)
            return (Batch(machine, lines),)
        case RemoveAddress(machine, address):
            lines = (f"address delete {ip_network(address.ip)} dev {address.device}",)
            return (Batch(machine, lines),)
        case AddRoute(route) | RemoveRoute(route):
            verb = "add" if isinstance(step, AddRoute) else "delete"
            return (Batch(ROUTER, (f"route {verb} {_entry(route)}",)),)
        case _:
            assert_never(step)


def _join(machine: str, device: str) -> tuple[Batch, ...]:
    return (
        Batch(
            ROUTER,
            (
                f"link add {device} type veth peer name {LINK} netns {PEER}",
                f"link set {device} addrgenmode none",
            ),
        ),
        Batch(
            machine,
            (
                "link set lo up",
                f"link set {LINK} addrgenmode none",
                f"link set {LINK} up",
                f"address add {INSTANCE_V6}/64 dev {LINK} nodad",
                f"route add {SOURCE[4]}/32 dev {LINK}",
                f"route add default via {SOURCE[4]} dev {LINK}",
                f"route add default via {GATEWAY_V6} dev {LINK}",
            ),
        ),
    )


def _link(device: str, *, is_up: bool) -> tuple[str, ...]:
    if not is_up:
        return (f"link set {device} down",)
    # The kernel drops IPv6 addresses of a link that goes down.
    return f"link set {device} up", f"address replace {GATEWAY_V6}/64 dev {device} nodad"


def _entry(route: Route) -> str:
    version = ip_network(route.destination).version
    via = INSTANCE_V6 if version == 6 else route.via  # noqa: PLR2004 -- IPv6
    way = f"via {via} " if via else ""
    return f"{route.destination} {way}dev {device_of(route.machine)} src {SOURCE[version]}"
