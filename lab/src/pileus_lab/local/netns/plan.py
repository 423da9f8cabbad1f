"""Which steps lead from the network that there is to the one that is wanted. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

from pileus_lab.local.netns.network import Address, Host, Network, Route

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Join:
    """Make an instance's namespace and its link, which is down."""

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
    """The steps, in an order in which no route ever leads to a link that is down or gone."""
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
    """The network once the step is done."""
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
