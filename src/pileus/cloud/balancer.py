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
from functools import cached_property, lru_cache
from typing import Protocol, TypeVar, cast

from pileus.cloud.fingerprint import digest, usual_address, usual_network
from pileus.cloud.model import AddressType, Failure, NodeRef, no_labels
from pileus.cloud.selectors import EVERY_NODE, Selector


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
    """What the user asks for in spec.loadBalancerIP: an IP address of any family, or a name that
    means something to the cloud. Raise `Misconfigured` for what the cloud cannot provide."""
    health: HealthCheck | None = None


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What one Service wants; `spec` None means: nothing, and nothing may be left."""

    owner: Owner
    spec: BalancerSpec | None
    name: str = ""
    """For humans, in the cloud's console; never identity."""
    options: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """The Service's annotations that are for the provider (`options.meant_for`)."""
    adopts: str = ""
    """The ID of a load balancer in the cloud that the user says is this Service's; "": none. From
    `pileus.dev/adopt`, or from an annotation that the provider declared with `Role.ADOPTS`."""
    selector: Selector = EVERY_NODE
    """Which nodes may be members, as an annotation with `Role.SELECTS_MEMBERS` says. `spec.members`
    has only those."""

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of name, spec and options: equal wishes, equal hash, on any machine.

        The order of sets and the spelling of addresses make no difference. Of a member count its
        name, provider ID, IP addresses and the labels that the provider declared
        (`Abilities.member_labels`). Owner and adoption are no part of it.
        """
        return digest(self.name, self.spec and _facts(self.spec), sorted(self.options.items()))


REACHABLE = (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP)
"""Addresses of members that a balancer may send to; some clouds know members by nothing else."""


def _facts(spec: BalancerSpec) -> list[object]:
    """All that is wanted, in an order and a spelling of its own."""
    health = spec.health and [spec.health.node_port, spec.health.path]
    return [
        sorted(
            (one.port, one.transport, one.node_port, one.name, one.application_protocol)
            for one in spec.listeners
        ),
        _members_digest(spec.members),
        sorted({usual_network(one) for one in spec.source_ranges}),
        spec.sticky_seconds,
        spec.families,
        usual_address(spec.requested_address),
        health,
    ]


@lru_cache(maxsize=8)
def _members_digest(members: frozenset[NodeRef]) -> str:
    """Kept, because a thousand Services share one set of a thousand members."""
    return digest(sorted(map(_member_facts, members)))


def _member_facts(node: NodeRef) -> tuple[str, ...]:
    """The order of the addresses counts: clouds send to the first that fits."""
    ips = (usual_address(one.address) for one in node.addresses if one.type in REACHABLE)
    labels = (f"{key}={value}" for key, value in sorted(node.labels.items()))
    return node.name, node.provider_id, *ips, *labels


class BalancerState(StrEnum):
    READY = "ready"
    """It serves traffic. The core publishes its addresses as soon as `changes` is empty. With
    `Balancer.check_again_in` it is as close to the desired state as possible for now: its addresses
    are published, and it is checked again after so many seconds."""
    PENDING = "pending"
    """The cloud is at work on it and refuses changes: the core makes none, and checks again."""
    PROVISIONING = "provisioning"
    """The cloud is at work on it, but accepts changes: the core makes them, publishes nothing yet,
    and checks again. Only with `Abilities.changes_while_provisioning`."""
    FAILED = "failed"
    """The cloud gave up on it. The core reports `Balancer.problem` on the Service and retries with
    exponential back-off."""


@dataclass(frozen=True, slots=True)
class PortStatus:
    """The state of one port of a balancer at one of its addresses."""

    port: int
    transport: str = Transport.TCP
    error: str = ""
    """Why the port does not work, as one CamelCase word, with the cloud's own prefix where the word
    is not Kubernetes' (`acme.example/PortInUse`); empty if it works."""


@dataclass(frozen=True, slots=True)
class Ingress:
    """One address that clients may use: an IP address, a host name, or both names of one entry."""

    ip: str = ""
    hostname: str = ""
    proxied: bool = False
    """The balancer ends connections itself (Kubernetes: ipMode Proxy)."""
    ports: tuple[PortStatus, ...] = ()
    """The state of every port of the balancer; empty if the cloud does not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balancer:
    """The neutral view that the core publishes: never more than this crosses the seam."""

    id: str
    state: BalancerState
    ingress: tuple[Ingress, ...] = ()
    check_again_in: float | None = None
    """Seconds until the core checks it again. None: while it is pending or provisioning, after 1 s,
    then less often up to every 15 s; when it is ready, at the next full check."""
    problem: str = ""
    """Why it failed, or is not ready for longer than usual, in the cloud's own words."""
    members: int | None = None
    """How many members it has now; None: not known."""
    options: Mapping[str, str] | None = field(default=None, hash=False)
    """Values of options that are in effect, by name, as far as the cloud shows them. The core
    compares them with `Wish.options`: a plan shows a replacement if an option with `RECREATE` was
    changed, and warns if one with `CREATE_ONLY` was. None: not known."""
    owner: Owner | None = None
    """Whose mark it carries; None: nobody's. By it the core sees that one who is named in
    `Wish.adopts` serves another Service, and refuses."""


class Effect(StrEnum):
    CREATE = "+"
    UPDATE = "~"
    REPLACE = "±"
    """Connections will break; a plan shows it as such."""
    DELETE = "-"


class Part(StrEnum):
    """What a change touches. Of a balancer that others own, the core changes members alone."""

    WHOLE = "whole"
    """Anything but, or more than, members."""
    MEMBERS = "members"


class Change(Protocol):
    """One line of a plan, and one unit of `apply`. Frozen, comparable, printable, no secrets."""

    @property
    def effect(self) -> Effect: ...
    @property
    def summary(self) -> str: ...
    @property
    def part(self) -> Part: ...


class Seen(Protocol):
    @property
    def balancer(self) -> Balancer | None:
        """The owner's; where it has none, the one that the wish would adopt."""
        ...


def record_of(seen: Seen) -> str | None:
    """Returns the record that the provider wants to be kept for the owner; None if there is none.

    A provider that cannot mark what it builds may give its `Seen` a field `record`: a short text
    without secrets. The core keeps it on the Service, in the same write that publishes the status,
    as soon as nothing is left to change. None keeps what is there.
    """
    record = cast("object", getattr(seen, "record", None))
    return record if isinstance(record, str) else None


SeenT = TypeVar("SeenT", bound=Seen)
ChangeT = TypeVar("ChangeT", bound=Change)


class Balancers(Protocol[SeenT, ChangeT]):
    async def owners(self, cluster: str) -> frozenset[Owner]:
        """Everyone of this cluster who has anything here, leftovers of a crash included."""
        ...

    async def observe(
        self, wishes: Sequence[Wish], *, deep: bool
    ) -> Mapping[Owner, SeenT | Failure]:
        """One answer per wish, read after the call began. An owner left out is unknown.

        `Failure` says why one is unknown and harms no other; raise when all failed.

        With `deep=False`, parts of a balancer whose mark carries the wish's fingerprint need not
        be read, and `changes` then finds nothing to do. With `deep=True` all is read, because
        hands from outside change parts and leave the mark.
        """
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
