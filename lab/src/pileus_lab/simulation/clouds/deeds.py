"""What people do in a cloud, past all managers. Each cloud has operations of its own for it."""

from dataclasses import dataclass

from pileus.cloud.balancer import Owner
from pileus_lab.simulation.clouds.truth import Route


@dataclass(frozen=True, slots=True)
class AddMachine:
    name: str
    external: bool = False
    """Whether it is reachable from outside, where the cloud makes a difference."""
    uuid: str = ""
    """As its firmware tells; empty: any."""
    ipv6: bool = False
    """Whether it has addresses of both families, where the cloud can do that."""


@dataclass(frozen=True, slots=True)
class DeleteMachine:
    machine: str
    """Its id."""


@dataclass(frozen=True, slots=True)
class StopMachine:
    machine: str


@dataclass(frozen=True, slots=True)
class StartMachine:
    machine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddBalancer:
    """One that is not ours, and looks as if it were."""

    name: str
    """As one of our own Services' would be called."""
    owner: Owner | None
    """The mark; None: without one. The cluster is never ours."""
    port: int
    node_port: int
    member: str
    """The name of a node."""


@dataclass(frozen=True, slots=True)
class DeleteBalancer:
    balancer: str


@dataclass(frozen=True, slots=True)
class AddPort:
    """Let one of our balancers listen on another port."""

    balancer: str
    port: int
    node_port: int


@dataclass(frozen=True, slots=True)
class RemoveMember:
    balancer: str
    member: str


@dataclass(frozen=True, slots=True)
class AddRoute:
    destination: str
    target: str
    """The name of a machine."""
    cluster: str
    """Never ours."""


@dataclass(frozen=True, slots=True)
class DeleteRoute:
    route: Route


@dataclass(frozen=True, slots=True)
class AddKey:
    """Somebody else's SSH key."""

    user: str
    public_key: str
    comment: str


MachineDeed = AddMachine | DeleteMachine | StopMachine | StartMachine
BalancerDeed = AddBalancer | DeleteBalancer | AddPort | RemoveMember
RouteDeed = AddRoute | DeleteRoute
CloudDeed = MachineDeed | BalancerDeed | RouteDeed | AddKey
