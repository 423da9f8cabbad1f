"""What each step means in the words of `ip -batch`, and in which namespace. Pure."""

from dataclasses import dataclass
from ipaddress import ip_network
from typing import assert_never

from pileus_lab.local.netns.network import LINK, Route
from pileus_lab.local.netns.plan import (
    AddAddress,
    AddRoute,
    Join,
    Leave,
    RemoveAddress,
    RemoveRoute,
    SetLink,
    Step,
)

ROUTER = ""
PEER = "{namespace}"
"""Stands for the instance's namespace, which is known by a descriptor alone."""

SOURCE = {4: "169.254.77.1", 6: "fd78::1"}
"""The router's own addresses, from which balancers talk to instances."""
GATEWAY_V6, INSTANCE_V6 = "fe80::77", "fe80::2"
"""The two ends of every link."""

ROUTER_SETUP = (
    "link set lo up",
    f"address add {SOURCE[4]}/32 dev lo scope global",
    f"address add {SOURCE[6]}/128 dev lo nodad",
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines for one namespace: the router's, or that of the instance with this id."""

    where: str
    lines: tuple[str, ...]


def device_of(machine: str) -> str:
    """The router's end of an instance's link: at most 15 characters, as the kernel demands."""
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
