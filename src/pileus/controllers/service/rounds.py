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
    """Queues each Service whose balancer should have other members than it was given.

    A Service that failed or is waited for gets them with its next pass. A pass that is under way
    began with earlier members: its result is compared with the current members when it ends.
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
        self._open = PerObject[str, bool]("services/member-updates")
        """Services that the rounds touched, and whether a pass was under way in the latest one."""

    async def reconcile(self, key: str) -> Result:  # noqa: ARG002 -- there is but one
        wanted = facts_of(self._members())
        known: dict[int, bool] = {}
        for uid, note in self._notes.items():
            is_held = self._queue.is_held(uid)
            if is_held or _differs(note, wanted, known):
                self._touch(uid, is_held=is_held)
        return DONE

    def finished(self, uid: str) -> None:
        """A pass over the Service has ended, successfully or not.

        Queues the Service again if a round came during the pass and the balancer was not given the
        current members: once per round, so this ends when the nodes stop changing.
        """
        if uid not in self._open:
            return
        note = self._notes.find(uid)
        if self._open[uid] and note and _differs(note, facts_of(self._members()), {}):
            self._touch(uid, is_held=False)
            return
        del self._open[uid]
        if not self._open:
            elapsed = asyncio.get_running_loop().time() - self._began
            self._metrics.node_round_duration.observe(elapsed)

    def _touch(self, uid: str, *, is_held: bool) -> None:
        """Queue the Service, now or, while a pass is under way, if need be at its end."""
        if not self._open:
            self._began = asyncio.get_running_loop().time()
        self._open[uid] = is_held
        if not is_held:
            self._queue.add(uid, Priority.REFRESH)


def _differs(note: Note, wanted: frozenset[object], known: dict[int, bool]) -> bool:
    """Services that were settled together share one set of members, which is compared once."""
    if note.settled is None or note.settled.spec is None or note.failing_since is not None:
        return False
    given = note.settled.spec.members
    if id(given) not in known:
        known[id(given)] = facts_of(given) != wanted
    return known[id(given)]
