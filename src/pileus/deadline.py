"""Deadlines that nest: the outer one is paused while an inner one runs.

    async with Deadline(300):        # seconds without those of inner deadlines
        with covered():              # a call, a request or a queue with its own deadline
            await call()             # may take 600 s

An outer deadline is therefore never shorter than the sum of the inner ones, and a pass is never
cancelled during a write that still has time.
"""

import asyncio
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Self

TICK = 0.001
"""Seconds by which a timer may fire early; waiting for them again would spin."""
_enclosing: ContextVar["Deadline | None"] = ContextVar("deadline", default=None)


class Deadline:
    """An async block that is cancelled after so many seconds outside of `covered`.

    Raises `TimeoutError` then; `expired` distinguishes it from one that the block itself raises.
    Tasks that the block starts share its clock, which is paused while one of them is covered.
    A pause does not touch the timer, which checks the clock when it fires: a pass has a dozen.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._scope = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None
        self._seconds = seconds
        self._spent = 0.0
        self._since: float | None = None
        """When the clock was last started; None while it is paused."""
        self._covers = 0
        self._outer: Deadline | None = None

    @property
    def expired(self) -> bool:
        return self._scope.expired()

    def spent(self) -> float:
        """Returns the seconds that count so far, even beyond the deadline."""
        since = self._since
        return self._spent + (0.0 if since is None else self._loop.time() - since)

    async def __aenter__(self) -> Self:
        self._outer = _enclosing.get()
        if self._outer is not None:
            self._outer.stop()
        await self._scope.__aenter__()
        self._run()
        _enclosing.set(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._spent, self._since = self.spent(), None
        self._covers = -1
        if self._timer is not None:
            self._timer.cancel()
        _enclosing.set(self._outer)
        if self._outer is not None:
            self._outer.start()
        await self._scope.__aexit__(kind, error, trace)

    def stop(self) -> None:
        """Pause the clock: an operation with its own deadline begins."""
        if self._covers < 0:  # the block has ended: a task outlived it
            return
        self._covers += 1
        if self._covers == 1:
            self._spent, self._since = self.spent(), None

    def start(self) -> None:
        """Resume the clock: the operation has ended."""
        if self._covers <= 0:
            return
        self._covers -= 1
        if self._covers == 0:
            self._run()

    def _run(self) -> None:
        """Start the clock, and the timer if none is set: one that is set fires early enough."""
        self._since = self._loop.time()
        if self._timer is None:
            left = max(self._seconds - self._spent, 0.0)
            self._timer = self._loop.call_at(self._since + left, self._check)

    def _check(self) -> None:
        """End the block if its time is over; otherwise set the timer again, unless paused."""
        self._timer = None
        if self._since is None:
            return
        left = self._seconds - self.spent()
        if left > TICK:
            self._timer = self._loop.call_at(self._loop.time() + left, self._check)
        elif not self.expired:
            self._scope.reschedule(self._loop.time())


def covered() -> AbstractContextManager[None]:
    """Pause the enclosing deadline: the block has its own, or waits for others that have one."""
    return _Cover(_enclosing.get())


class _Cover:
    """Not a generator: there are a dozen of these blocks in every pass."""

    __slots__ = ("_deadline",)

    def __init__(self, deadline: Deadline | None) -> None:
        self._deadline = deadline

    def __enter__(self) -> None:
        if self._deadline is not None:
            self._deadline.stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._deadline is not None:
            self._deadline.start()
