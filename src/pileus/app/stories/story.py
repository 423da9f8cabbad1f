"""What is told of one object, and what its reader should do next. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pileus.app.stories.advice import ADVICE, OTHERWISE
from pileus.kube.model.core_v1 import ObjectReference
from pileus.objects.planned import Planned


class Standing(StrEnum):
    """How the object stands, in a word or two."""

    AS_WANTED = "as wanted"
    IN_WORK = "in work"
    """Something is to be done, and nothing is in the way."""
    WAITING = "waiting"
    STUCK = "stuck"
    NOT_OURS = "not looked after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something that was said of the object: by a condition, an event, or a look just now."""

    source: str
    reason: str
    message: str
    at: datetime | None = None
    count: int = 1
    is_now: bool = False
    """Whether it still holds: events tell of the past."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who may change things; `holder` is empty if nobody does."""

    lock: str
    holder: str = ""
    renewed: datetime | None = None
    is_alive: bool = False
    problem: str = ""
    """Why it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    about: ObjectReference
    created: datetime | None = None
    is_ours: bool
    wanted: tuple[str, ...] = ()
    observed: tuple[str, ...] = ()
    changes: tuple[Planned, ...] = ()
    waits: tuple[str, ...] = ()
    """What is waited for beside what the changes wait for."""
    remarks: tuple[Remark, ...] = ()
    owner: tuple[str, ...] = ()
    leader: Leader | None = None
    """None: leader election is off, and no lease tells who works."""

    @property
    def standing(self) -> Standing:
        if not self.is_ours:
            return Standing.NOT_OURS
        if any(remark.is_now for remark in self.remarks):
            return Standing.STUCK
        if self.waits or any(change.waits_for for change in self.changes):
            return Standing.WAITING
        return Standing.IN_WORK if self.changes else Standing.AS_WANTED

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What a human should do now; never empty."""
        return tuple(dict.fromkeys(_steps(self))) or ("nothing",)


def _steps(story: Story) -> Iterator[str]:
    leader = story.leader
    if not story.is_ours:
        return
    if leader and not leader.problem and not leader.is_alive:
        yield f"start the manager, or see why it does not lead: the lease {leader.lock} is free"
    current = [remark for remark in story.remarks if remark.is_now]
    yield from (_advice(remark) for remark in current)
    if story.standing is Standing.WAITING:
        yield "wait; look again if it takes longer than it should"
    elif story.standing is Standing.IN_WORK and (leader is None or leader.is_alive):
        yield "nothing: the manager does this within seconds; if it does not, see its log"


def _advice(remark: Remark) -> str:
    return f"{ADVICE.get(remark.reason, OTHERWISE)} ({remark.reason})"


def newest_first(remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    """What holds now, then what was said, the newest first."""

    def order(remark: Remark) -> tuple[bool, float]:
        return not remark.is_now, -(remark.at.timestamp() if remark.at else 0.0)

    return tuple(sorted(remarks, key=order))
