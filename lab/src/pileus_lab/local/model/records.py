"""What there is in the local cloud: frozen records, as stored, as sent and as compared."""

from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from pileus.cloud.balancer import Transport

R = TypeVar("R")


class Record(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """Base of everything that is stored and sent. Unknown keys in what comes in are refused."""


class Power(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"


class Machine(Record, frozen=True):
    id: str
    name: str
    uuid: str
    """As its firmware tells the operating system."""
    type: str
    zone: str
    power: Power
    ready_at: float
    """When a pending machine runs, in seconds since the epoch."""
    internal: tuple[str, ...]
    external: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    failing_ports: tuple[int, ...] = ()
    """Node ports whose health check it answers with 503: it has no endpoints for them."""


class Mark(Record, frozen=True):
    """Whose balancer it is. Made by hand: both empty."""

    cluster: str = ""
    owner: str = ""


class Port(Record, frozen=True):
    """One port that a balancer listens on."""

    port: int
    node_port: int
    transport: Transport = Transport.TCP
    name: str = ""

    @property
    def key(self) -> tuple[int, Transport]:
        return self.port, self.transport

    def __str__(self) -> str:
        return f"{self.port}/{self.transport}"


class Member(Record, frozen=True):
    name: str
    machine: str = ""
    """The machine's id, where the cluster knows it already; else the name says who is meant."""


class ProxyHeader(StrEnum):
    NONE = "none"
    V1 = "v1"
    V2 = "v2"


class Probe(Record, frozen=True):
    """An HTTP health check; without one, members are asked whether the node port is open."""

    node_port: int
    path: str = "/healthz"


class Traffic(Record, frozen=True):
    """How a balancer treats its connections."""

    sources: tuple[str, ...] = ()
    """CIDRs that may connect, sorted; empty means everyone."""
    sticky_seconds: int | None = None
    probe: Probe | None = None
    proxy: ProxyHeader = ProxyHeader.NONE
    drain_seconds: int = 30
    """How long connections to a removed member may go on."""


class Balancer(Record, frozen=True):
    id: str
    name: str
    mark: Mark
    addresses: tuple[str, ...]
    ports: tuple[Port, ...]
    members: tuple[Member, ...]
    traffic: Traffic = Traffic()
    requested: str = ""
    """The address that was asked for; empty: any."""
    fingerprint: str = ""
    """Of the wish that was last applied completely; empty: of none. Hands do not change it."""
    busy_until: float = 0.0
    doomed: str = ""
    """Why the change that it is, or was last, at work on fails. The next change is a new try."""
    is_busy: bool = False
    """Whether it was busy when it was read."""
    problem: str = ""
    """What kept it from its work when it was read."""


class Outline(Record, frozen=True):
    """A balancer without its parts: enough to say whose it is, and whether it is as wished."""

    id: str
    name: str
    mark: Mark
    addresses: tuple[str, ...]
    members: int
    fingerprint: str = ""
    is_busy: bool = False
    problem: str = ""


class Route(Record, frozen=True):
    destination: str
    target: str
    """A machine's name."""
    cluster: str
    is_blackhole: bool = False
    """Whether the target was gone when it was read."""


class Volume(Record, frozen=True):
    id: str
    mark: str
    size_gib: int
    type: str
    zone: str
    labels: dict[str, str] = {}
    machine: str = ""
    device: str = ""


class Key(Record, frozen=True):
    user: str
    public_key: str


class Cluster(Record, frozen=True):
    name: str
    master: str


class FaultKind(StrEnum):
    ERROR = "error"
    LOST = "lost"
    """The call has its effect, but the caller hears an error."""
    LATENCY = "latency"
    PARTIAL = "partial"
    STALE = "stale"
    THROTTLE = "throttle"


class Fault(Record, frozen=True):
    """A rule by which the cloud misbehaves."""

    id: str
    kind: FaultKind
    where: str = "*"
    """A pattern for the operation's name: `instances.list`, `balancers.*`."""
    rate: float = 1.0
    times: int | None = None
    """How often it may still strike; None: without end."""
    seconds: float = 1.0
    """How late, how stale, or when to try again."""
    error: str = "Unavailable"
    share: float = 0.5
    """How much of a list is missing."""


class Quota(Record, frozen=True):
    """The most there may be of each."""

    instances: int = 100
    balancers: int = 50
    listeners: int = 500
    routes: int = 200
    volumes: int = 200
    volume_gib: int = 20_000
    keys: int = 100


class Page(Record, Generic[R], frozen=True):
    items: tuple[R, ...]
    is_complete: bool = True
    """False: some are missing, and it is not known which."""
