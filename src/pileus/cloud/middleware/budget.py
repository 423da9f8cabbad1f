"""One budget for all calls to a cloud: so many at once, so many a second, silence when asked."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeVar, cast

from pileus.bucket import Bucket
from pileus.cloud.abilities import Limits
from pileus.cloud.errors import Throttled
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.calls import Call, wrap
from pileus.cloud.model import Failure
from pileus.cloud.permission import permitted_by
from pileus.deadline import covered
from pileus.telemetry.metrics import Metrics

T = TypeVar("T")

TICK = 1e-5
"""Seconds by which a timer may come early; waiting for them once more would spin."""


class Budget:
    """Guarantees: callers are served in order; a cloud's wish to wait holds for all of them.

    It holds also for those under way that make one more request and ask by `check_permission`.
    Errors: `Throttled`, without a call, while that wish lasts longer than our patience.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._waits = metrics.cloud_budget_waits
        self._slots = asyncio.Semaphore(limits.at_once)
        self._turn = asyncio.Lock()
        self._bucket: Bucket | None = None
        self._quiet_until = 0.0

    async def __call__(self, call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        began = _now()
        with covered():
            await self._slots.acquire()
        try:
            with covered():
                await self._spend()
            self._waits.labels(call.provider).inc(_now() - began)
            return await self._made(proceed)
        finally:
            self._slots.release()

    async def _made(self, proceed: Callable[[], Awaitable[T]]) -> T:
        try:
            with self._asked_again():
                answer = await proceed()
        except Throttled as error:
            self._be_quiet(_now(), error.retry_after or 0.0)
            raise
        self._be_quiet(_now(), asked_to_wait(answer))
        return answer

    def _asked_again(self) -> AbstractContextManager[None]:
        """Calls may ask and tell of silence while they are under way, also from a thread."""
        time = asyncio.get_running_loop().time
        return permitted_by(
            lambda: self._refuse_silence(time(), beyond=TICK),
            lambda seconds: self._be_quiet(time(), seconds),
        )

    async def _spend(self) -> None:
        """Wait for a token, and for the end of the cloud's wish for silence."""
        async with self._turn:
            now = _now()
            bucket = self._bucket or Bucket.full(self._limits.per_second, self._limits.burst, now)
            wait, self._bucket = bucket.reserve(now)
            try:
                while (delay := max(now + wait, self._quiet_until) - _now()) > TICK:
                    self._refuse_silence(_now(), beyond=self._limits.patience)
                    await asyncio.sleep(delay)
            except (asyncio.CancelledError, Throttled):
                self._bucket = self._bucket.returned()
                raise

    def _refuse_silence(self, now: float, *, beyond: float) -> None:
        left = self._quiet_until - now
        if left > beyond:
            raise Throttled(f"the cloud asked for silence for {left:.0f} s more", retry_after=left)

    def _be_quiet(self, now: float, seconds: float) -> None:
        self._quiet_until = max(self._quiet_until, now + seconds)


def budgeted(cloud: Cloud, budget: Budget) -> Cloud:
    return wrap(cloud, budget)


def asked_to_wait(answer: object) -> float:
    """The longest wait that the parts of a bulk answer ask for, in seconds; 0 if none does."""
    if not isinstance(answer, Mapping):
        return 0.0
    parts = cast("Mapping[object, object]", answer).values()
    errors = (part.error if isinstance(part, Failure) else part for part in parts)
    return max((e.retry_after or 0.0 for e in errors if isinstance(e, Throttled)), default=0.0)


def _now() -> float:
    return asyncio.get_running_loop().time()
