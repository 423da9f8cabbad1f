"""What the process remembers of Services between passes. A restart loses it and nothing else.

A note is a frozen value that is replaced as a whole, so a plan can be made from it. Deleted
Services are remembered until their load balancers are cleaned up.
"""

import random
from collections.abc import Callable, Container, Iterator
from dataclasses import field
from enum import StrEnum
from math import ceil, inf

from pileus.cloud.balancer import Notice, Wish
from pileus.cloud.model import NodeRef
from pileus.dataclass import dataclass, replace
from pileus.kube.model.core_v1 import Service
from pileus.kube.model.meta import ObjectMeta
from pileus.runtime.backoff import Exponential, Pacing
from pileus.runtime.memory import PerObject

SLOTS = 10
"""Full checks are due at this many moments of a period: spread, yet many share one call."""
WAITS = Exponential(1.0, 15.0, factor=1.3)
"""Seconds between two checks of a load balancer that the cloud is working on."""
TICK = 1.0
"""Such checks are due at shared moments, this many seconds apart: many of them share one call."""
REWORD_AFTER = 300.0
"""Seconds before a condition's message is rewritten although only its wording has changed."""
PAUSE = 10.0
"""Seconds between the deletion of a Service and the start of its clean-up."""
SUSPICION = 300.0
"""Seconds for which further deletions are not trusted either, once too many Services vanished."""
WINDOW = 600.0
"""Seconds in which vanished Services are counted together."""
FEW = 5
"""Services that may always vanish within a window."""
FRACTION = 0.2
"""The fraction of all served Services that may vanish within a window."""


class Stage(StrEnum):
    """What a pass was doing, in the Go framework's words for its failure."""

    ENSURE = "failed to ensure load balancer"
    CHECK = "failed to check if load balancer exists before cleanup"
    DELETE = "failed to delete load balancer"
    ADD_FINALIZER = "failed to add load balancer cleanup finalizer"
    REMOVE_FINALIZER = "failed to remove load balancer cleanup finalizer"
    PUBLISH = "failed to update load balancer status"
    UPDATE = "Error updating load balancer with new hosts"
    CLEAN_UP = "Error deleting load balancer"

    @property
    def announced(self) -> "Stage":
        """The stage that an event announces: that a load balancer is ensured, or deleted."""
        return Stage.ENSURE if self is Stage.ENSURE else Stage.DELETE


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the pass is doing, or was doing when it ended."""

    stage: Stage = Stage.ENSURE
    hosts: str = ""
    """The desired members, during a host update."""


FIRST = Attempt()


@dataclass(frozen=True, slots=True)
class Failing:
    since: float
    reason: str = ""
    """The reason in the last report; "" before the first report."""
    asked: object = None
    """What the Service asked for then (`asked_for`)."""
    host_update: bool = False
    """Whether a host update failed: until the Service is up to date, passes ensure everything."""
    members: frozenset[NodeRef] | None = None
    """The members with which it failed; None: they do not matter, because there is certainly no
    load balancer, or there is to be none."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The cloud is working on the load balancer."""

    since: float
    checks: int = 0


@dataclass(frozen=True, slots=True)
class Deletion:
    accepted_at: float | None = None
    """When the cloud accepted the deletion of a load balancer that was found, with all that was to
    be deleted beside it. None again if more is found."""
    missing_since: float | None = None
    """When the cloud first reported no load balancer although the finalizer is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    full_check_due: float = inf
    """When all parts of the load balancer are compared again; inf: never."""
    known: bool = False
    """Whether a load balancer with this owner exists, or may exist."""
    settled: Wish | None = None
    """The desired state that was last reached in full."""
    announced: Stage | None = None
    """`ENSURE` or `DELETE` between the events that it has begun and that it is done."""
    doing: Attempt = FIRST
    begun: tuple[Stage, float] | None = None
    """What began with the first change since the desired state was last reached, and when."""
    failing: Failing | None = None
    waiting: Waiting | None = None
    made: tuple[str, ...] = ()
    """The changes that the cloud accepted last, since the desired state was last reached."""
    members_kept_since: float | None = None
    """Since when members are kept back until a second check of the nodes."""
    deletion: Deletion = Deletion()
    notices: tuple[Notice, ...] = ()
    """The provider's notices that are recorded as events."""
    condition_written: float = -inf
    condition_asked: object = None
    """What the Service asked for when its condition was last written (`asked_for`)."""
    pacing: Pacing = field(default_factory=Pacing, compare=False)
    """Backs off writes of a condition that the API server refuses."""

    def may_reword(self, now: float, asked: object) -> bool:
        """Returns whether the message of the condition may be reworded.

        At once if the Service asks for something else now: the message is about what it was.
        """
        return asked != self.condition_asked or now - self.condition_written >= REWORD_AFTER

    def waited(self, now: float) -> float:
        """Returns for how many seconds the cloud has been working on the load balancer."""
        return 0.0 if self.waiting is None else now - self.waiting.since


