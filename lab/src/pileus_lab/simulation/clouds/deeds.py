"""What users do in a cloud directly, without a manager. Each cloud maps it to its operations."""

from dataclasses import dataclass
from enum import Enum, auto

from pileus.cloud.balancer import Owner
from pileus_lab.simulation.clouds.truth import Route


@dataclass(frozen=True, slots=True)
class AddMachine:
    name: str
    external: bool = False
    """Whether it has an external address, if the cloud supports it."""
    uuid: str = ""
    """UUID that the firmware reports; empty: any."""
    ipv6: bool = False
    """Whether it has addresses of both families, if the cloud supports it."""
    near_volumes: bool = False
    """Whether it can have any volume, if the cloud has zones."""


@dataclass(frozen=True, slots=True)
class DeleteMachine:
    machine: str
    """ID of the machine."""


@dataclass(frozen=True, slots=True)
class StopMachine:
    machine: str


@dataclass(frozen=True, slots=True)
class StartMachine:
    machine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddBalancer:
    """A balancer that is not ours and looks as if it were."""

    name: str
    """A name that a balancer of one of our Services would have."""
    owner: Owner | None
    """The mark; None: no mark. The cluster is never ours."""
    port: int
    node_port: int
    member: str
    """Name of a node."""


@dataclass(frozen=True, slots=True)
class DeleteBalancer:
    balancer: str


@dataclass(frozen=True, slots=True)
class AddPort:
    """Changes the port of one of our balancers."""

    balancer: str
    port: int
    node_port: int


@dataclass(frozen=True, slots=True)
class RemoveMember:
    balancer: str
    member: str


@dataclass(frozen=True, slots=True)
class DisownBalancer:
    """Removes our marks from a balancer and its parts: it is then as another manager made it."""

    balancer: str


class StrangeDeed:
    """What others do with balancers of ours, or have that looks like ours; not in every cloud."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ShareBalancer(StrangeDeed):
    """Another cluster adds parts of its own to one of our balancers.

    Only in clouds whose balancers can be shared (`SimulatedCloud.shares_by`).
    """

    balancer: str
    port: int
    """One that none of our Services has."""


class Looks(Enum):
    """What an address of others looks like."""

    UNKNOWN = auto()
    """Nothing says whose it is."""
    MARKED = auto()
    """As one of a Service of ours, with the mark of another cluster."""
    RESERVED = auto()
    """As one of a Service of ours, reserved for another cluster."""
    KEPT = auto()
    """As one of a Service of ours, which its user keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddAddress(StrangeDeed):
    """Others have an address that balancers can have.

    Only in clouds in which users create those (`Truth.requestable`).
    """

    looks: Looks
    namespace: str
    service: str
    """Namespace and name of the Service that it looks like."""
    balancer: str = ""
    """The balancer of ours whose address it replaces; empty: it is free."""


@dataclass(frozen=True, slots=True)
class AddNetworkPort(StrangeDeed):
    """Others have a port of the network that a balancer could be reached at."""


@dataclass(frozen=True, slots=True)
class MoveAddress(StrangeDeed):
    """A user moves the address of a balancer of ours to a machine, and keeps it there."""

    balancer: str


@dataclass(frozen=True, slots=True)
class AddTwin(StrangeDeed):
    """A user marks a balancer that must not be deleted as the one of ours is marked.

    Only in clouds whose balancers can be shared (`SimulatedCloud.shares_by`).
    """

    balancer: str
    is_shared: bool
    """Whether another cluster shares it; otherwise a user created it."""


@dataclass(frozen=True, slots=True)
class AddRoute:
    destination: str
    target: str
    """Name of a machine."""
    cluster: str
    """Never ours."""


@dataclass(frozen=True, slots=True)
class DeleteRoute:
    route: Route


@dataclass(frozen=True, slots=True)
class AddKey:
    """Adds an SSH key that is not ours."""

    user: str
    public_key: str
    comment: str


@dataclass(frozen=True, slots=True)
class DeleteVolume:
    volume: str
    """ID of the volume."""


MachineDeed = AddMachine | DeleteMachine | StopMachine | StartMachine
BalancerDeed = AddBalancer | DeleteBalancer | AddPort | RemoveMember | DisownBalancer
RouteDeed = AddRoute | DeleteRoute
CloudDeed = MachineDeed | BalancerDeed | RouteDeed | AddKey | DeleteVolume | StrangeDeed
