"""Where everyone on the stage tells what happens, and from where the audience hears it."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from pileus.cloud.balancer import Effect
from pileus_lab.demo.scene import Note, Progress, Scene, Sight, StepRow

REMEMBERED = 200


class Audience(Protocol):
    """Is told things as they happen; must be quick."""

    def noted(self, note: Note, /) -> None: ...
    def began(self, step: StepRow, /) -> None: ...
    def ended(self, step: StepRow, /) -> None: ...
    def invited(self, hints: Sequence[str], /) -> None: ...


class Board:
    """Written by the stage and the story, read by who shows it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._start = now()
        self._notes: deque[Note] = deque(maxlen=REMEMBERED)
        self._steps: list[StepRow] = []
        self._began: dict[int, float] = {}
        self._audience: list[Audience] = []
        self._hints: tuple[str, ...] = ()
        self.sight: Callable[[], Sight] = Sight
        """What there is of cluster and cloud; nothing, until the stage is set."""

    @property
    def elapsed(self) -> float:
        return self._now() - self._start

    @property
    def steps(self) -> tuple[StepRow, ...]:
        return tuple(self._steps)

    def seat(self, audience: Audience) -> None:
        self._audience.append(audience)

    def announce(self, titles: Sequence[str]) -> None:
        """Say what is going to happen."""
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
        """The step that is under way, if one is, cannot hold any more."""
        for index, step in enumerate(self._steps[:-1]):
            if step.progress is Progress.UNDER_WAY:
                self.end(index, Progress.FAILED, why)

    def note(self, source: str, effect: Effect, text: str) -> None:
        note = Note(self.elapsed, source, effect, text)
        self._notes.append(note)
        for one in self._audience:
            one.noted(note)

    def invite(self, hints: Sequence[str]) -> None:
        """The story is over; these commands are for the audience to try."""
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
        """The steps, with the time that the present one has taken so far."""
        now = self.elapsed
        return tuple(
            replace(step, seconds=now - self._began[index])
            if step.progress is Progress.UNDER_WAY
            else step
            for index, step in enumerate(self._steps)
        )
