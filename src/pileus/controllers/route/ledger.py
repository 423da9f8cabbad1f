"""What this process remembers of routes: nodes that it saw being deleted, and what it created.

Forgotten with the process: where a cloud's routes do not say whose they are, those of nodes that
were deleted while no manager ran stay until their range is wanted again.
"""

import asyncio
from collections.abc import Iterable

from pileus.cloud.model import Route
from pileus.controllers.route.ownership import Departed, destination_of, readable_ranges
from pileus.controllers.route.plan import Memory
from pileus.kube.model.core_v1 import Node
from pileus.objects.ranges import Range

SETTLING = 60.0
"""Seconds in which a cloud's list shows what was created, and no longer what was deleted."""


class Ledger:
    def __init__(self) -> None:
        self._departed: dict[Departed, float] = {}
        self._created: dict[tuple[str, Range], float] = {}

    def departed(self, node: Node) -> None:
        """Record that the node was reported as deleted.

        This says whose its routes are, and not that it does not exist: a relist that lacks the
        node reports it, too.
        """
        for each in readable_ranges(node):
            self._departed[Departed(node.metadata.name, node.metadata.uid, each)] = _now()

    def created(self, routes: Iterable[Route]) -> None:
        for route in routes:
            destination = destination_of(route.destination)
            if destination is not None and route.target is not None:
                self._created[route.target, destination] = _now()

    def deleted(self, routes: Iterable[Route]) -> None:
        for route in routes:
            destination = destination_of(route.destination)
            if destination is not None:
                self._created.pop((route.target or "", destination), None)

    def memory(self) -> Memory:
        """What is to be believed now."""
        horizon = _now() - SETTLING
        self._created = {key: at for key, at in self._created.items() if at > horizon}
        return Memory(frozenset(self._departed), frozenset(self._created))

    def tidy(self, unwanted: Iterable[Route]) -> None:
        """Forget the nodes of which no route is left to delete, once lists have settled."""
        horizon = _now() - SETTLING
        left = {destination_of(route.destination) for route in unwanted}
        self._departed = {
            each: at for each, at in self._departed.items() if at > horizon or each.range in left
        }


def _now() -> float:
    return asyncio.get_running_loop().time()
