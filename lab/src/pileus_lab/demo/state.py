"""What the demo shows, as frozen values, and the board on which its parts report events."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from pileus.cloud.balancer import Effect


class Progress(StrEnum):
    WAITING = "waiting"
    UNDER_WAY = "under way"
    HELD = "ok"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    title: str
    progress: Progress = Progress.WAITING
    seconds: float = 0.0
    detail: str = ""
    """What was observed when it succeeded; what was missing when it failed."""


class NodeState(StrEnum):
    BOOTING = "booting"
    TAINTED = "tainted"
    INITIALIZED = "initialized"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """An instance with its node."""

    name: str
    state: NodeState
    address: str = ""
    zone: str = ""
    type: str = ""
    ready: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerRow:
    name: str
    where: str
    members: tuple[str, ...] = ()
    answers: Mapping[str, int] = field(default_factory=dict[str, int])
    """Answers to the demo's own requests, by member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    about: str
    reason: str
    message: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """One line of the log: a planned or an observed change."""

    at: float
    """Seconds since the start of the demo."""
    source: str
    effect: Effect
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Cluster and cloud at one moment."""

    nodes: tuple[NodeRow, ...] = ()
    balancers: tuple[BalancerRow, ...] = ()
    events: tuple[EventRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    elapsed: float
    steps: tuple[StepRow, ...] = ()
    sight: Sight = Sight()
    notes: tuple[Note, ...] = ()
    hints: tuple[str, ...] = ()
    """Commands for the user to try."""


REMEMBERED = 200


class Audience(Protocol):
    """Receives events as they happen; must return quickly."""

    def noted(self, note: Note, /) -> None: ...
    def began(self, step: StepRow, /) -> None: ...
    def ended(self, step: StepRow, /) -> None: ...
    def invited(self, hints: Sequence[str], /) -> None: ...


class Board:
    """Written by the environment and the scenario, read by the view."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._start = now()
        self._notes: deque[Note] = deque(maxlen=REMEMBERED)
        self._steps: list[StepRow] = []
        self._began: dict[int, float] = {}
        self._audience: list[Audience] = []
        self._hints: tuple[str, ...] = ()
        self.sight: Callable[[], Sight] = Sight
        """Returns cluster and cloud; None until the environment exists."""

    @property
    def elapsed(self) -> float:
        return self._now() - self._start

    @property
    def steps(self) -> tuple[StepRow, ...]:
        return tuple(self._steps)

    def seat(self, audience: Audience) -> None:
        self._audience.append(audience)

    def announce(self, titles: Sequence[str]) -> None:
        """Announces a change."""
        self._steps = [StepRow(title=title) for title in titles]

    def begin(self, index: int) -> None:
        self._began[index] = self.elapsed
        step = self._steps[index] = replace(self._steps[index], progress=Progress.UNDER_WAY)
        for one in self._audience:
            one.began(step)

    def end(self, index: int, progress: Progress, detail: str) -> None:
        took = self.elapsed - self._began[index]
        step = replace(self._steps[index], progress=progress, seconds=took, detail=detail)
        self._steps[index] = step
        for one in self._audience:
            one.ended(step)

    def give_up(self, why: str) -> None:
        """Marks the current step as failed, if there is one."""
        for index, step in enumerate(self._steps[:-1]):
            if step.progress is Progress.UNDER_WAY:
                self.end(index, Progress.FAILED, why)

    def note(self, source: str, effect: Effect, text: str) -> None:
        note = Note(self.elapsed, source, effect, text)
        self._notes.append(note)
        for one in self._audience:
            one.noted(note)

    def invite(self, hints: Sequence[str]) -> None:
        """The scenario is over; shows commands to try."""
        self._hints = tuple(hints)
        for one in self._audience:
            one.invited(hints)

    def scene(self) -> Scene:
        return Scene(
            elapsed=self.elapsed,
            steps=self._timed(),
            sight=self.sight(),
            notes=tuple(self._notes),
            hints=self._hints,
        )

    def _timed(self) -> tuple[StepRow, ...]:
        """The steps, with the time that the current one has taken so far."""
        now = self.elapsed
        return tuple(
            replace(step, seconds=now - self._began[index])
            if step.progress is Progress.UNDER_WAY
            else step
            for index, step in enumerate(self._steps)
        )
