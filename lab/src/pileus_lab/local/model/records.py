"""The objects of the local cloud: frozen records, as stored, sent and compared."""

from enum import StrEnum
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace as changed

from pileus.cloud.balancer import Transport

R = TypeVar("R")


class Record(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """Base of everything that is stored and sent. Unknown keys are refused."""


class Power(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"


class Machine(Record, frozen=True):
    id: str
    name: str
    uuid: str
    """The UUID that the firmware reports to the operating system."""
    type: str
    zone: str
    power: Power
    ready_at: float
    """When a pending machine starts to run, in seconds since the epoch."""
    internal: tuple[str, ...]
    external: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    failing_ports: tuple[int, ...] = ()
    """Node ports on which it answers health checks with 503, like a node without endpoints."""


class Mark(Record, frozen=True):
    """The owner of a balancer, volume or snapshot. Both are empty if it was created manually."""

    cluster: str = ""
    owner: str = ""


class Port(Record, frozen=True):
    """One port on which a balancer listens."""

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
    """The machine's ID if the cluster knows it, else empty: then the name identifies it."""


class ProxyHeader(StrEnum):
    NONE = "none"
    V1 = "v1"
    V2 = "v2"


class Probe(Record, frozen=True):
    """An HTTP health check. Without one, a member is healthy if its node port is open."""

    node_port: int
    path: str = "/healthz"


class Traffic(Record, frozen=True):
    """How a balancer treats connections."""

    sources: tuple[str, ...] = ()
    """CIDRs that may connect, sorted; empty: all."""
    sticky_seconds: int | None = None
    probe: Probe | None = None
    proxy: ProxyHeader = ProxyHeader.NONE
    drain_seconds: int = 30
    """Seconds that connections to a removed member may last."""


class Balancer(Record, frozen=True):
    id: str
    name: str
    mark: Mark
    addresses: tuple[str, ...]
    ports: tuple[Port, ...]
    members: tuple[Member, ...]
    traffic: Traffic = Traffic()
    requested: str = ""
    """The requested address; empty: any."""
    fingerprint: str = ""
    """Fingerprint of the desired state that was last applied completely; empty: none. Manual
    changes keep it."""
    busy_until: float = 0.0
    doomed: str = ""
    """Why the current or last change fails. The next change is a new attempt."""
    is_busy: bool = False
    """Whether it was busy when it was read."""
    problem: str = ""
    """Why it did not work when it was read."""


class Outline(Record, frozen=True):
    """A balancer without its parts: enough to know its owner and whether it is up to date."""

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
    """Name of the machine."""
    cluster: str
    is_blackhole: bool = False
    """Whether the target did not exist when the route was read."""


class Volume(Record, frozen=True):
    id: str
    name: str
    """Unique among volumes without a mark."""
    size_gib: int
    type: str
    zone: str
    mark: Mark = Mark()
    labels: dict[str, str] = {}
    machine: str = ""
    device: str = ""
    from_snapshot: str = ""
    """ID of the snapshot that it was created from; empty: none."""
    from_volume: str = ""
    """ID of the volume that it was cloned from; empty: none."""
    others: tuple[str, ...] = ()
    """IDs of further machines that have it, in a cloud that allows several."""

    @property
    def machines(self) -> tuple[str, ...]:
        """All machines that have it."""
        return (self.machine, *self.others) if self.machine else ()

    def without_machine(self, machine: str) -> "Volume":
        """Returns the volume after that machine has lost it."""
        if machine in self.others:
            return changed(self, others=tuple(one for one in self.others if one != machine))
        if machine != self.machine:
            return self
        first, *rest = (*self.others, "")
        return changed(self, machine=first, device="", others=tuple(filter(None, rest)))


class Snapshot(Record, frozen=True):
    id: str
    name: str
    volume: str
    """ID of its volume, which may be deleted meanwhile."""
    size_gib: int
    created_at: float
    mark: Mark = Mark()
    labels: dict[str, str] = {}


class Key(Record, frozen=True):
    user: str
    public_key: str


class Cluster(Record, frozen=True):
    name: str
    master: str


class FaultKind(StrEnum):
    ERROR = "error"
    LOST = "lost"
    """The call has its effect, but the caller gets an error."""
    LATENCY = "latency"
    PARTIAL = "partial"
    STALE = "stale"
    THROTTLE = "throttle"


class Fault(Record, frozen=True):
    """A rule by which calls fail."""

    id: str
    kind: FaultKind
    where: str = "*"
    """Pattern of operation names: `instances.list`, `balancers.*`."""
    rate: float = 1.0
    times: int | None = None
    """How many times it may still apply; None: unlimited."""
    seconds: float = 1.0
    """Delay, staleness or retry time in seconds."""
    error: str = "Unavailable"
    share: float = 0.5
    """Share of a list that is missing."""


class Pools(Record, frozen=True):
    """The networks from which addresses are assigned; empty: not chosen."""

    internal: str = ""
    external: str = ""
    balancers: str = ""


class Quota(Record, frozen=True):
    """The maximum number of each kind of object."""

    instances: int = 100
    balancers: int = 50
    listeners: int = 500
    routes: int = 200
    volumes: int = 200
    volume_gib: int = 20_000
    snapshots: int = 200
    keys: int = 100


class Page(Record, Generic[R], frozen=True):
    items: tuple[R, ...]
    is_complete: bool = True
    """False: some items are missing."""
