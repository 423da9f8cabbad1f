"""Load balancers in the contract: the desired state, the observed state, the changes between them.

    wish ──observe (I/O, bulk)──▶ seen ──changes (pure)──▶ change, change, … ──apply (I/O)──▶ seen
                                    ▲                                                          │
                                    └──────────────── until `changes` is empty ────────────────┘

`observe` reads everything that the decision needs (also subnets and quotas), so that `changes` can
be pure. `Seen` and `Change` are the provider's own frozen types; the core uses only what the
protocols here say of them.

How the core drives it, for one Service:

1. `observe` with `deep=False`: a quick check. Concurrent checks of several Services are one call.
2. `changes`. If it is not empty, the finalizer is added to the Service first.
3. If the load balancer would lose all or more than half of its members, the nodes are listed from
   the API server a few seconds later, before anything is removed.
4. `apply` for each change in order, each with the `Seen` that the one before returned, until the
   cloud is busy (`PENDING`). Then `changes` again, up to five rounds in one pass.
5. Nothing left to change and `READY`: addresses and condition are published on the Service.
6. Every `--service-drift-period`: `observe` with `deep=True`, a full check.

Wishes with the same `lock_key` are never worked on at once. `Conflict` from `apply` means that the
cloud is busy or the state has changed: the core observes again. If a wish for two IP families is
refused with `Unsupported` and the Service only prefers both, the core asks for the first family
alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Protocol, TypeVar, cast

from pileus.cloud.errors import Misconfigured
from pileus.cloud.fingerprint import digest, usual_address, usual_network
from pileus.cloud.model import AddressType, Failure, NodeRef, no_labels
from pileus.cloud.selectors import EVERY_NODE, Selector
from pileus.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a cloud object: a mark on every object, and its only identity."""

    cluster: str
    """ID of the cluster."""
    uid: str
    """UID of the Service; for volumes and snapshots, the identity of the claim in the cluster."""


MOST_LISTENERS = 1000
"""Listeners of a spec. A Service without node ports may have 20,000 ports."""
MOST_RANGES = 2000
"""Source ranges of a spec. A Service may list 80,000."""
MOST_PAIRS = 10_000
"""Pairs of a listener and a member, and of a listener and a source range: a cloud has each member
and each range once per listener. See `BalancerSpec`."""
FEW_LISTENERS = 50
"""So many may have any number of members: the author of a Service does not choose how many nodes
the cluster has."""


