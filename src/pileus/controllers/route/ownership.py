"""Which node a pod range belongs to, and which routes belong to this cluster. Pure.

Ranges: two routes to one address would split or divert traffic, so of nodes whose pod ranges
overlap only one gets a route: the node that has one already, then the older node. Nodes of other
clouds do not take part: this cloud has no machine of theirs to route to.

Routes: the Go framework deletes every route into the cluster's range that no node needs, even
routes of another cluster or of an operator. Here a route is deleted only if the cloud says that it
was created for this cluster. If the cloud cannot say, it is deleted if its target is a known node
and its destination is exactly the pod range of a node of this cloud; or if it names a target that
is no known node and its destination is exactly the pod range of a node that needs a route now. A
route that names none, only the ID of a machine, may be that of a second cluster beside this one.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence

from pileus.cloud.model import Route
from pileus.controllers.route.settings import Ownership
from pileus.dataclass import dataclass, replace
from pileus.kube.model.core_v1 import Node
from pileus.objects import ownership as nodes
from pileus.objects.ownership import Whose
from pileus.objects.ranges import Range, is_within, parse_range, pod_ranges_of, touches


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The configuration that decides about ownership."""

    cluster: str
    ranges: tuple[Range, ...]
    """`--cluster-cidr`."""
    ownership: Ownership = Ownership.RECORDED
    whose: Whose = lambda _: nodes.Ownership.UNPROVEN
    checks_claims: bool = True
    """Whether new nodes with a provider ID wait for the node controller. Not without Instances:
    that controller does not run then."""

    def is_managed(self, node: Node) -> bool:
        """Returns whether the node gets routes. Nodes of other clouds keep the routes they have."""
        return self.whose(node) is not nodes.Ownership.FOREIGN

    def concerns(self, destination: Range) -> bool:
        """Returns whether a route to this destination may belong to the cluster at all."""
        if self.ownership is Ownership.CLUSTER_CIDR:
            return touches(destination, self.ranges)
        return is_within(destination, self.ranges)

    def allows(self, destination: Range) -> bool:
        """Returns whether a route may be created: not if it could never be deleted later."""
        return self.ownership is Ownership.CLUSTER_CIDR or is_within(destination, self.ranges)


@dataclass(frozen=True, slots=True)
class DeletedNode:
    """A pod range of a node of this cloud that was reported as deleted."""

    node: str
    uid: str
    range: Range
    machine: str = ""
    """Its provider ID."""


class KnownNodes:
    """The names, UIDs and pod ranges of existing nodes and of nodes reported as deleted."""

    def __init__(
        self, existing: Iterable[Node], deleted: Iterable[DeletedNode], rules: Rules
    ) -> None:
        known, gone = tuple(existing), tuple(deleted)
        self.names = {node.metadata.name for node in known} | {each.node for each in gone}
        managed = filter(rules.is_managed, known)
        self.assigned = {each for node in managed for each in readable_ranges(node)}
        """The pod ranges of existing nodes of this cloud."""
        self._uids = {node.metadata.uid for node in known} | {each.uid for each in gone}
        self._uids.discard("")
        self._lengths = {len(uid) for uid in self._uids}
        self._ranges = self.assigned | {each.range for each in gone}

    def has(self, route: Route, destination: Range) -> bool:
        """Returns whether only this controller can have created the route.

        A blackhole serves no node. The target of any other route must be a known node.
        """
        if destination in self._ranges and (route.blackhole or route.target in self.names):
            return True
        return any(route.name[-length:] in self._uids for length in self._lengths)


def is_ours(route: Route, destination: Range, rules: Rules, known: KnownNodes) -> bool:
    """Returns whether the route may be deleted if no node needs it."""
    if not rules.concerns(destination):
        return False
    if rules.ownership is Ownership.CLUSTER_CIDR:
        return route.cluster in {None, "", rules.cluster}
    if route.cluster is not None:
        return route.cluster == rules.cluster
    return known.has(route, destination)


