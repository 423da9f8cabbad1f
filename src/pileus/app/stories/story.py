"""What is told of one object, and what its reader should do next. Pure."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pileus.app.stories.advice import ADVICE, OTHERWISE, again, command_for
from pileus.kube.model.core_v1 import ObjectReference
from pileus.objects.preview import Planned


class Standing(StrEnum):
    """The state of the object, in a word or two."""

    AS_WANTED = "up to date"
    IN_WORK = "in progress"
    """Changes are pending, and nothing blocks them."""
    WAITING = "waiting"
    STUCK = "blocked"
    NOT_OURS = "not managed"


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
        """What the user should do now; the last entry is a command: `run: …`."""
        return tuple(dict.fromkeys(_steps(self)))


def _steps(story: Story) -> Iterator[str]:
    leader = story.leader
    current = [remark for remark in story.remarks if remark.is_now]
    if not story.is_ours or story.standing is Standing.AS_WANTED:
        yield "nothing to do"
        yield f"run: {command_for(story.about)}"
        return
    if leader and not leader.problem and not leader.is_alive:
        namespace, _, name = leader.lock.partition("/")
        yield "start the manager, or check why no replica is the leader"
        yield f"run: kubectl get lease {name} --namespace={namespace}"
    for remark in current:
        yield f"{ADVICE.get(remark.reason, OTHERWISE)} ({remark.reason})"
        yield f"run: {command_for(story.about, remark.reason, remark.message)}"
    if not current and story.standing is Standing.WAITING:
        yield "wait, then check again"
        yield f"run: {again(story.about)}"
    elif not current and (leader is None or leader.is_alive):
        yield "wait some seconds for the manager, then check again; if nothing changes, see its log"
        yield f"run: {again(story.about)}"


def newest_first(remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    """What holds now, then what was said, the newest first."""

    def order(remark: Remark) -> tuple[bool, float]:
        never = math.inf if remark.is_now else 0.0
        return not remark.is_now, -(remark.at.timestamp() if remark.at else never)

    return tuple(sorted(remarks, key=order))
