"""What a cloud can do, and at which pace it may be called: declared by its provider.

    Cloud(name="acme", …, abilities=Abilities(affinity=Affinity.ON_OFF, marks_routes=True))

The controllers, the conformance laws and the simulation judge a provider by what it declares. The
defaults describe a cloud that can do everything and returns every list in one request. A
declaration that is wrong is found in two ways: `problems` reports contradictions when the provider
connects, and the conformance laws fail with the name of the ability that the cloud does not have.
"""

from collections.abc import Iterator
from dataclasses import field
from enum import StrEnum
from math import ceil, isfinite

from pileus.dataclass import dataclass


class Affinity(StrEnum):
    """Session affinity by client address (`spec.sessionAffinity: ClientIP`)."""

    NONE = "none"
    """Not available. A Service that asks for it is refused before the provider is called."""
    ON_OFF = "on-off"
    """On or off; the cloud chooses for how long. `BalancerSpec.sticky_seconds` is None or
    `DEFAULT_AFFINITY_SECONDS`, whatever `timeoutSeconds` of the Service is."""
    SECONDS = "seconds"
    """On for exactly the number of seconds that the Service asks for."""


DEFAULT_AFFINITY_SECONDS = 10800
"""Duration of session affinity if the Service does not set one: the API server's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedList:
    """One list of the cloud: what is in it, and how it is paged."""

    page_size: int | None = None
    """Items on one page; None if the list is always one request."""
    per_balancer: int = 0
    """Items for each load balancer in the account, such as its target groups."""
    per_machine: int = 0
    """Items for each machine."""
    per_route: int = 0
    """Items for each route. A list with routes is read by `Routes.list_routes`, not by checks of
    load balancers."""

    def requests(self, balancers: int = 0, machines: int = 0, routes: int = 0) -> int:
        """Returns how many requests the list costs in an account with so many of each."""
        if self.page_size is None:
            return 1
        items = (
            self.per_balancer * balancers + self.per_machine * machines + self.per_route * routes
        )
        return max(1, ceil(items / self.page_size))


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """How many requests observations of this cloud cost. Bounds of the laws and the simulation."""

    lists: int | tuple[PagedList, ...] = 1
    """Lists that a quick check of load balancers reads, such as one of load balancers and one of
    their tags. Every page of a list is a request. Name each list if they are paged differently;
    `page_size` and `items_per_balancer` then have no effect. Also name the lists of routes then."""
    page_size: int | None = None
    """Items on one page of the shortest-paged list; None if a list is always one request."""
    per_balancer: int = 0
    """Additional requests for each load balancer whose parts are read: in a full check, and
    whenever it has no fingerprint or another one than the desired state."""
    items_per_balancer: int = 1
    """Items for each load balancer in the longest list, such as target groups."""
    single_nodes: int = 0
    """Nodes up to which each machine is asked for separately instead of reading a list. Of more
    nodes, those are that the list lacks."""
    per_unknown_node: int = 0
    """Additional requests for each node without a provider ID of which no machine is found."""
    per_change: int | None = None
    """Requests that one call of `Balancers.apply` makes, at most, apart from those for each
    member (`per_member_change`); None: not bounded."""
    per_member_change: int = 0
    """Additional requests of `Balancers.apply` for each member that joins or leaves the load
    balancer. A cloud with members of their own for each port leaves `per_change` None."""

    def of_lists(self, balancers: int, machines: int = 0) -> int:
        """Returns how many requests all lists of an observation cost."""
        if isinstance(self.lists, int):
            items = max(balancers * self.items_per_balancer, machines)
            return self.lists * PagedList(page_size=self.page_size, per_machine=1).requests(
                machines=items
            )
        return sum(one.requests(balancers, machines) for one in self.lists if not one.per_route)

    def of_routes(self, routes: int, machines: int) -> int:
        """Returns how many requests a list of all routes costs, with that of their machines."""
        if isinstance(self.lists, int):
            page = PagedList(page_size=self.page_size, per_machine=1, per_route=1)
            return page.requests(routes=routes) + page.requests(machines=machines)
        found = [one for one in self.lists if one.per_route or one.per_machine]
        return sum(one.requests(machines=machines, routes=routes) for one in found) or 1

    def of_change(self, members: int) -> int | None:
        """Returns how many requests one change may make with which so many members join or leave.

        None: not bounded.
        """
        if self.per_change is None:
            return None
        return self.per_change + self.per_member_change * members

    def of_check(self, balancers: int, read: int, machines: int = 0) -> int:
        """Returns how many requests one observation may make.

        `balancers` and `machines` are the numbers of them in the account, `read` is how many load
        balancers have their parts read.
        """
        return self.of_lists(balancers, machines) + self.per_balancer * read

    def of_single_nodes(self, nodes: int, absent: int, unknown: int) -> int:
        """Returns how many requests for single machines one lookup of so many nodes may make.

        `absent` nodes have no machine, `unknown` of these no provider ID either.
        """
        asked = nodes if nodes <= self.single_nodes else absent if self.single_nodes else 0
        return asked + self.per_unknown_node * unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Budget of calls to one cloud, shared by all controllers."""

    per_second: float = 50
    """Calls per second, on average, to begin with."""
    burst: int = 100
    """Calls that may be made at once after a quiet period."""
    at_once: int = 20
    """Calls under way at the same time, to begin with."""
    growth: float = 20
    """How many times as many calls, per second and at the same time, may be made while the cloud
    answers quickly. A call that it throttles halves the pace. 1: never more than declared, for a
    cloud whose limits are known. Declare 5 % less than its limits then, of `per_second` and
    `burst`: calls may reach the cloud closer together than they left."""
    patience: float = 30
    """Seconds that a caller waits if the cloud asked for silence (`Throttled.retry_after`). During
    a longer silence calls fail at once with `Throttled`, so that no worker is blocked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds that one call may take. A call that takes longer is cancelled: `Unavailable`."""

    read: float = 60
    """Of a call that reads."""
    write: float = 600
    """Longer than for reads: cancelling a write leaves open what it did, and some clouds take
    minutes."""
    per_item: float = 0.2
    """Added for each node, wish or route beyond the first: some clouds must be asked one by one."""

    def of_call(self, *, writes: bool, items: int) -> float:
        base = self.write if writes else self.read
        return base + self.per_item * max(0, items - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """How concurrent lookups of nodes and observations of load balancers are combined."""

    window: float = 0.02
    """Seconds that the first caller waits for others."""
    size: int = 500
    """Nodes or wishes in one call, at most."""
    at_once: int = 2
    """Combined calls under way at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What this cloud can do. Every default is a cloud that can do it, and the usual pace."""

    affinity: Affinity = Affinity.SECONDS
    """What session affinity by client address its load balancers have."""
    families: frozenset[str] = frozenset({"IPv4", "IPv6"})
    """IP families that load balancers can have. For another one, `changes` raises Unsupported."""
    dual_stack: bool = True
    """Whether a load balancer can have both `families` at once. False: `changes` raises Unsupported
    for two, and a Service that only prefers two is asked for the first one."""
    source_ranges: bool = True
    """Whether load balancers can restrict clients (`spec.loadBalancerSourceRanges`). False: such a
    Service is refused before the provider is called."""
    marks_routes: bool = False
    """Whether every listed route says for which cluster it was created (`Route.cluster`). True is
    a promise: routes of deleted nodes are then found by it. False: each route may or may not."""
    members_by_provider_id: bool = False
    """Whether a member is only accepted with a provider ID. True: nodes that do not have one yet
    are left out of `BalancerSpec.members`, and Services that ask for members of all clouds
    (`pileus.dev/members: all`) are refused before the provider is called."""
    members_running: bool = False
    """Whether a member is only accepted while its machine runs. True: a node whose machine is
    stopped may be left out until it runs again, although it is in `BalancerSpec.members`."""
    members_by_address: bool = False
    """Whether a member is reached by an address of its node. True: a node without an address is
    not a member yet, although it is in `BalancerSpec.members`."""
    notes_at_full_check: bool = False
    """Whether only full checks write the fingerprint in the cloud: one write per load balancer
    after it was created or changed, when nothing else has to be changed."""
    changes_while_provisioning: bool = False
    """Whether a load balancer may be changed while the cloud is still provisioning it. Only such a
    provider may report `BalancerState.PROVISIONING`."""
    member_labels: frozenset[str] = frozenset()
    """Keys of node labels that the provider reads from `BalancerSpec.members`. A change of one of
    them is a change of members. Members carry no other labels."""
    resizes_volumes: bool = True
    """Whether volumes can grow. False: `Volumes.resize` raises Unsupported, and a claim that asks
    for more is refused before the provider is called."""
    requests: Requests | None = field(default_factory=Requests)
    """None: not bounded, for providers that ask for each object separately."""
    limits: Limits = field(default_factory=Limits)
    """The pace at which this cloud may be called."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    """How long one call may take."""
    batches: Batches = field(default_factory=Batches)
    """How concurrent calls are combined."""

    def stickiness(self, seconds: int | None) -> int | None:
        """Returns the `sticky_seconds` that a spec for this cloud has if a Service asks for these.

        Affinity.NONE returns None: the caller refuses such a Service.
        """
        if seconds is None or self.affinity is Affinity.NONE:
            return None
        return DEFAULT_AFFINITY_SECONDS if self.affinity is Affinity.ON_OFF else seconds

    def serves(self, families: tuple[str, ...]) -> bool:
        """Returns whether load balancers can have these IP families, together."""
        return self.families.issuperset(families) and (self.dual_stack or len(families) == 1)


def problems(abilities: object) -> tuple[str, ...]:
    """Returns every contradiction in what a provider declares; empty if there is none."""
    if not isinstance(abilities, Abilities):
        return (f"abilities must be an Abilities, not {type(abilities).__name__}",)
    wrong = (*_wrong_types(abilities), *_out_of_range(abilities))
    wrong = wrong or (*_wrong_lists(abilities),)
    return wrong or (*_too_slow(abilities),)


FAMILIES = frozenset({"IPv4", "IPv6"})
FLAGS = (
    "source_ranges",
    "dual_stack",
    "members_running",
    "marks_routes",
    "members_by_provider_id",
    "members_by_address",
    "notes_at_full_check",
    "changes_while_provisioning",
    "resizes_volumes",
)


def _wrong_types(abilities: Abilities) -> Iterator[str]:
    if not _is(abilities.affinity, Affinity):
        yield f"abilities.affinity must be an Affinity, not {abilities.affinity!r}"
    for name in FLAGS:
        if not _is(getattr(abilities, name), bool):
            yield f"abilities.{name} must be True or False, not {getattr(abilities, name)!r}"
    if (
        not _is(abilities.families, frozenset)
        or not abilities.families
        or (abilities.families - FAMILIES)
    ):
        yield (
            "abilities.families must be a frozenset of IPv4, IPv6 or both, "
            f"not {abilities.families!r}"
        )
    if not _is(abilities.member_labels, frozenset):
        yield "abilities.member_labels must be a frozenset of label keys"
    for name, kind in (("limits", Limits), ("deadlines", Deadlines), ("batches", Batches)):
        if not _is(getattr(abilities, name), kind):
            yield f"abilities.{name} must be {kind.__name__}, not {getattr(abilities, name)!r}"
    if not _is(abilities.requests, Requests | None):
        yield f"abilities.requests must be Requests or None, not {abilities.requests!r}"


def _is(value: object, kind: object) -> bool:
    return isinstance(value, kind)  # type: ignore[arg-type] -- a type or a union of types


LEAST = {
    "requests": {
        "lists": 1,
        "page_size": 1,
        "per_balancer": 0,
        "items_per_balancer": 1,
        "single_nodes": 0,
        "per_unknown_node": 0,
        "per_change": 1,
        "per_member_change": 0,
    },
    "limits": {"per_second": 0.001, "burst": 1, "at_once": 1, "growth": 1, "patience": 0},
    "deadlines": {"read": 0.001, "write": 0.001, "per_item": 0},
    "batches": {"window": 0, "size": 1, "at_once": 1},
}
"""The least value of every number in a declaration."""
LONGEST_LOOKUP = 240.0
"""Seconds that a lookup may take with everything that it waits for: controllers give up then."""


def _out_of_range(abilities: Abilities) -> Iterator[str]:
    for group, numbers in LEAST.items():
        declared = getattr(abilities, group, None)
        for name, least in numbers.items():
            value = getattr(declared, name, None)
            if value is None or (name == "lists" and isinstance(value, tuple)):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                yield f"abilities.{group}.{name} must be a number, not {value!r}"
            elif not isfinite(value) or value < least:
                yield f"abilities.{group}.{name} must be {least:g} or more, not {value!r}"


def _wrong_lists(abilities: Abilities) -> Iterator[str]:
    """Every number of a named list is 0 or more, and a page has at least one item."""
    requests = abilities.requests
    if requests is None or not isinstance(requests.lists, tuple):
        return
    if not requests.lists:
        yield "abilities.requests.lists must be a number, or name at least one PagedList"
    for place, one in enumerate(requests.lists):
        where = f"abilities.requests.lists[{place}]"
        if not _is(one, PagedList):
            yield f"{where} must be a PagedList, not {one!r}"
            continue
        if one.page_size is not None and one.page_size < 1:
            yield f"{where}.page_size must be 1 or more, not {one.page_size!r}"
        if min(one.per_balancer, one.per_machine, one.per_route) < 0:
            yield f"{where} must not have negative numbers"


def _too_slow(abilities: Abilities) -> Iterator[str]:
    """A lookup has to end by its own deadline: only that names the provider and the method."""
    call = abilities.deadlines.of_call(writes=False, items=abilities.batches.size)
    total = call + abilities.limits.patience + abilities.batches.window
    if total > LONGEST_LOOKUP:
        yield (
            f"a lookup of abilities.batches.size={abilities.batches.size} items may take "
            f"{total:g} s (deadlines.read, deadlines.per_item, limits.patience, batches.window), "
            f"more than the {LONGEST_LOOKUP:g} s that controllers wait: reduce one of them"
        )
