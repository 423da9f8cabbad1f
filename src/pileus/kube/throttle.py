"""How many requests may leave at once, so that we do not add to an API server's distress.

`Adaptive` is the default: no fixed rate, but a window that halves when the server says "too
many" or does not answer in time, and grows slowly while it is full. `TokenBucket` is what
`--kube-api-qps` and `--kube-api-burst` ask for.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from pileus.bucket import Bucket
from pileus.kube.errors import Timeout, TooManyRequests, Unreachable


class Throttle(Protocol):
    def admission(self) -> AbstractAsyncContextManager[None]:
        """Wait until one more request may leave; the block is the request, and shows its error."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """How many requests may be under way: grows by one per window of successes, halves at once."""

    limit: float = 16
    most: int = 64
    halvings: int = 0
    """Tells apart what was sent before the last halving: one burst of refusals halves once."""

    @property
    def size(self) -> int:
        return int(self.limit)

    def grown(self) -> "Window":
        return replace(self, limit=min(self.limit + 1 / self.limit, self.most))

    def halved(self, *, sent_at: int) -> "Window":
        """The window after a refusal of a request that was sent when `halvings` was `sent_at`."""
        if sent_at != self.halvings:
            return self
        return replace(self, limit=max(self.limit / 2, 1), halvings=self.halvings + 1)


class Adaptive:
    """Lets as many requests out at once as the server has lately been able to take."""

    def __init__(self, window: Window | None = None) -> None:
        self._window = window or Window()
        self._under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def window(self) -> Window:
        return self._window

    @asynccontextmanager
    async def admission(self) -> AsyncGenerator[None]:
        await self._enter()
        sent_at, was_full = self._window.halvings, self._under_way >= self._window.size
        try:
            yield
        except (TooManyRequests, Timeout, Unreachable) as error:
            if not isinstance(error, Unreachable) or error.timed_out:
                self._window = self._window.halved(sent_at=sent_at)
            raise
        else:
            if was_full:
                self._window = self._window.grown()
        finally:
            self._under_way -= 1
            self._wake()

    async def _enter(self) -> None:
        if self._under_way < self._window.size and not self._waiting:
            self._under_way += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # let in and cancelled in the same instant
                self._under_way -= 1
                self._wake()
            raise

    def _wake(self) -> None:
        while self._waiting and (self._waiting[0].done() or self._under_way < self._window.size):
            turn = self._waiting.popleft()
            if not turn.done():
                self._under_way += 1
                turn.set_result(None)


class TokenBucket:
    """At most `rate` requests per second in the long run, and `burst` at once."""

    def __init__(self, rate: float, burst: int) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(f"a rate above 0 and a burst of at least 1, not {rate} and {burst}")
        self._rate, self._burst = rate, burst
        self._bucket: Bucket | None = None

    @asynccontextmanager
    async def admission(self) -> AsyncGenerator[None]:
        now = asyncio.get_running_loop().time()
        bucket = self._bucket or Bucket.full(self._rate, self._burst, now)
        delay, self._bucket = bucket.reserve(now)
        try:
            await asyncio.sleep(delay)
        except asyncio.CancelledError:
            self._bucket = self._bucket.returned()
            raise
        yield
