"""Which routes of the cloud are ours to delete. Pure.

The Go framework takes every route into the cluster's range for its own, also those of another
cluster or of an operator. Here a route is ours if the cloud says that it was created for this
cluster; or, where clouds cannot say, if it leads to exactly the pod range of a node that we know
or saw being deleted, and also by way of such a node. Where clouds cannot say, a route to exactly
the pod range of a node is also ours to replace if it leads to a node that does not exist: that node
had the range before, and was deleted while no manager ran.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pileus.cloud.model import Route
from pileus.kube.model.core_v1 import Node
from pileus.objects import ownership as nodes
from pileus.objects.ownership import Whose
from pileus.objects.ranges import Range, is_within, parse_range, pod_ranges_of, touches


class Ownership(StrEnum):
    """`--route-ownership`: by which rule a route is ours."""

    RECORDED = "recorded"
    CLUSTER_CIDR = "cluster-cidr"
    """The Go framework's rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    cluster: str
    ranges: tuple[Range, ...]
    """`--cluster-cidr`."""
    ownership: Ownership = Ownership.RECORDED
    whose: Whose = lambda _: nodes.Ownership.UNPROVEN

    def is_managed(self, node: Node) -> bool:
        """Whether the node gets routes; one of another cloud does not, and keeps those it has."""
        return self.whose(node) is not nodes.Ownership.FOREIGN

    def concerns(self, destination: Range) -> bool:
        """Whether a route to there may be ours at all."""
        if self.ownership is Ownership.CLUSTER_CIDR:
            return touches(destination, self.ranges)
        return is_within(destination, self.ranges)

    def allows(self, destination: Range) -> bool:
        """Whether a route to there may be created: one that we would never delete may not."""
        return self.ownership is Ownership.CLUSTER_CIDR or is_within(destination, self.ranges)


@dataclass(frozen=True, slots=True)
class Departed:
    """A pod range of a node that we saw being deleted."""

    node: str
    uid: str
    range: Range


class Records:
    """The pod ranges, names and UIDs of the nodes that we know, or saw being deleted."""

    def __init__(self, nodes: Iterable[Node], departed: Iterable[Departed], rules: Rules) -> None:
        known, gone = tuple(nodes), tuple(departed)
        self.names = {node.metadata.name for node in known} | {each.node for each in gone}
        managed = filter(rules.is_managed, known)
        self.assigned = {each for node in managed for each in readable_ranges(node)}
        """The ranges of nodes that are there now and get routes."""
        self._uids = {node.metadata.uid for node in known} | {each.uid for each in gone}
        self._uids.discard("")
        self._lengths = {len(uid) for uid in self._uids}
        self._ranges = {each.range for each in gone}
        for node in known:
            self._ranges.update(readable_ranges(node))

    def has(self, route: Route, destination: Range) -> bool:
        """Whether the route is one that we must have made.

        One that leads nowhere serves no node. The node of any other must be known.
        """
        if destination in self._ranges and (route.blackhole or route.target in self.names):
            return True
        return any(route.name[-length:] in self._uids for length in self._lengths)


def is_ours(route: Route, destination: Range, rules: Rules, records: Records) -> bool:
    """Whether we may delete the route if nobody wants it."""
    if not rules.concerns(destination):
        return False
    if rules.ownership is Ownership.CLUSTER_CIDR:
        return route.cluster in {None, "", rules.cluster}
    if route.cluster is not None:
        return route.cluster == rules.cluster
    return records.has(route, destination)


def is_left_over(route: Route, destination: Range, rules: Rules, records: Records) -> bool:
    """Whether the route leads to a node that does not exist, and its range has a new node.

    Such a route is ours to replace where the cloud cannot say whose it is.
    """
    if rules.ownership is not Ownership.RECORDED or not rules.concerns(destination):
        return False
    is_nodeless = bool(route.target) and route.target not in records.names
    return route.cluster is None and is_nodeless and destination in records.assigned


def readable_ranges(node: Node) -> tuple[Range, ...]:
    """The node's pod ranges, without those that are none."""
    found = (destination_of(text) for text in pod_ranges_of(node))
    return tuple(each for each in found if each is not None)


def destination_of(text: str) -> Range | None:
    """Where a route leads; None if that is no range, and so none of our business."""
    try:
        return parse_range(text)
    except ValueError:
        return None
