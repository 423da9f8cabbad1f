"""What this process remembers about routes: which nodes it knows, and which routes it created.

The record ends with the process. If the cloud's routes do not say whose they are, the route of a
node that was deleted while no manager ran stays until another node gets the same pod range.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import field

from pileus.cloud.model import Route
from pileus.controllers.route.ownership import DeletedNode, destination_of, readable_ranges
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import provider_id_of
from pileus.objects.ranges import Range

SETTLING = 60.0
"""Seconds after which the cloud's list shows what was created, and no longer what was deleted."""
PATIENCE = 60.0
"""Seconds that a new node has for getting addresses before its missing routes are reported."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The record at one moment."""

    deleted: frozenset[DeletedNode] = frozenset()
    created: frozenset[tuple[str, Range]] = frozenset()
    """Node and range of routes that were created so recently that a list may lack them, and that no
    list has shown yet."""
    known_for: Mapping[str, float] = field(default_factory=dict[str, float])
    """For how many seconds this process has known each node, by UID."""
    appeared: frozenset[str] = frozenset()
    """UIDs of nodes that were created while this process watched."""


NOTHING = Recorded()


class RouteRecord:
    """The record of one process."""

    def __init__(self) -> None:
        self._deleted: dict[DeletedNode, float] = {}
        self._created: dict[tuple[str, Range], float] = {}
        self._known: dict[str, float] = {}
        """Since when nodes are known, by UID."""
        self._appeared: set[str] = set()

    def nodes_seen(self, nodes: Iterable[Node]) -> None:
        """Record the nodes that exist; all others are forgotten."""
        now = _now()
        uids = (each.metadata.uid for each in nodes)
        self._known = {uid: self._known.get(uid, now) for uid in uids}
        self._appeared.intersection_update(self._known)

    def node_added(self, node: Node) -> None:
        """Record that the watch shows the node. If it is not known yet, it was just created."""
        uid = node.metadata.uid
        if uid not in self._known:
            self._known[uid] = _now()
            self._appeared.add(uid)

    def node_deleted(self, node: Node) -> None:
        """Record that a node of this cloud was reported as deleted.

        The record says whose its routes are, not that the node does not exist: a relist that lacks
        the node reports it, too.
        """
        name, uid, machine = node.metadata.name, node.metadata.uid, provider_id_of(node)
        for each in readable_ranges(node):
            self._deleted[DeletedNode(name, uid, each, machine)] = _now()

    def routes_created(self, routes: Iterable[Route]) -> None:
        for route in routes:
            destination = destination_of(route.destination)
            if destination is not None and route.target is not None:
                self._created[route.target, destination] = _now()

    def routes_listed(self, routes: Iterable[Route]) -> None:
        """Record what a list shows: if a later one lacks such a route, it was deleted."""
        for route in routes:
            destination = destination_of(route.destination)
            if destination is not None:
                self._created.pop((route.target or "", destination), None)

    def routes_deleted(self, routes: Iterable[Route]) -> None:
        """Record that routes were deleted: they are no longer taken to exist."""
        self.routes_listed(routes)

    def now(self) -> Recorded:
        """Returns what counts at this moment."""
        now = _now()
        self._created = {key: at for key, at in self._created.items() if at > now - SETTLING}
        known_for = {uid: now - since for uid, since in self._known.items()}
        return Recorded(
            deleted=frozenset(self._deleted),
            created=frozenset(self._created),
            known_for=known_for,
            appeared=frozenset(self._appeared),
        )

    def doubtful_for(self) -> float | None:
        """Returns in how many seconds a created route that no list has shown counts as lost.

        None: lists have shown all.
        """
        oldest = min(self._created.values(), default=None)
        return None if oldest is None else oldest + SETTLING - _now()

    def tidy(self, unwanted: Iterable[Route]) -> None:
        """Forget the deleted nodes that no unwanted route leads to, once lists have settled."""
        horizon = _now() - SETTLING
        left = {destination_of(route.destination) for route in unwanted}
        self._deleted = {
            each: at for each, at in self._deleted.items() if at > horizon or each.range in left
        }


def _now() -> float:
    return asyncio.get_running_loop().time()
