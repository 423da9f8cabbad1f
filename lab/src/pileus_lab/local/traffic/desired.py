"""The desired sockets, computed from the state. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address

from pileus.cloud.balancer import Transport
from pileus_lab.local.model.balancers import machine_of
from pileus_lab.local.model.machines import machine_as_of
from pileus_lab.local.model.records import Balancer, Machine, Port, Power, Traffic
from pileus_lab.local.model.state import State


@dataclass(frozen=True, slots=True)
class Place:
    """The address and port of a socket."""

    address: str
    port: int
    transport: Transport

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}/{self.transport}"


@dataclass(frozen=True, slots=True)
class Backend:
    """A member with one of its node ports."""

    name: str
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Front:
    """One listener of a balancer on one address."""

    balancer: str
    port: Port
    place: Place
    backends: tuple[Backend, ...]
    traffic: Traffic


@dataclass(frozen=True, slots=True)
class Answering:
    """A node port on which an instance answers."""

    instance: str
    node_port: int
    place: Place
    health_paths: frozenset[str] = frozenset()
    is_failing: bool = False
    """Health checks on it are answered with 503."""


@dataclass(frozen=True, slots=True)
class Wanted:
    fronts: tuple[Front, ...]
    answering: tuple[Answering, ...]
    running: frozenset[str] = frozenset()
    """The addresses of all running machines."""


def wanted(state: State, now: float) -> Wanted:
    """Returns what should listen now: balancers, and their running members."""
    fronts = tuple(
        front for balancer in state.balancers.values() for front in _fronts(state, balancer)
    )
    running = [
        machine
        for machine in state.machines.values()
        if machine_as_of(machine, now).power is Power.RUNNING
    ]
    answering = {one.place: one for machine in running for one in _answering(state, machine)}
    return Wanted(
        fronts, tuple(answering.values()), frozenset(reached_at(machine) for machine in running)
    )


def _fronts(state: State, balancer: Balancer) -> Iterator[Front]:
    for address in balancer.addresses:
        for port in balancer.ports:
            yield Front(
                balancer=balancer.id,
                port=port,
                place=Place(address, port.port, port.transport),
                backends=tuple(_backends(state, balancer, port.node_port)),
                traffic=balancer.traffic,
            )


def _backends(state: State, balancer: Balancer, node_port: int) -> Iterator[Backend]:
    for member in balancer.members:
        machine = machine_of(state, member)
        if machine is not None:
            yield Backend(member.name, reached_at(machine), node_port)


def reached_at(machine: Machine) -> str:
    """The address to which balancers send. On loopback every machine has an IPv4 address."""
    return next(ip for ip in machine.internal if ip_address(ip).version == 4)  # noqa: PLR2004


def _answering(state: State, machine: Machine) -> Iterator[Answering]:
    address = reached_at(machine)
    for balancer in state.balancers.values():
        if not any(machine_of(state, member) is machine for member in balancer.members):
            continue
        for transport, node_port, paths in _node_ports(balancer):
            place = Place(address, node_port, transport)
            is_failing = node_port in machine.failing_ports
            yield Answering(machine.name, node_port, place, paths, is_failing)


def _node_ports(balancer: Balancer) -> Iterator[tuple[Transport, int, frozenset[str]]]:
    for port in balancer.ports:
        yield port.transport, port.node_port, frozenset()
    if probe := balancer.traffic.probe:
        yield Transport.TCP, probe.node_port, frozenset({probe.path})


def next_change(state: State, now: float) -> float | None:
    """Returns when the next pending machine is running; None: no change without a write."""
    booting = [
        one.ready_at
        for one in state.machines.values()
        if one.power is Power.PENDING and one.ready_at > now
    ]
    return min(booting, default=None)
