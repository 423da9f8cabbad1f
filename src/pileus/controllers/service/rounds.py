"""Nodes come and go in bursts: one round takes up what has come together, for all Services."""

import asyncio
from collections.abc import Callable

from pileus.cloud.model import NodeRef
from pileus.controllers.service.members import facts_of
from pileus.controllers.service.notes import Note, Notes
from pileus.runtime.memory import PerObject
from pileus.runtime.queue import Priority, WorkQueue
from pileus.runtime.reconcile import DONE, Result
from pileus.telemetry.metrics import Metrics

MEMBERS = "members"
"""The one key of the queue `node`."""
GATHER = 1.0
"""Seconds for which the first change of a burst waits for the others."""


class NodeRounds:
    """Asks for a pass over each Service whose balancer should have other members than it was given.

    One that failed, or is waited for, gets them with its next pass anyway.
    """

    def __init__(
        self,
        notes: Notes,
        members: Callable[[], frozenset[NodeRef]],
        queue: WorkQueue[str],
        metrics: Metrics,
    ) -> None:
        self._notes = notes
        self._members = members
        self._queue = queue
        self._metrics = metrics
        self._began = 0.0
        self._open = PerObject[str, None]("services/member-updates")

    async def reconcile(self, key: str) -> Result:  # noqa: ARG002 -- there is but one
        wanted = facts_of(self._members())
        known: dict[int, bool] = {}
        touched = [uid for uid, note in self._notes.items() if _differs(note, wanted, known)]
        if touched and not self._open:
            self._began = asyncio.get_running_loop().time()
        self._open.update(dict.fromkeys(touched))
        for uid in touched:
            self._queue.add(uid, Priority.REFRESH)
        return DONE

    def finished(self, uid: str) -> None:
        """A pass over the Service has ended, be it well or not."""
        if uid in self._open:
            del self._open[uid]
            if not self._open:
                elapsed = asyncio.get_running_loop().time() - self._began
                self._metrics.node_round_duration.observe(elapsed)


def _differs(note: Note, wanted: frozenset[object], known: dict[int, bool]) -> bool:
    """Services that were settled together share one set of members, which is compared once."""
    if note.settled is None or note.settled.spec is None or note.failing_since is not None:
        return False
    given = note.settled.spec.members
    if id(given) not in known:
        known[id(given)] = facts_of(given) != wanted
    return known[id(given)]