class Transport(StrEnum):
    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One port of a load balancer, and the port of its members."""

    port: int
    """Port for clients, 1 to 65535. Unique together with `transport`."""
    node_port: int
    """Port on the members; 0 if the Service does not allocate node ports. Raise `Misconfigured` if
    the cloud needs one."""
    transport: Transport = Transport.TCP
    """`TCP`, `UDP` or `SCTP`."""
    name: str = ""
    """Name of the port in the Service; may be empty."""
    application_protocol: str = ""
    """`appProtocol` of the port, such as `kubernetes.io/ws`; may be empty."""
    position: int = field(default=0, compare=False)
    """Place of the port in the Service, from 0: for names in the cloud, never identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """Where members report over HTTP whether they take traffic (externalTrafficPolicy: Local)."""

    node_port: int
    """`healthCheckNodePort` of the Service."""
    path: str = "/healthz"
    """Path of the request: 200 means that the member takes traffic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerSpec:
    """The desired state of a load balancer. Two specs are equal if nothing has to be changed.

    The size is limited, so that no Service keeps the event loop busy: `MOST_LISTENERS`,
    `MOST_RANGES`, and `MOST_PAIRS` of a listener and a range, or of a listener and a member if
    there are more than `FEW_LISTENERS`. `Balancers.changes` may take 50 ms for such a spec.
    """

    listeners: frozenset[Listener]
    """At least one."""
    members: frozenset[NodeRef]
    """The nodes to send traffic to; the set may be empty.

    They are nodes of this cloud. Excluded, leaving and deleted nodes are left out. Readiness has no
    effect: the load balancer checks the health of its members itself. So:

    - A node of another cloud is included only if the Service has the annotation
      `pileus.dev/members: all`, and never with `Abilities.members_by_provider_id`. Raise
      `Misconfigured` with its name if the cloud cannot send traffic to its addresses.

    - A node without a provider ID is included, unless `Abilities.members_by_provider_id`. If it
      registers again (its Node is created a second time), it has the provider ID that the same
      machine had before: it must stay a member all the time.
    - Two nodes may have the same address, for example a deleted machine and its successor. For a
      cloud that reaches members by address they are one member.
    - A node whose machine is stopped is included.
    - A node whose machine is deleted is included until its Node is deleted. If the cloud refuses
      such a member, leave it out; the others have to be updated all the same.

    Members carry the labels that the provider declared (`Abilities.member_labels`) and no
    annotations."""
    source_ranges: frozenset[str] = frozenset()
    """CIDRs of clients that may connect; empty: all. Empty without `Abilities.source_ranges`.

    A family of `families` that has no range here admits no client. If none of them has one
    (`admits_no_client`), raise `no_client_admitted(spec)`: ranges that a cloud cannot take are
    never left out until a load balancer is open."""
    sticky_seconds: int | None = None
    """Duration of session affinity by client address; None: none. See `Abilities.affinity`."""
    families: tuple[str, ...] = ("IPv4",)
    """IP families in order of preference: `IPv4`, `IPv6` or both. Raise `Unsupported` for what the
    cloud does not have: if the Service only prefers two families, it is asked for the first one."""
    requested_address: str = ""
    """`spec.loadBalancerIP`: an IP address of any family, or a name that the cloud understands.
    Raise `Misconfigured` if the cloud cannot provide it, also if something else has it: change
    nothing then, and do not say what. Empty: any address."""
    health: HealthCheck | None = None
    """None: members are checked at their node ports."""

    @property
    def admits_no_client(self) -> bool:
        """Whether there are source ranges, and none of an IP family of the load balancer."""
        families = set(map(family_of, self.source_ranges))
        return bool(families) and families.isdisjoint(self.families)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The desired state of one Service's load balancer."""

    owner: Owner
    """The mark that every object gets in the request that creates it."""
    spec: BalancerSpec | None
    """None: there is to be no load balancer, and no part of one."""
    name: str = ""
    """For people, in the cloud's console; never identity."""
    namespace: str = field(default="", compare=False)
    """Namespace of the Service, for names in the cloud; never identity. "": not known, because the
    Service is deleted."""
    service: str = field(default="", compare=False)
    """Name of the Service, for names in the cloud; never identity. "": not known."""
    published: frozenset[str] = field(default=frozenset(), compare=False)
    """IP addresses and host names in the Service's status. Users cannot set the status of a
    Service that they create, so a load balancer of another controller that has one of these
    addresses served this Service: a proof for adoption."""
    options: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Annotations of the Service that the provider declared, except those with a `Role`."""
    adopts: str = ""
    """The ID of a load balancer in the cloud that the user says is this Service's; "": none. It is
    a request and no proof, see `may_use_foreign`. From `pileus.dev/adopt`, or from an annotation
    that the provider declared with `Role.ADOPTS`. A value that Pileus itself wrote
    (`Balancer.annotations`) adopts nothing, also in a copy of a Service and after the load balancer
    was deleted manually."""
    selector: Selector = EVERY_NODE
    """Which nodes may be members, as an annotation with `Role.SELECTS_MEMBERS` says. `spec.members`
    has only those."""
    may_use_foreign: bool = field(default=False, compare=False)
    """Whether the operator permits the namespace of the Service to use objects in the cloud that
    were not created for it (`--trusted-namespaces`). The author of a Service may be
    anyone, so without the permission `adopts` proves nothing: raise `foreign_refused(wish)` unless
    the cloud itself proves that the object is for this Service, and change nothing."""
    only_members: bool = field(default=False, compare=False)
    """Whether at most changes of `Part.MEMBERS` are made (`pileus.dev/manage` is not `full`): other
    ones need not be returned, and what would prevent them need not be raised."""

    @cached_property
    def fingerprint(self) -> str:
        """Returns a short hash of name, spec and options, the same on every machine.

        The order of sets and the spelling of addresses make no difference. Of a member count its
        name, provider ID, IP addresses and the labels that the provider declared
        (`Abilities.member_labels`). Owner, adoption, namespace, Service, published addresses and
        permissions are no part of it.
        """
        return digest(self.name, self.spec and _facts(self.spec), sorted(self.options.items()))


NAMED_RANGES = 10
"""Source ranges that a message names."""


def family_of(text: str) -> str:
    """Returns the IP family of an address or a CIDR."""
    return "IPv6" if ":" in text else "IPv4"


def no_client_admitted(spec: BalancerSpec) -> Misconfigured:
    """Returns the refusal of source ranges that are all of other IP families."""
    families, ranges = " and ".join(spec.families), sorted(spec.source_ranges)
    more = f" and {len(ranges) - NAMED_RANGES} more" if len(ranges) > NAMED_RANGES else ""
    return Misconfigured(
        f"the load balancer has {families} only, and no allowed source range is {families}: "
        f"{', '.join(ranges[:NAMED_RANGES])}{more}. It is not changed. Fix: add a range of "
        f"{families}, or remove all ranges to allow every client"
    )


def foreign_refused(
    wish: Wish, annotation: str = "pileus.dev/adopt", more: str = ""
) -> Misconfigured:
    """Returns the refusal of a load balancer that is not proven to be the Service's.

    It does not say whether there is one of that ID, nor whose it is: the author of the Service may
    be anyone. Raise it also if there is none. `more` is what an operator may have to do besides;
    it must not depend on the load balancer either.
    """
    namespace = wish.namespace or "of the Service"
    return Misconfigured(
        f"annotation {annotation}: the load balancer that it names was not created for this "
        f"Service, or does not exist, and namespace {namespace} may not use others. Fix: remove "
        "the annotation to get a load balancer of its own, or ask an operator to add the "
        f"namespace to --trusted-namespaces{more}"
    )


REACHABLE = (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP)
"""Addresses of members that a balancer may send to; some clouds know members by nothing else."""


def _facts(spec: BalancerSpec) -> list[object]:
    """Returns the desired state in a fixed order and spelling."""
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
    """Cached, because a thousand Services share one set of a thousand members."""
    return digest(sorted(map(_member_facts, members)))


def _member_facts(node: NodeRef) -> tuple[str, ...]:
    """Returns what counts of a member. So does the order of addresses: clouds use the first."""
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
    """`TCP`, `UDP` or `SCTP`."""
    error: str = ""
    """Why the port does not work, as one CamelCase word, with the cloud's own prefix where the word
    is not Kubernetes' (`acme.example/PortInUse`); empty if it works."""


