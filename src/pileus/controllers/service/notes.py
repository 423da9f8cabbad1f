"""What a process remembers of each Service between two passes. Losing it loses nothing."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil, inf

from pileus.cloud.balancer import Wish
from pileus.controllers.service.reasons import Stage
from pileus.runtime.backoff import Exponential, Pacing
from pileus.runtime.memory import PerObject

SLOTS = 10
"""Deep looks fall due at so many moments of a period: spread, and still many in one call."""
WAITS = Exponential(1.0, 15.0)
"""Seconds between two looks at a balancer on which the cloud is at work."""


@dataclass(slots=True, eq=False)
class Note:
    deep_due: float
    """When the parts of its balancer are to be read again, whatever the mark says; inf: never."""
    known: bool = False
    """Whether something in the cloud is, or may be, there under its UID."""
    settled: Wish | None = None
    """What was fully met last."""
    ensuring: bool = False
    """Whether it was announced that something is being done, and not yet that it is done."""
    deleting: bool = False
    """Likewise for its deletion."""
    stage: Stage = Stage.ENSURE
    hosts: str = ""
    """Who is to be a member, while only members are changed."""
    update_failed: bool = False
    """Whether the last host update failed: the next pass ensures everything, as in Go."""
    failing_since: float | None = None
    told: str = ""
    """The reason that was told last for failing."""
    reworded: float = -inf
    waiting_since: float | None = None
    looks: int = 0
    held_since: float | None = None
    accepted: bool = False
    """Whether the cloud has said that it takes away what was there."""
    pacing: Pacing = field(default_factory=Pacing)
    """Of writes of the condition that explains a failure."""
    missing_since: float | None = None
    """When the cloud first showed nothing, of a Service that is to be released."""

    def wait(self, now: float, asked: float | None) -> float:
        """Seconds until the next look at a balancer that is not ready."""
        if self.waiting_since is None:
            self.waiting_since = now
        self.looks += 1
        return WAITS.delay(self.looks) if asked is None else max(asked, 0.0)

    def waited(self, now: float) -> float:
        return 0.0 if self.waiting_since is None else now - self.waiting_since

    def settle(self, wish: Wish | None) -> None:
        """All is well."""
        self.settled = wish
        self.ensuring = False
        self.failing_since = self.waiting_since = self.held_since = None
        self.looks, self.told, self.update_failed = 0, "", False


class Notes:
    """One note per UID."""

    def __init__(self, period: float, chance: random.Random, now: Callable[[], float]) -> None:
        self._period = period
        self._random = chance
        self._now = now
        self._offset = chance.random() * period / SLOTS
        self._notes = PerObject[str, Note]("services/notes")
        self._released = PerObject[str, None]("services/released")

    def of(self, uid: str) -> Note:
        if uid not in self._notes:
            self._notes[uid] = Note(self._due())
        return self._notes[uid]

    def find(self, uid: str) -> Note | None:
        return self._notes.get(uid)

    def forget(self, uid: str) -> None:
        self._notes.pop(uid, None)
        self._released.pop(uid, None)

    def release(self, uid: str) -> None:
        """Nothing is in the cloud for it any more: when it goes, there is nothing to be done."""
        self._notes.pop(uid, None)
        self._released[uid] = None

    def recall(self, uid: str, note: Note) -> None:
        """It could not be released after all: what was known of it is needed once more."""
        self._released.pop(uid, None)
        self._notes[uid] = note

    def is_released(self, uid: str) -> bool:
        return uid in self._released and uid not in self._notes

    def looked_deeply(self, note: Note) -> None:
        note.deep_due = self._due()

    def items(self) -> Iterator[tuple[str, Note]]:
        yield from list(self._notes.items())

    def count(self, holds: Callable[[Note], bool]) -> int:
        return sum(1 for note in self._notes.values() if holds(note))

    def _due(self) -> float:
        """A period from now, give or take a half, at the next of the common moments; or never."""
        if not self._period:
            return inf
        slot = self._period / SLOTS
        at = self._now() + self._period * self._random.uniform(0.5, 1.5)
        return ceil((at - self._offset) / slot) * slot + self._offset
