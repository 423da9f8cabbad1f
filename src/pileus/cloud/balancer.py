"""The balancer half of the contract: a wish, what is seen, and the changes between them.

    wish ──observe (I/O, bulk)──▶ seen ──changes (pure)──▶ change, change, … ──apply (I/O)──▶ seen
                                    ▲                                                          │
                                    └──────────────── until `changes` is empty ────────────────┘

`observe` reads everything that the decision needs (subnets and quotas too), so that `changes` can
be pure. `Seen` and `Change` are the provider's own frozen types; the core knows only what the
protocols here say of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeVar

from pileus.cloud.model import NodeRef, no_labels


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose object this is: a mark on every cloud object, and the only identity there is."""

    cluster: str
    uid: str


class Transport(StrEnum):
    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One port of a balancer and the port on the members that answers for it."""

    port: int
    node_port: int
    transport: Transport = Transport.TCP
    name: str = ""
    application_protocol: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """How members say that they want traffic (externalTrafficPolicy: Local)."""

    node_port: int
    path: str = "/healthz"


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerSpec:
    """A balancer as it is wanted. Two specs are equal when nothing needs changing."""

    listeners: frozenset[Listener]
    members: frozenset[NodeRef]
    source_ranges: frozenset[str] = frozenset()
    """CIDRs that may connect; empty means everyone."""
    sticky_seconds: int | None = None
    """Session affinity by client address for that long; None: no affinity."""
    families: tuple[str, ...] = ("IPv4",)
    requested_address: str = ""
    health: HealthCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What one Service wants; `spec` None means: nothing, and nothing may be left."""

    owner: Owner
    spec: BalancerSpec | None
    name: str = ""
    """For humans, in the cloud's console; never identity."""
    options: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """The Service's annotations, for the provider's declared options."""


class BalancerState(StrEnum):
    READY = "ready"
    PENDING = "pending"
    """The cloud is at work: look again soon, change nothing."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Ingress:
    """One address that clients may use: an IP or a host name, never both."""

    ip: str = ""
    hostname: str = ""
    proxied: bool = False
    """The balancer ends connections itself (Kubernetes: ipMode Proxy)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balancer:
    """The neutral view that the core publishes: never more than this crosses the seam."""

    id: str
    state: BalancerState
    ingress: tuple[Ingress, ...] = ()
    look_again_in: float | None = None
    """Seconds, while pending; None leaves it to the core."""


class Effect(StrEnum):
    CREATE = "+"
    UPDATE = "~"
    REPLACE = "±"
    """Connections will break; a plan shows it as such."""
    DELETE = "-"


class Change(Protocol):
    """One line of a plan, and one unit of `apply`. Frozen, comparable, printable, no secrets."""

    @property
    def effect(self) -> Effect: ...
    @property
    def summary(self) -> str: ...


class Seen(Protocol):
    @property
    def balancer(self) -> Balancer | None: ...


SeenT = TypeVar("SeenT", bound=Seen)
ChangeT = TypeVar("ChangeT", bound=Change)


class Balancers(Protocol[SeenT, ChangeT]):
    async def owners(self, cluster: str) -> frozenset[Owner]:
        """Everyone of this cluster who has anything here, leftovers of a crash included."""
        ...

    async def observe(self, wishes: Sequence[Wish]) -> Mapping[Owner, SeenT]:
        """One answer per wish, read after the call began. An owner left out is unknown."""
        ...

    def changes(self, wish: Wish, seen: SeenT) -> tuple[ChangeT, ...]:
        """Pure. What can be done now, in order; empty while the cloud is busy, or all is well."""
        ...

    async def apply(self, change: ChangeT, seen: SeenT) -> SeenT:
        """Do it, and say what is there now. Twice is once; what is gone is deleted.

        Errors: `Conflict` while the cloud is busy with it.
        """
        ...

    def lock_key(self, wish: Wish) -> str:
        """Wishes of one key are never worked on at once; the owner's uid if nothing is shared."""
        ...
