"""The desired namespaces, addresses and routes, computed from the state. Pure.

router ──veth──▶ instance: its addresses on eth0, the first host of each route to it on lo
       ──routes─▶ addresses of instances, destinations of routes
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from pileus_lab.local.model.machines import machine_as_of
from pileus_lab.local.model.records import Machine, Power
from pileus_lab.local.model.state import State
from pileus_lab.local.traffic.desired import reached_at

LINK, OWN = "eth0", "lo"


@dataclass(frozen=True, slots=True, order=True)
class Address:
    device: str
    ip: str


@dataclass(frozen=True, slots=True)
class Host:
    """The namespace of an instance."""

    addresses: frozenset[Address] = frozenset()
    is_up: bool = False
    """Whether the link is up."""


@dataclass(frozen=True, slots=True)
class Route:
    """An entry of the router's table."""

    destination: str
    machine: str
    via: str = ""
    """Address of the instance to send to; empty: the destination is directly on the link."""


@dataclass(frozen=True, slots=True)
class Network:
    """By ID of the machine, and by destination. Routes lead only to hosts that are up."""

    hosts: Mapping[str, Host] = field(default_factory=dict[str, Host])
    routes: Mapping[str, Route] = field(default_factory=dict[str, Route])


def wanted_network(state: State, now: float) -> Network:
    """Every instance has a namespace; its link is down if it does not run."""
    hosts: dict[str, Host] = {}
    routes: dict[str, Route] = {}
    for machine in state.machines.values():
        is_up = machine_as_of(machine, now).power is Power.RUNNING
        hosts[machine.id] = Host(frozenset(_addresses(state, machine)), is_up)
        if is_up:
            routes.update({one.destination: one for one in _led_to(state, machine)})
    # An instance keeps its own address, whatever the route table says.
    for machine in state.machines.values():
        if hosts[machine.id].is_up:
            routes.update({one.destination: one for one in _to_itself(machine)})
    return Network(hosts, routes)


def _addresses(state: State, machine: Machine) -> Iterator[Address]:
    own = (*machine.internal, *machine.external)
    for ip in own:
        yield Address(LINK, ip)
    for route in _led_to(state, machine):
        if (ip := first_host(route.destination)) not in own:
            yield Address(OWN, ip)


def _led_to(state: State, machine: Machine) -> Iterator[Route]:
    for route in state.routes.values():
        if route.target == machine.name:
            yield Route(route.destination, machine.id, via=reached_at(machine))


def _to_itself(machine: Machine) -> Iterator[Route]:
    for ip in (*machine.internal, *machine.external):
        yield Route(str(ip_network(ip)), machine.id)


def first_host(destination: str) -> str:
    """The address of a destination at which its instance can be reached."""
    network = ip_network(destination)
    return str(network[min(1, network.num_addresses - 1)])


def unreachable(state: State) -> str:
    """Returns the first instance whose address works only in its own namespace; empty: none."""
    return next(
        (
            f"{machine.name} has {ip}"
            for machine in state.machines.values()
            for ip in (*machine.internal, *machine.external)
            if ip_address(ip).is_loopback
        ),
        "",
    )
