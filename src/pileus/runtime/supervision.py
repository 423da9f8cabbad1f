"""Restarts background work that fails: informers, file watches, and providers' own controllers.

In Go a panic in one loop ends the whole process. Here an unexpected exception is logged with its
traceback, counted, reported by a health check while the work is down, and the work is restarted
with exponential backoff. Everything else keeps running.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from pileus.cloud.provider_context import is_its_own
from pileus.runtime.backoff import Exponential, RetryPolicy
from pileus.runtime.failure import is_expected
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

DELAYS = Exponential(1.0, 300.0)
STEADY = 600.0
"""Seconds of work after which a failure counts as the first one."""


class Supervised:
    """One piece of long-running work. If it raises, it is restarted with exponential backoff."""

    def __init__(
        self,
        name: str,
        work: Callable[[], Awaitable[None]],
        random: Random,
        metrics: Metrics | None = None,
        *,
        delays: Exponential = DELAYS,
    ) -> None:
        self.name = name
        self._work = work
        self._policy = RetryPolicy(delays, random)
        self._counter = metrics.round_failures.labels(name) if metrics else None
        self._failures = 0
        self._problem: str | None = None

    async def run(self) -> None:
        """Run until the work returns, or this is cancelled."""
        now = asyncio.get_running_loop().time
        while True:
            began = now()
            try:
                await self._work()
            except BaseException as error:
                if not is_its_own(error):
                    raise
                self._failures = 1 if now() - began > STEADY else self._failures + 1
                await self._pause(error, now())
            else:
                log.info("Background work has ended", name=self.name)
                return

    def health(self) -> str | None:
        """Returns the message for a health check while the work waits for its restart."""
        return self._problem

    async def _pause(self, error: BaseException, now: float) -> None:
        delay = self._policy.delay(self._failures, error, now)
        self._problem = f"{self.name} failed {self._failures} times in a row: {error!r}"
        if self._counter is not None:
            self._counter.inc()
        write = log.error if is_expected(error) else log.exception
        write(
            "Background work failed, will be restarted",
            error=error,
            name=self.name,
            failures=self._failures,
            retry_in=round(delay, 3),
        )
        await asyncio.sleep(delay)
        self._problem = None
