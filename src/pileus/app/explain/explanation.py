"""What is told of one object, and what its reader should do next. Pure."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pileus.app.explain.advice import ADVICE, OTHERWISE, again, command_for
from pileus.kube.model.core_v1 import ObjectReference
from pileus.objects.preview import Planned


class State(StrEnum):
    """The state of the object, in a word or two."""

    AS_WANTED = "up to date"
    IN_WORK = "in progress"
    """Changes are pending, and nothing blocks them."""
    WAITING = "waiting"
    STUCK = "blocked"
    NOT_OURS = "not managed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
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
class Explanation:
    about: ObjectReference
    created: datetime | None = None
    is_ours: bool
    wanted: tuple[str, ...] = ()
    observed: tuple[str, ...] = ()
    changes: tuple[Planned, ...] = ()
    waits: tuple[str, ...] = ()
    """What is waited for beside what the changes wait for."""
    messages: tuple[Message, ...] = ()
    owner: tuple[str, ...] = ()
    leader: Leader | None = None
    """None: leader election is off, and no lease tells who works."""

    @property
    def state(self) -> State:
        if not self.is_ours:
            return State.NOT_OURS
        if any(message.is_now for message in self.messages):
            return State.STUCK
        if self.waits or any(change.waits_for for change in self.changes):
            return State.WAITING
        return State.IN_WORK if self.changes else State.AS_WANTED

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What the user should do now; the last entry is a command: `run: …`."""
        return tuple(dict.fromkeys(_steps(self)))


def _steps(explanation: Explanation) -> Iterator[str]:
    leader = explanation.leader
    current = [message for message in explanation.messages if message.is_now]
    if not explanation.is_ours or explanation.state is State.AS_WANTED:
        yield "nothing to do"
        yield f"run: {command_for(explanation.about)}"
        return
    if leader and not leader.problem and not leader.is_alive:
        namespace, _, name = leader.lock.partition("/")
        yield "start the manager, or check why no replica is the leader"
        yield f"run: kubectl get lease {name} --namespace={namespace}"
    for message in current:
        yield f"{ADVICE.get(message.reason, OTHERWISE)} ({message.reason})"
        yield f"run: {command_for(explanation.about, message.reason, message.message)}"
    if not current and explanation.state is State.WAITING:
        yield "wait, then check again"
        yield f"run: {again(explanation.about)}"
    elif not current and (leader is None or leader.is_alive):
        yield "wait some seconds for the manager, then check again; if nothing changes, see its log"
        yield f"run: {again(explanation.about)}"


def newest_first(messages: Iterable[Message]) -> tuple[Message, ...]:
    """What holds now, then what was said, the newest first."""

    def order(message: Message) -> tuple[bool, float]:
        never = math.inf if message.is_now else 0.0
        return not message.is_now, -(message.at.timestamp() if message.at else never)

    return tuple(sorted(messages, key=order))
