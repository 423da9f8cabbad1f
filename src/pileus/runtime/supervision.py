"""Keeps foreign work going: what a provider runs in the background begins again when it fails.

In Go a panic in a provider's goroutine ends the whole process. Here the others work on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from pileus.cloud.foreign import is_its_own
from pileus.runtime.backoff import Exponential, RetryPolicy
from pileus.runtime.failure import is_expected
from pileus.telemetry.log import Log

log = Log(__name__)

DELAYS = Exponential(1.0, 300.0)
STEADY = 600.0
"""Seconds after which work that fails is taken to have failed for the first time."""


class Supervised:
    """One piece of work. When it raises it is told, and begun again after a while, ever longer."""

    def __init__(self, name: str, work: Callable[[], Awaitable[None]], random: Random) -> None:
        self.name = name
        self._work = work
        self._policy = RetryPolicy(DELAYS, random)
        self._failures = 0
        self._problem: str | None = None

    async def run(self) -> None:
        """Run until the work ends by itself, or this is cancelled."""
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
                log.info("The cloud provider's own work has ended by itself", name=self.name)
                return

    def health(self) -> str | None:
        """Why it is not at work; None while it is."""
        return self._problem

    async def _pause(self, error: BaseException, now: float) -> None:
        delay = self._policy.delay(self._failures, error, now)
        self._problem = f"{self.name} failed {self._failures} times in a row: {error!r}"
        write = log.error if is_expected(error) else log.exception
        write(
            "The cloud provider's own work failed, and begins again after a while",
            error=error,
            name=self.name,
            failures=self._failures,
            retry_in=round(delay, 3),
        )
        await asyncio.sleep(delay)
        self._problem = None
