"""An event loop for simulations: virtual time, and deterministic order of tasks.

Processes are identified by the context of their tasks. A paused process takes no step until it is
resumed; its timers expire meanwhile, as those of a stopped process do.
"""

import asyncio
import heapq
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pileus
import pileus_lab

OURS = tuple(f"{Path(each).parent}/" for each in (pileus.__file__, pileus_lab.__file__))
"""The folders of our own code, on this machine."""
STEPS_AT_ONCE = 50_000
"""Iterations of the loop at one instant after which it counts as an endless loop."""
ROUNDING = 1e-9
"""Seconds that the clock of a process that slept is ahead: otherwise a timer that is due could
seem not to be, by the last bit of a float, while time stands still."""
SHOWN, NAMED = 24, 3
"""Places reported at a standstill, and tasks named at each."""
CLEARING = 600.0
"""Real seconds that tasks have to end."""


class Standstill(Exception):
    """Nothing will happen any more, or only the same; the message lists which tasks wait where."""


@dataclass(eq=False, slots=True)
class Process:
    """The equivalent of an operating-system process: it can be stopped and resumed as a whole."""

    name: str
    stopped: bool = False
    """Until it is resumed."""
    asleep: bool = False
    """Stopped with its whole machine, until that wakes up by itself."""
    wakes_at: float = 0.0
    """World time at which the machine wakes up, or last did."""
    is_dead: bool = False
    """Its steps have no effect any more: it is only being cleaned up."""
    steps_left: int = 0
    """Steps until its callback runs; 0: never."""
    strike: Callable[[], None] | None = None
    slept: float = 0.0
    """Seconds for which its machine was suspended: its monotonic clock has not counted them."""
    held: list[asyncio.Handle] = field(default_factory=list[asyncio.Handle])
    """Its steps that wait until it is resumed."""

    @property
    def paused(self) -> bool:
        """It takes no step: it is stopped, its machine sleeps, or both."""
        return self.stopped or self.asleep

    def strike_at_step(self, number: int, strike: Callable[[], None]) -> None:
        """Runs a callback right before its n-th step from now: between two awaits."""
        self.steps_left, self.strike = number, strike

    def spare(self) -> None:
        self.steps_left, self.strike = 0, None

    def count_step(self) -> None:
        self.steps_left -= 1
        if not self.steps_left and self.strike is not None:
            self.strike()


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class _Task(asyncio.Task[Any]):
    """A task whose order in a set depends on its number, not on its address in memory."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        *,
        loop: asyncio.AbstractEventLoop,
        number: int,
        name: str | None = None,
        context: Context | None = None,
    ) -> None:
        self.number = number
        super().__init__(coroutine, loop=loop, context=context, name=name or f"task-{number}")

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimulationLoop(asyncio.BaseEventLoop):
    """Uses no wall time, sockets or threads; equal programs run equally on every machine."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._rounds = 0
        self._selector = self
        self._clock_resolution = 1e-6
        self._soon: deque[asyncio.Handle] = vars(self)["_ready"]
        numbers = count(1)

        def make(
            loop: asyncio.AbstractEventLoop,
            coroutine: Any,  # noqa: ANN401 -- asyncio's own signature
            **options: Any,  # noqa: ANN401 -- context; from Python 3.14 on also the name
        ) -> asyncio.Task[Any]:
            return _Task(coroutine, loop=loop, number=next(numbers), **options)

        self.set_task_factory(make)

    def now(self) -> float:
        """World time."""
        return self._now

    def time(self) -> float:
        """The monotonic clock of the calling process. It stops while its machine is suspended."""
        process = PROCESS.get()
        if process is None or not process.slept:
            return self._now
        return self._now - process.slept + ROUNDING

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        process = PROCESS.get()
        late = 0.0 if process is None else process.slept
        return super().call_at(when + late, callback, *args, context=context)

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None and process.steps_left:
            process.count_step()
        handle = asyncio.Handle(callback, args, self, context)
        if process is not None and process.paused:
            process.held.append(handle)
        else:
            self._soon.append(handle)
        return handle

    def pause(self, process: Process) -> None:
        process.stopped = True

    def resume(self, process: Process) -> None:
        """Ends a pause. If the machine sleeps, the process takes its next step when that wakes."""
        process.stopped = False
        self._release(process)

    def suspend(self, process: Process, seconds: float) -> None:
        """Suspends its machine: it takes no step and its timers stop, but time goes on.

        A machine that sleeps already wakes up at the later of the two times.
        """
        wakes_at = max(self._now + seconds, process.wakes_at)
        longer = wakes_at - (process.wakes_at if process.asleep else self._now)
        process.asleep, process.wakes_at = True, wakes_at
        process.slept += longer
        for timer in self._timers():
            if timer._context.get(PROCESS) is process:  # noqa: SLF001
                timer._when += longer  # noqa: SLF001
        heapq.heapify(self._timers())
        self.call_later(seconds, self._wake, process)

    def release(self, process: Process) -> None:
        """Lets a process take steps again that was ended while it was paused, or its machine slept.

        Its steps have no effect; it is only cleaned up.
        """
        process.stopped = process.asleep = False
        self._release(process)

    def _wake(self, process: Process) -> None:
        if self._now + ROUNDING < process.wakes_at:
            return  # it was suspended again, and for longer
        process.asleep = False
        self._release(process)

    def _release(self, process: Process) -> None:
        if process.paused:
            return
        held, process.held = process.held, []
        self._soon.extend(handle for handle in held if not handle.cancelled())

    def select(self, timeout: float | None) -> list[object]:
        """Called by asyncio once per iteration: waits for an event, or that many seconds."""
        if timeout is None:
            raise Standstill(f"every task waits, and no timer will wake one\n{self._waiting()}")
        if timeout > 0:
            self._now += timeout
            self._rounds = 0
            return []
        self._rounds += 1
        if self._rounds > STEPS_AT_ONCE:
            raise Standstill(
                f"{STEPS_AT_ONCE} rounds at second {self._now:.3f}, and no end\n{self._waiting()}"
            )
        return []

    def clear_away(self) -> None:
        """Ends the tasks of a program at a standstill, as far as possible."""
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            self._rounds = 0
            task.cancel()
        with suppress(Standstill):
            self.run_until_complete(asyncio.wait(tasks, timeout=CLEARING))

    def close(self) -> None:
        """Drops unfinished work silently."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # noqa: SLF001  # pyright: ignore[reportAttributeAccessIssue]
        super().close()

    def _timers(self) -> list[Any]:
        """Asyncio offers no other way to move its own tasks."""
        return vars(self)["_scheduled"]

    def _process_events(self, events: list[object]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def waiting(self) -> list[str]:
        """Lists which tasks wait where: a line for each place, with some names."""
        places: dict[str, list[str]] = {}
        for task in sorted(asyncio.all_tasks(self), key=hash):
            places.setdefault(waits_at(task), []).append(task.get_name())
        return [f"{_some(names)}: {place}" for place, names in places.items()]

    def _waiting(self) -> str:
        lines = self.waiting()
        more = [f"and at {len(lines) - SHOWN} places more"] if len(lines) > SHOWN else []
        return "\n".join(f"  {line}" for line in (*lines[:SHOWN], *more))


def _place(frame: traceback.FrameSummary) -> str:
    """File and line of our own code; for other code, which differs by machine, only the name."""
    for folder in OURS:
        if frame.filename.startswith(folder):
            return f"{frame.filename.removeprefix(folder)}:{frame.lineno} {frame.name}"
    return frame.name


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def waits_at(task: asyncio.Task[Any]) -> str:
    """The stack of a task, innermost last."""
    lines: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            lines.append(_place(traceback.extract_stack(frame, limit=1)[0]))
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return " > ".join(lines[-3:]) or "not begun"
