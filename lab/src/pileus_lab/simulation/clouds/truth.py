"""The actual contents of a simulated cloud, in terms that fit any cloud."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pileus.cloud.balancer import Owner, Transport
from pileus.cloud.model import Address, InstanceState


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    id: str
    provider_id: str
    """As the provider reports it, including the scheme."""
    name: str
    """Also the name of its node."""
    uuid: str
    """As the firmware reports it; unique."""
    state: InstanceState
    type: str = ""
    zone: str = ""
    region: str = ""
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Port:
    """A port of a balancer, and the node port of its members."""

    port: int
    node_port: int
    """0: it has no members, and this cloud stores node ports with members only."""
    transport: Transport = Transport.TCP


@dataclass(frozen=True, slots=True)
class Traffic:
    """How a balancer treats connections."""

    affinity_seconds: int | None = None
    """Session affinity in seconds; None: none."""
    health_port: int | None = None
    """Node port of health checks; None: the port of the traffic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balancer:
    id: str
    owner: Owner | None
    """The owner in its mark; None: no mark."""
    addresses: tuple[str, ...]
    """IPs or host names that clients use."""
    ports: frozenset[Port]
    members: frozenset[str]
    """Names of nodes."""
    machines: frozenset[str] | None = None
    """IDs of its members' machines, as far as they were given; None: this cloud knows members
    only by name."""
    source_ranges: frozenset[str] = frozenset()
    families: frozenset[str] | None = None
    """IP families in which clients reach it; None: this cloud does not report them, and they are
    not checked."""
    traffic: Traffic | None = None
    """None: this cloud does not report it, and it is not checked."""
    is_noted: bool | None = None
    """Whether it has a note that it is complete; None: this cloud keeps no such note."""
    has_failed: bool = False
    """Whether the cloud reports that it failed, so that it can only be deleted."""
    is_of_others: bool = False
    """Whether it was left to others that use it, too."""
    is_remains: bool = False
    """Whether it is deleted, and only parts beside it are left, which have to be deleted, too."""
    name_in_doubt: str = ""
    """Its name, if it has no mark and a Service that has none waits for an operator because of it:
    it may be of another cluster."""
    twin_of: Owner | None = None
    """The owner in its mark, if another balancer has the same: this one has to be deleted, as if it
    were of a Service that does not exist (`owner`)."""
    record: object = None
    """Everything that the cloud stores of it, as a frozen value. Only its owner may change any
    of it."""

    @classmethod
    def remains(cls, id_: str, owner: Owner | None, record: object) -> "Balancer":
        """Returns what is left of one that is deleted: parts beside it, of the same owner."""
        return cls(
            id=id_,
            owner=owner,
            addresses=(),
            ports=frozenset(),
            members=frozenset(),
            has_failed=True,
            is_remains=True,
            record=record,
        )

    def is_of(self, cluster: str) -> bool:
        return self.owner is not None and self.owner.cluster == cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    id: str
    """Unique among balancers and routes."""
    destination: str
    target: str
    """Name of a node."""
    cluster: str | None
    """The cluster that created it; "" for none; None if this cloud\'s routes do not record it."""
    record: object = None
    """As for balancers."""


@dataclass(frozen=True, slots=True)
class Key:
    """An SSH key that all machines accept."""

    user: str
    public_key: str
    """Algorithm and body."""
    cluster: str | None
    """The cluster for which a manager added it; None: not added by a manager."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    id: str
    owner: Owner | None
    size_gib: int
    machine: str
    """ID of the machine that can write to it; empty: none."""
    zone: str = ""
    machines: frozenset[str] = frozenset()
    """IDs of all machines that can write to it."""
    is_leaving: bool = False
    """Whether the cloud has accepted to detach it, and has not completed that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Everything in the cloud, whatever its callers get."""

    machines: tuple[Machine, ...] = ()
    """In the order of their creation."""
    balancers: Mapping[str, Balancer] = field(default_factory=dict[str, Balancer])
    routes: Mapping[str, Route] = field(default_factory=dict[str, Route])
    keys: Mapping[str, Key] = field(default_factory=dict[str, Key])
    """By names that no balancer or route has."""
    volumes: Mapping[str, Volume] = field(default_factory=dict[str, Volume])
    strange_parts: Mapping[str, object] = field(default_factory=dict[str, object])
    """By ID: what others added to balancers of ours, as frozen values."""
    requestable: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """By ID: what of others a Service can ask for, by which annotation and value. Without an
    annotation it is an address, for `spec.loadBalancerIP`."""
