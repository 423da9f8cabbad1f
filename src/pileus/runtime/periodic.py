"""Periodic work: rounds that run on the queue and the workers of reconciliation passes.

A `Periodic` is a work queue with one key, whose pass is a round. Rounds therefore have the
isolation, deadline, retries with backoff, fencing, shutdown and queue metrics of passes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random

from pileus.runtime.backoff import Exponential, RetryPolicy
from pileus.runtime.controller import Controller, Limits
from pileus.runtime.queue import Priority, WorkQueue
from pileus.runtime.reconcile import Result
from pileus.telemetry.metrics import Metrics

KEY = "round"
DELAYS = Exponential(1.0, 300.0)
ROUND_LIMITS = Limits(deadline=600.0)
"""Time in calls to the cloud and the API server does not count; see `Limits.deadline`."""
KEEPS_FAILING = 3
"""Failed rounds in a row after which the health check reports it."""


class Periodic:
    """Runs `work` once at the start, and again after the number of seconds that it returns.

    Guarantees: one round runs at a time. A round that raises is logged, counted in
    `pileus_round_failures_total` and retried with backoff, or after the delay that the error asks
    for (`retry_after`). A round that ends because the process is not the leader is no failure.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], Awaitable[float]],
        metrics: Metrics,
        random: Random,
        limits: Limits = ROUND_LIMITS,
    ) -> None:
        """`name` is the name of the queue and the label of the round's metrics."""
        self.name = name
        self._work = work
        self._counter = metrics.round_failures.labels(name)
        self._queue = WorkQueue[str](name, metrics)
        self._controller = Controller(name, self, self._queue, RetryPolicy(DELAYS, random), limits)
        self._failures = 0
        self._problem: str | None = None
        self._is_backing_off = False
        self._resumes = 0.0
        self._woken: float | None = None

    async def run(self) -> None:
        """Run rounds until cancelled; call once. A round under way may finish as a pass may."""
        self._queue.add(KEY)
        await self._controller.run()

    def wake(self, after: float = 0.0) -> None:
        """Run the next round in `after` seconds, unless it is due earlier.

        If a round is under way, another one follows it. The backoff after a failure and a pause
        that was set by `rest` are not cut short.
        """
        if self._queue.is_held(KEY):
            self._woken = after if self._woken is None else min(after, self._woken)
        elif not self._is_backing_off:
            self._queue.next_pass(KEY, max(after, self._resumes - _now()))

    def rest(self, seconds: float) -> None:
        """Run no round within `seconds` from now, even if woken. Called by a round, at its end."""
        self._resumes = _now() + seconds

    def stuck(self, limit: float) -> str | None:
        """Returns the message for a health check if a round has been running for too long.

        Time in calls to the cloud and the API server does not count.
        """
        return self._controller.stuck(limit)

    def failing(self) -> str | None:
        """Returns the message for a health check if rounds keep failing; otherwise None."""
        return self._problem

    def count_failure(self) -> None:
        """Count a failure that the round handled itself, without raising."""
        self._counter.inc()

    async def reconcile(self, key: str) -> Result:  # noqa: ARG002 -- there is one
        """Run one round. Called by the worker."""
        self._woken, self._is_backing_off = None, True
        pause = await self._work()
        self._failures, self._problem, self._is_backing_off = 0, None, False
        if self._woken is not None:
            pause = min(pause, self._woken)
        return Result(max(pause, self._resumes - _now()), Priority.REFRESH)

    def failed(self, key: str, error: BaseException) -> None:  # noqa: ARG002 -- there is one
        """Count a failed round. Called by the worker."""
        self._failures += 1
        self._counter.inc()
        if self._failures >= KEEPS_FAILING:
            self._problem = f"{self.name} failed {self._failures} times in a row: {error!r}"


async def all_of(work: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run all parts of a round at once and wait for their ends. Raises afterwards what they raised.

    Raises an `ExceptionGroup` if several parts failed.
    """
    raised: list[Exception] = []

    async def caught(one: Callable[[], Awaitable[None]]) -> None:
        try:
            await one()
        except Exception as error:  # noqa: BLE001 -- raised below, once all have ended
            raised.append(error)

    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(caught(one))
    if len(raised) == 1:
        raise raised[0]
    if raised:
        raise ExceptionGroup(f"{len(raised)} parts of a round failed", raised)


def _now() -> float:
    return asyncio.get_running_loop().time()
