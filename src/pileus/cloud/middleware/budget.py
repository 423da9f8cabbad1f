"""The call budget of a cloud: calls at once, calls per second, and pauses the cloud asks for."""

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import cast

from pileus.bucket import Bucket
from pileus.cloud.abilities import Limits
from pileus.cloud.errors import Throttled
from pileus.cloud.middleware.methods import Call
from pileus.cloud.model import Failure
from pileus.cloud.permission import permitted_by
from pileus.deadline import covered
from pileus.telemetry.metrics import Metrics

TICK = 1e-5
"""Seconds by which a timer may fire early; waiting for them again would spin."""


class Budget:
    """Limits the calls to one cloud.

    Guarantees: callers are served in order, and a pause that the cloud asks one of them for holds
    for all: for later calls, and for requests of running calls that use `check_permission`.
    Raises `Throttled`, without a call, while a pause lasts longer than `Limits.patience`.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._waits = metrics.cloud_budget_waits
        self._slots = asyncio.Semaphore(limits.at_once)
        self._turn = asyncio.Lock()
        self._bucket: Bucket | None = None
        self._paused_until = 0.0

    @asynccontextmanager
    async def turn(self, call: Call) -> AsyncGenerator[None]:
        """Wait until the call may be made. The block makes it."""
        time = asyncio.get_running_loop().time
        began = time()
        with covered():
            await self._slots.acquire()
        try:
            with covered():
                await self._spend()
            self._waits.labels(call.provider).inc(time() - began)
            with self._listening():
                yield
        finally:
            self._slots.release()

    @contextmanager
    def _listening(self) -> Generator[None]:
        """Pause when the block asks for it, by an error or, also from a thread, by `pass_on`."""
        time = asyncio.get_running_loop().time
        try:
            with permitted_by(
                lambda: self._refuse_pause(time(), beyond=TICK),
                lambda seconds: self._pause(time(), seconds),
            ):
                yield
        except Throttled as error:
            self._pause(time(), error.retry_after)
            raise

    def hear(self, call: Call, answer: object) -> None:
        """Pause for as long as the failures in a bulk answer ask for."""
        if call.method.has_outcomes and isinstance(answer, Mapping):
            self._pause(
                asyncio.get_running_loop().time(),
                longest_pause(cast("Mapping[object, object]", answer)),
            )

    async def _spend(self) -> None:
        """Wait for a token, and for the end of a pause."""
        time = asyncio.get_running_loop().time
        async with self._turn:
            now = time()
            bucket = self._bucket or Bucket.full(self._limits.per_second, self._limits.burst, now)
            wait, self._bucket = bucket.reserve(now)
            try:
                while (delay := max(now + wait, self._paused_until) - time()) > TICK:
                    self._refuse_pause(time(), beyond=self._limits.patience)
                    await asyncio.sleep(delay)
            except (asyncio.CancelledError, Throttled):
                self._bucket = self._bucket.returned()
                raise

    def _refuse_pause(self, now: float, *, beyond: float) -> None:
        left = self._paused_until - now
        if left > beyond:
            raise Throttled(
                f"the cloud asked for a pause, which lasts for another {left:.0f} s",
                retry_after=left,
            )

    def _pause(self, now: float, seconds: float | None) -> None:
        self._paused_until = max(self._paused_until, now + (seconds or 0.0))


def longest_pause(answer: Mapping[object, object]) -> float:
    """Returns the longest pause in seconds that failures in a bulk answer ask for; 0 if none do."""
    errors = (part.error if isinstance(part, Failure) else part for part in answer.values())
    return max((e.retry_after or 0.0 for e in errors if isinstance(e, Throttled)), default=0.0)
