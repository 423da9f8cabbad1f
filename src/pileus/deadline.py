"""Deadlines that nest: the outer one stands still while an inner one runs.

    async with Deadline(300):        # seconds that no inner deadline accounts for
        with covered():              # a call, a request, a queue: has a deadline of its own
            await call()             # may take 600 s

So an outer deadline is never shorter than the sum of the inner ones, whatever their number and
length, and a pass is never cancelled in the middle of a write that still has time.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Self

_enclosing: ContextVar["Deadline | None"] = ContextVar("deadline", default=None)


class Deadline:
    """An async block that is cancelled once it has spent that many seconds outside of `covered`.

    Raises `TimeoutError` then; `expired` tells it from one that the block raised by itself. Tasks
    that the block starts share its clock, which stands still while one of them is covered.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer = asyncio.timeout(seconds)
        self._seconds = seconds
        self._spent = 0.0
        self._since: float | None = None
        """When the clock was last started; None while it stands still."""
        self._covers = 0
        self._outer: Deadline | None = None

    @property
    def expired(self) -> bool:
        return self._timer.expired()

    def spent(self) -> float:
        """Seconds that count so far. Goes on beyond the deadline if the block does not end."""
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
        """Stand still: something with a deadline of its own begins."""
        if self._covers < 0:  # over: a task outlived the block
            return
        self._covers += 1
        if self._covers == 1:
            self._spent, self._since = self.spent(), None
            if not self.expired:
                self._timer.reschedule(None)

    def start(self) -> None:
        """Go on: it has ended."""
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
    """The block has a deadline of its own, or waits behind others that have: ours stands still."""
    deadline = _enclosing.get()
    if deadline is None:
        yield
        return
    deadline.stop()
    try:
        yield
    finally:
        deadline.start()