def is_keeping_members(note: Note) -> bool:
    return note.members_kept_since is not None


def is_waiting(note: Note) -> bool:
    return note.waiting is not None


def is_failing(note: Note) -> bool:
    """Returns whether a Service that exists is failing."""
    return note.failing is not None and note.doing.stage is not Stage.CLEAN_UP


UNKNOWN = Note()
"""The note of a Service of which nothing is remembered."""


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
        """Returns the note; a new one if there is none."""
        if uid not in self._notes:
            self._notes[uid] = Note(full_check_due=self._due())
        return self._notes[uid]

    def find(self, uid: str) -> Note | None:
        return self._notes.get(uid)

    def update(self, uid: str, **facts: object) -> Note:
        """Replace these fields of the note, and return it."""
        note = self.of(uid)
        for name, value in facts.items():
            if getattr(note, name) != value:
                self._notes[uid] = note = replace(note, **facts)
                break
        return note

    def wait(self, uid: str, asked: float | None) -> float:
        """Returns the seconds until the next check of a load balancer that is not ready.

        `asked`: what the cloud asked for; None leaves it to the back-off.
        """
        now = self._now()
        before = self.of(uid).waiting or Waiting(now)
        waiting = replace(before, checks=before.checks + 1)
        self.update(uid, waiting=waiting)
        if asked is not None:
            return max(asked, 0.0)
        return ceil((now + WAITS.delay(waiting.checks)) / TICK) * TICK - now

    def progress(self, uid: str, made: tuple[str, ...]) -> None:
        """Record changes that the cloud accepted: the back-off of checks starts over.

        It goes on if these changes were made before: then they make no progress.
        """
        note = self.of(uid)
        if not made or made == note.made:
            return
        waiting = replace(note.waiting, checks=0) if note.waiting else None
        self.update(uid, made=made, waiting=waiting)

    def found(self, uid: str) -> None:
        """Record that there is a load balancer."""
        deletion = self.of(uid).deletion
        if deletion.missing_since is not None:
            deletion = replace(deletion, missing_since=None)
        self.update(uid, known=True, deletion=deletion)

    def fail_with(self, uid: str, members: frozenset[NodeRef] | None) -> None:
        """Record the members of a Service that fails; None: they do not matter."""
        failing = self.of(uid).failing or Failing(self._now())
        self.update(uid, failing=replace(failing, members=members))

    def settle(self, uid: str, desired: Wish) -> None:
        """Record that the desired state is reached and published."""
        self.update(
            uid,
            settled=desired,
            announced=None,
            begun=None,
            failing=None,
            waiting=None,
            made=(),
            members_kept_since=None,
            deletion=Deletion(),
        )

    def forget(self, uid: str) -> None:
        self._notes.pop(uid, None)
        self._released.pop(uid, None)

    def release(self, uid: str) -> None:
        """Record that the finalizer is being removed: the deletion needs no clean-up."""
        self._notes.pop(uid, None)
        self._released[uid] = None

    def restore(self, uid: str, note: Note) -> None:
        """Undo `release`: the finalizer could not be removed."""
        self._released.pop(uid, None)
        self._notes[uid] = note

    def is_released(self, uid: str) -> bool:
        return uid in self._released and uid not in self._notes

    def checked_in_full(self, uid: str) -> None:
        self.update(uid, full_check_due=self._due())

    def items(self) -> Iterator[tuple[str, Note]]:
        yield from list(self._notes.items())

    def count(self, holds: Callable[[Note], bool]) -> int:
        return sum(1 for note in self._notes.values() if holds(note))

    def _due(self) -> float:
        """Returns 0.5 to 1.5 periods from now, at the next of the shared moments; inf if never."""
        if not self._period:
            return inf
        slot = self._period / SLOTS
        at = self._now() + self._period * self._random.uniform(0.5, 1.5)
        return ceil((at - self._offset) / slot) * slot + self._offset