def is_left_over(route: Route, destination: Range, rules: Rules, known: KnownNodes) -> bool:
    """Returns whether the target is named and no node, and a node of this cloud has the range now.

    Such a route may be replaced if the cloud cannot say whose it is.
    """
    if rules.ownership is not Ownership.RECORDED or not rules.concerns(destination):
        return False
    is_nodeless = bool(route.target) and route.target not in known.names
    return route.cluster is None and is_nodeless and destination in known.assigned


@dataclass(frozen=True, slots=True)
class Claim:
    """One pod range of a node, and whether the node gets a route to it."""

    text: str
    """As the node has it."""
    range: Range | None = None
    problem: str = ""
    """Why the node gets no route; empty if it gets one."""


def claims(
    managed: Sequence[Node],
    has_route: Callable[[str, Range], bool],
    is_allowed: Callable[[Range], bool],
) -> Mapping[str, Sequence[Claim]]:
    """Returns the claims of all nodes of this cloud, by the node's name."""
    parsed = {
        each.metadata.name: [_parsed(text) for text in pod_ranges_of(each)] for each in managed
    }
    made: dict[str, dict[str, Claim]] = {name: {} for name in parsed}
    families = {4: _TakenRanges(), 6: _TakenRanges()}
    for name, claim in _in_order(managed, parsed, has_route):
        made[name][claim.text] = _settled(name, claim, families, is_allowed)
    return {name: tuple(made[name][each.text] for each in found) for name, found in parsed.items()}


def readable_ranges(node: Node) -> tuple[Range, ...]:
    """Returns those of the node's pod ranges that are CIDRs."""
    found = (destination_of(text) for text in pod_ranges_of(node))
    return tuple(each for each in found if each is not None)


def destination_of(text: str) -> Range | None:
    """Returns the destination of a route; None if it is not a CIDR, and so not ours."""
    try:
        return parse_range(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class _TakenRange:
    start: int
    end: int
    range: Range
    node: str

    def __lt__(self, other: "_TakenRange") -> bool:
        return self.start < other.start


class _TakenRanges:
    """Ranges of one address family that do not overlap, each with its node."""

    def __init__(self) -> None:
        self._taken: list[_TakenRange] = []

    def take(self, wanted: Range, node: str) -> _TakenRange | None:
        """Take the range for the node; or return the range of another node that it overlaps."""
        start, end = int(wanted.network_address), int(wanted.broadcast_address)
        new = _TakenRange(start, end, wanted, node)
        place = bisect_left(self._taken, new)
        for near in self._taken[max(place - 1, 0) : place + 1]:
            if near.start <= end and start <= near.end:
                return None if (near.range, near.node) == (wanted, node) else near
        insort(self._taken, new)
        return None


def _parsed(text: str) -> Claim:
    try:
        return Claim(text, parse_range(text))
    except ValueError as error:
        return Claim(text, problem=f"its pod range {error}")


def _in_order(
    managed: Iterable[Node],
    parsed: Mapping[str, Sequence[Claim]],
    has_route: Callable[[str, Range], bool],
) -> list[tuple[str, Claim]]:
    """Returns all claims; of claims that overlap, the one that is served comes first."""

    def rank(node: Node, claim: Claim) -> tuple[bool, float, str]:
        name, born = node.metadata.name, node.metadata.creation_timestamp
        routed = claim.range is not None and has_route(name, claim.range)
        return not routed, born.timestamp() if born else float("inf"), name

    ranked = [
        (rank(node, claim), claim) for node in managed for claim in parsed[node.metadata.name]
    ]
    ranked.sort(key=lambda each: each[0])
    return [(place[-1], claim) for place, claim in ranked]


def _settled(
    name: str,
    claim: Claim,
    families: Mapping[int, _TakenRanges],
    is_allowed: Callable[[Range], bool],
) -> Claim:
    if claim.range is None:
        return claim
    if not is_allowed(claim.range):
        return replace(claim, problem=f"its pod range {claim.text} is not in --cluster-cidr")
    near = families[claim.range.version].take(claim.range, name)
    if near is None:
        return claim
    problem = f"its pod range {claim.text} overlaps {near.range} of node {near.node}"
    return replace(claim, problem=problem)
