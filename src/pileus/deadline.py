"""Deadlines that nest: the outer one is paused while an inner one runs.

    async with Deadline(300):        # seconds without those of inner deadlines
        with covered():              # a call, a request or a queue with its own deadline
            await call()             # may take 600 s

An outer deadline is therefore never shorter than the sum of the inner ones, and a pass is never
cancelled during a write that still has time.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Self

_enclosing: ContextVar["Deadline | None"] = ContextVar("deadline", default=None)


class Deadline:
    """An async block that is cancelled after so many seconds outside of `covered`.

    Raises `TimeoutError` then; `expired` distinguishes it from one that the block itself raises.
    Tasks that the block starts share its clock, which is paused while one of them is covered.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer = asyncio.timeout(seconds)
        self._seconds = seconds
        self._spent = 0.0
        self._since: float | None = None
        """When the clock was last started; None while it is paused."""
        self._covers = 0
        self._outer: Deadline | None = None

    @property
    def expired(self) -> bool:
        return self._timer.expired()

    def spent(self) -> float:
        """Returns the seconds that count so far, even beyond the deadline."""
        since = self._since
        return self._spent + (0.0 if since is None else self._loop.time() - since)

    async def __aenter__(self) -> Self:
        self._outer = _enclosing.get()
        if self._outer is not None:
            self._outer.stop()
        await self._timer.__aenter__()
        self._since = self._loop.time()
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
        _enclosing.set(self._outer)
        if self._outer is not None:
            self._outer.start()
        await self._timer.__aexit__(kind, error, trace)

    def stop(self) -> None:
        """Pause the clock: an operation with its own deadline begins."""
        if self._covers < 0:  # the block has ended: a task outlived it
            return
        self._covers += 1
        if self._covers == 1:
            self._spent, self._since = self.spent(), None
            if not self.expired:
                self._timer.reschedule(None)

    def start(self) -> None:
        """Resume the clock: the operation has ended."""
        if self._covers <= 0:
            return
        self._covers -= 1
        if self._covers == 0:
            self._since = self._loop.time()
            if not self.expired:
                left = max(self._seconds - self._spent, 0.0)
                self._timer.reschedule(self._since + left)


@contextmanager
def covered() -> Generator[None]:
    """Pause the enclosing deadline: the block has its own, or waits for others that have one."""
    deadline = _enclosing.get()
    if deadline is None:
        yield
        return
    deadline.stop()
    try:
        yield
    finally:
        deadline.start()
