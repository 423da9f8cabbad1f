"""The explanation of one object: its state, messages and next steps. Pure."""

import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum

from pileus.app.explain.advice import ADVICE, OTHERWISE, again, command_for
from pileus.dataclass import dataclass
from pileus.fix import fix_in
from pileus.kube.model.core_v1 import ObjectReference
from pileus.objects.preview import Planned


class State(StrEnum):
    """The state of the object, in a word or two."""

    UP_TO_DATE = "up to date"
    IN_PROGRESS = "in progress"
    """Changes are pending, and nothing blocks them."""
    WAITING = "waiting"
    BLOCKED = "blocked"
    NOT_MANAGED = "not managed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message about the object: from a condition, an event, or the current plan."""

    source: str
    reason: str
    message: str
    at: datetime | None = None
    count: int = 1
    is_now: bool = False
    """Whether it is still true; events describe the past."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The holder of the manager's Lease; `holder` is empty if there is none."""

    lock: str
    holder: str = ""
    renewed: datetime | None = None
    is_alive: bool = False
    problem: str = ""
    """Why the holder is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    about: ObjectReference
    created: datetime | None = None
    is_ours: bool
    desired: tuple[str, ...] = ()
    actual: tuple[str, ...] = ()
    changes: tuple[Planned, ...] = ()
    waits: tuple[str, ...] = ()
    """What the object waits for, besides what its changes wait for."""
    messages: tuple[Message, ...] = ()
    owner: tuple[str, ...] = ()
    leader: Leader | None = None
    """None: leader election is disabled."""

    @property
    def state(self) -> State:
        if not self.is_ours:
            return State.NOT_MANAGED
        if any(message.is_now for message in self.messages):
            return State.BLOCKED
        if self.waits or any(change.waits_for for change in self.changes):
            return State.WAITING
        return State.IN_PROGRESS if self.changes else State.UP_TO_DATE

    @property
    def next_steps(self) -> tuple[str, ...]:
        """What the user should do now; the last entry is a command: `run: …`."""
        return tuple(dict.fromkeys(_steps(self)))


def _steps(explanation: Explanation) -> Iterator[str]:
    leader = explanation.leader
    current = [message for message in explanation.messages if message.is_now]
    if not explanation.is_ours or explanation.state is State.UP_TO_DATE:
        yield "nothing to do"
        yield f"run: {command_for(explanation.about)}"
        return
    has_leader = leader is None or bool(leader.problem) or leader.is_alive
    if leader and not has_leader:
        namespace, _, name = leader.lock.partition("/")
        yield "start the manager, or check why no replica is the leader"
        yield f"run: kubectl get lease {name} --namespace={namespace}"
    for message in current:
        if not fix_in(message.message):
            yield f"{ADVICE.get(message.reason, OTHERWISE)} ({message.reason})"
        yield f"run: {command_for(explanation.about, message.reason, message.message)}"
    if current or not has_leader:
        return
    if explanation.state is State.WAITING:
        yield "wait, then check again"
        yield f"run: {again(explanation.about)}"
    else:
        yield "wait for the manager, then check again; if nothing changes, see its log"
        yield f"run: {again(explanation.about)}"


def newest_first(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Returns current messages first, then past ones, newest first."""

    def order(message: Message) -> tuple[bool, float]:
        never = math.inf if message.is_now else 0.0
        return not message.is_now, -(message.at.timestamp() if message.at else never)

    return tuple(sorted(messages, key=order))