@dataclass(frozen=True, slots=True)
class DeletedService:
    service: Service
    """Its last known state; of an orphan only the UID."""
    since: float


@dataclass(slots=True)
class DeletedServices:
    """Services that no longer exist and whose load balancers are still to be cleaned up.

    A Service that is deleted in the regular way loses its finalizer last and is not among them.
    One whose finalizer was removed by force is. So would be every Service if the cluster's data
    were lost or replaced: if many Services vanish at once, nothing is cleaned up, and their load
    balancers are kept as orphans.
    """

    _deleted: PerObject[str, DeletedService] = field(
        default_factory=lambda: PerObject("services/deleted")
    )
    _cleaned_up: dict[str, float] = field(default_factory=dict[str, float])
    """By UID: when the clean-up of a Service ended, within the last window."""
    _suspicious_until: float = -inf

    def add(self, service: Service, now: float) -> None:
        self._deleted[service.metadata.uid] = DeletedService(service, now)

    def add_orphan(self, uid: str) -> None:
        """Add an owner of which nothing is known but the tag in the cloud."""
        self._deleted.setdefault(uid, DeletedService(orphaned_owner(uid), -inf))

    def find(self, uid: str) -> DeletedService | None:
        return self._deleted.get(uid)

    def returned(self, uid: str) -> None:
        """The Service exists after all and does not count as vanished."""
        self._deleted.pop(uid, None)

    def cleaned_up(self, uid: str, now: float) -> None:
        """Nothing is left of it. A vanished Service counts for the rest of the window."""
        deleted = self._deleted.pop(uid, None)
        if deleted is not None and not is_orphan(deleted.service):
            self._cleaned_up[uid] = now

    def too_many(self, served: int, now: float, existing: Container[str] = frozenset()) -> int:
        """Returns how many Services must be kept as orphans because too many vanished; 0 if none.

        `served`: the number of Services that exist and are served. `existing`: UIDs of Services
        that do not count, because they are known to exist.
        """
        self._cleaned_up = {uid: at for uid, at in self._cleaned_up.items() if now - at < WINDOW}
        vanished = len(self._vanished(existing))
        lost = vanished + len(self._cleaned_up)
        is_much = lost > max(FEW, FRACTION * (served + lost))
        return vanished if is_much or now < self._suspicious_until else 0

    def keep_as_orphans(self, now: float, existing: Container[str] = frozenset()) -> None:
        """Forget all vanished Services: their load balancers are orphans from now on."""
        self._suspicious_until = now + SUSPICION
        for uid in self._vanished(existing):
            del self._deleted[uid]

    def former(self, service: Service) -> DeletedService | None:
        """Returns a deleted Service of the same name that is still to be cleaned up."""
        return next(
            (each for each in self._deleted.values() if _has_same_name(each.service, service)), None
        )

    def __contains__(self, uid: str) -> bool:
        return uid in self._deleted

    def _vanished(self, existing: Container[str]) -> list[str]:
        services = ((uid, each.service) for uid, each in self._deleted.items())
        return [uid for uid, one in services if not is_orphan(one) and uid not in existing]


def orphaned_owner(uid: str) -> Service:
    """Returns a Service of which only the UID is known, from its tag in the cloud."""
    return Service(metadata=ObjectMeta(uid=uid))


def is_orphan(service: Service) -> bool:
    return not service.metadata.name


def _has_same_name(one: Service, other: Service) -> bool:
    name, former = other.metadata, one.metadata
    return (name.namespace, name.name) == (former.namespace, former.name) and name.uid != former.uid