@dataclass(frozen=True, slots=True)
class Ingress:
    """One address for clients: an IP address, a host name, or both of one entry."""

    ip: str = ""
    """Empty if the entry has only a host name."""
    hostname: str = ""
    """Empty if the entry has only an IP address."""
    proxied: bool = False
    """Whether the load balancer terminates connections itself (ipMode `Proxy`; else `VIP`)."""
    ports: tuple[PortStatus, ...] = ()
    """The state of every port of the balancer; empty if the cloud does not report it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about a load balancer that the user should read, recorded as an event."""

    reason: str
    """One CamelCase word, such as `FloatingIPReused`."""
    message: str
    """What happened or has no effect, and what to do. It must not contain anything that differs
    between two observations of an unchanged load balancer, such as a time: each new message is a
    new event."""
    is_warning: bool = False
    """Whether the user should act: an event of type Warning instead of Normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balancer:
    """A load balancer as the core sees it."""

    id: str
    """The cloud's ID, as users see it and name it for adoption."""
    state: BalancerState
    """What the core may do with it now."""
    ingress: tuple[Ingress, ...] = ()
    """Addresses for clients. Published when the state is READY and nothing is left to change."""
    check_again_in: float | None = None
    """Seconds until the core checks it again. None: while it is pending or provisioning, after 1 s,
    then less often up to every 15 s; when it is ready, at the next full check."""
    problem: str = ""
    """Why it failed, or is not ready for longer than usual, in the cloud's own words."""
    members: int | None = None
    """How many members it has now; None: not known. Guards against losing most of them at once."""
    options: Mapping[str, str] | None = field(default=None, hash=False)
    """Values of options that are in effect, by name, as far as the cloud shows them. The core
    compares them with `Wish.options`: a plan shows a replacement if an option with `RECREATE` was
    changed, and warns if one with `CREATE_ONLY` was. None: not known."""
    owner: Owner | None = None
    """The owner in its mark; None: it has none. If the load balancer that is named in `Wish.adopts`
    serves another existing Service, or another cluster, the core refuses to adopt it, whatever
    `Wish.may_use_foreign` says."""
    is_shareable: bool = False
    """Whether several Services may use it. The core then lets a Service adopt it that serves
    another existing one, and the provider keeps the parts of both apart."""
    notices: tuple[Notice, ...] = ()
    """Messages for the user. Each is recorded as an event on the Service when it first appears,
    and again only if it was missing from a full check in between."""
    annotations: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Annotations that the core keeps on the Service, such as the ID of the load balancer. They
    are written together with `ingress`, and like it they must be complete in every observation: an
    annotation that is missing here is removed. Only names that the provider declares with
    `Role.ADOPTS` or `Role.REPORTED` are written. A value with `Role.ADOPTS` that the user set is
    never changed."""


class Effect(StrEnum):
    """What a change does, as a plan shows it."""

    CREATE = "+"
    """Something is created."""
    UPDATE = "~"
    """Something is changed in place."""
    REPLACE = "±"
    """Connections break, and addresses may change."""
    DELETE = "-"
    """Something is deleted."""


class Part(StrEnum):
    """What a change touches. With `pileus.dev/manage: members` only MEMBERS changes are made."""

    WHOLE = "whole"
    """Anything other or more than members."""
    MEMBERS = "members"
    """Members only, and nothing else."""
    RECORD = "record"
    """Only what the provider records about it, such as a fingerprint in a tag: it is already as
    desired. Such a change is made, but plans do not show it, no event announces it, and it does
    not count as a repair of drift. It must change nothing that clients or users of the cloud can
    notice."""


class Change(Protocol):
    """One line of a plan, and one unit of `apply`. Frozen, comparable, and without secrets."""

    @property
    def effect(self) -> Effect:
        """What it does."""
        ...

    @property
    def summary(self) -> str:
        """What it is about, in one line for users: `port 80/TCP of lb-1`."""
        ...

    @property
    def part(self) -> Part:
        """What it touches."""
        ...


class Seen(Protocol):
    """The observed state of one owner's load balancer: the provider's own frozen type."""

    @property
    def balancer(self) -> Balancer | None:
        """The owner's load balancer; if there is none, the one that the wish would adopt."""
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
    """Load balancers of this cloud. Used by the service controller; see the module's text."""

    async def owners(self, cluster: str) -> frozenset[Owner]:
        """Returns every owner of this cluster that has any object here, also parts left by a crash.

        Raises CloudError if the list is incomplete.
        """
        ...

    async def observe(
        self, wishes: Sequence[Wish], *, deep: bool
    ) -> Mapping[Owner, SeenT | Failure]:
        """Returns the observed state for each wish, read after the call began.

        An owner that is missing from the answer is unknown: that never means that there is no load
        balancer. `Failure` reports why one is unknown and affects no other. Raises CloudError only
        if the whole observation failed.

        With `deep=False` (quick check), the parts of a load balancer that carries the wish's
        fingerprint need not be read; `changes` then returns nothing. With `deep=True` (full check)
        everything is read, because manual changes do not update the fingerprint.
        """
        ...

    def changes(self, wish: Wish, seen: SeenT) -> tuple[ChangeT, ...]:
        """Returns what can be changed now, in order. Pure: no I/O, clock or randomness.

        Empty if the load balancer is up to date, or if the cloud is busy with it. Raises
        Unsupported, Misconfigured or another CloudError for a wish that cannot be fulfilled.
        """
        ...

    async def apply(self, change: ChangeT, seen: SeenT) -> SeenT:
        """Make one change. Returns the state after it, so that no new observation is needed.

        Idempotent: applying a change twice has the effect of applying it once; deleting a missing
        object succeeds. Raises Conflict if the cloud is busy, or if the state is not the one that
        was observed.
        """
        ...

    def lock_key(self, wish: Wish) -> str:
        """Returns a key: wishes of one key are never worked on at once. Usually the owner's UID."""
        ...
