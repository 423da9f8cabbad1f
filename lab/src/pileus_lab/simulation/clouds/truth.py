"""What is so in a simulated cloud, in words that fit any: for people, kubelets and invariants."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pileus.cloud.balancer import Owner, Transport
from pileus.cloud.model import Address, InstanceState


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    id: str
    provider_id: str
    """As the provider tells it, scheme included."""
    name: str
    """Also that of its node."""
    uuid: str
    """As its firmware tells the operating system; no two machines ever have the same."""
    state: InstanceState
    type: str = ""
    zone: str = ""
    region: str = ""
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Port:
    """A port that a balancer listens on, and the one of its members that answers."""

    port: int
    node_port: int
    transport: Transport = Transport.TCP


@dataclass(frozen=True, slots=True)
class Traffic:
    """How a balancer treats its connections."""

    affinity_seconds: int | None = None
    """For how long a client comes to the same member; None: it need not."""
    health_port: int | None = None
    """The node port at which members are asked whether they are well; None: at their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balancer:
    id: str
    owner: Owner | None
    """As its mark says; None: it has none."""
    addresses: tuple[str, ...]
    """IPs or host names, as clients are told."""
    ports: frozenset[Port]
    members: frozenset[str]
    """Names of nodes."""
    machines: frozenset[str] | None = None
    """Ids of its members' machines, of those that it was told; None: this cloud knows members by
    name alone."""
    source_ranges: frozenset[str] = frozenset()
    traffic: Traffic | None = None
    """None: this cloud does not say, and nobody is held to it."""
    is_noted: bool | None = None
    """Whether it carries a note that it is complete; None: this cloud keeps no such note."""
    record: object = None
    """All that the cloud keeps of it: a frozen value. Whoever is not its owner may change nothing
    of this."""

    def is_of(self, cluster: str) -> bool:
        return self.owner is not None and self.owner.cluster == cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    id: str
    """No balancer has the same."""
    destination: str
    target: str
    """The name of a node."""
    cluster: str | None
    """For which it was made; "" for none; None if this cloud's routes do not say."""
    record: object = None
    """As with balancers."""


@dataclass(frozen=True, slots=True)
class Key:
    """An SSH key that all machines accept."""

    user: str
    public_key: str
    """Algorithm and body."""
    cluster: str | None
    """For which it was added by a manager; None: it was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Everything in the cloud, whatever anybody is told of it."""

    machines: tuple[Machine, ...] = ()
    """In the order of their making."""
    balancers: Mapping[str, Balancer] = field(default_factory=dict[str, Balancer])
    routes: Mapping[str, Route] = field(default_factory=dict[str, Route])
    keys: Mapping[str, Key] = field(default_factory=dict[str, Key])
    """By names that neither a balancer nor a route has."""
