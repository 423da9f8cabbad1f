"""Run a reconciler over a queue with a number of workers, and retry failed passes."""

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar, cast

from pileus.cloud.provider_context import is_its_own
from pileus.dataclass import dataclass
from pileus.deadline import Deadline
from pileus.runtime.backoff import RetryPolicy
from pileus.runtime.failure import (
    PassTooLong,
    all_ask_to_wait,
    is_expected,
    is_fenced,
    server_pause,
)
from pileus.runtime.memory import PerObject
from pileus.runtime.queue import QueueClosed, WorkQueue
from pileus.runtime.reconcile import CountingFailures, Reconciler, Reporting, Result
from pileus.telemetry.log import Log
from pileus.telemetry.passes import Pass, passing

log = Log(__name__)

Key = TypeVar("Key", bound=Hashable)

FENCED_PAUSE = 1.0
"""Seconds until a pass that the fence stopped is retried; leadership is decided by then."""
REPORTING = 60.0
"""Seconds for reporting a failed pass on its object."""
SOONEST = 0.1
"""Seconds between two passes over a key whose reconciler asks for another pass at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many passes run at the same time, and for how long."""

    workers: int = 1
    group: int = 1
    """How many workers must be free, once all were busy, before the next passes start. Passes that
    start together share their calls to the cloud."""
    deadline: float = 300.0
    """Seconds after which a pass is cancelled, reported and retried. Time that has a deadline of
    its own (a call to the cloud, a request, waiting for either) does not count."""
    grace: float = 5.0
    """Seconds that running passes may take to finish when the controller stops."""


DEFAULT_LIMITS = Limits()


class _Workers:
    """Counts free workers. Once none is free, the next is taken when a whole group is."""

    def __init__(self, most: int, group: int) -> None:
        self._free = most
        self._group = min(group, most)
        self._enough = asyncio.Event()
        self._enough.set()

    async def acquire(self) -> None:
        await self._enough.wait()
        self._free -= 1
        if self._free == 0:
            self._enough.clear()

    def release(self) -> None:
        self._free += 1
        if self._free >= self._group:
            self._enough.set()


class Controller(Generic[Key]):
    """Passes every key of the queue to the reconciler until it succeeds.

    Guarantees: an error of a pass is logged once, with its key, and the pass is retried by the
    policy; the error stops neither the worker nor other keys. A key that always fails is retried
    no faster than the policy says. An error that says when to retry (`retry_after`) does not count
    as a failure: it does not lengthen the delay after the next ordinary error. If the API server
    asks for a delay, no pass over the key starts before it is over, even if its object changes:
    the pass could send the same request again.
    """

    def __init__(
        self,
        name: str,
        reconciler: Reconciler[Key],
        queue: WorkQueue[Key],
        policy: RetryPolicy,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.name = name
        self._reconciler = reconciler
        self._queue = queue
        self._policy = policy
        self._limits = limits
        self._failures = PerObject[Key, int]("objects/failures")
        self._in_hand = PerObject[Key, Deadline]("objects/in-hand")

    async def run(self) -> None:
        """Work until cancelled; call once.

        After cancellation no further pass starts. Running passes may finish within the grace
        period and are then cancelled, wherever they await. A pass may therefore end after any of
        its effects, and the next pass, perhaps in another process, must be able to continue.
        """
        async with asyncio.TaskGroup() as passes:
            passes.create_task(self._hand_out(passes), name=self.name)
            try:
                await asyncio.Event().wait()
            finally:
                await self._stop()

    def oldest_work(self) -> float:
        """Returns the age of the oldest running pass in seconds; 0 if no pass is running."""
        return self._queue.oldest_work()

    def stuck(self, limit: float) -> str | None:
        """Returns the message for a health check if a pass runs for more than `limit` seconds.

        Time that has a deadline of its own does not count. A limit beyond the deadline of a pass
        finds passes that ignore their cancellation.
        """
        spent = max((each.spent() for each in list(self._in_hand.values())), default=0.0)
        return (
            f"a pass of {self.name} has been running for {spent:.0f} s" if spent > limit else None
        )

    async def _stop(self) -> None:
        try:
            async with asyncio.timeout(self._limits.grace):
                await self._queue.drain()
        except TimeoutError:
            log.warning("Cancelling passes that did not end in time", controller=self.name)

    async def _hand_out(self, passes: asyncio.TaskGroup) -> None:
        """Start a pass for each key as it is queued, at most `workers` at a time.

        There is a task per pass, not per worker: thousands of idle workers cost nothing.
        """
        free = _Workers(self._limits.workers, self._limits.group)
        while True:
            await free.acquire()
            try:
                key = await self._queue.take()
            except QueueClosed:
                return
            passes.create_task(self._work(key, free), name=f"{self.name}/{key}")

    async def _work(self, key: Key, free: _Workers) -> None:
        try:
            await self._pass_over(key)
        finally:
            self._queue.done(key)
            free.release()

    async def _pass_over(self, key: Key) -> None:
        with passing(self.name) as record:
            try:
                result = await self._reconcile(key)
            except BaseException as error:  # the one place: no pass may stop the worker
                if not is_its_own(error):
                    raise
                await self._report(key, error)
                self._retry(key, error, record)
            else:
                record.done(result.requeue_after)

    async def _report(self, key: Key, error: BaseException) -> None:
        """Let the reconciler report on the object a failure that the pass could not report."""
        is_reported = is_expected(error) and not isinstance(error, PassTooLong)
        if is_reported or not isinstance(error, Exception):
            return
        if not isinstance(self._reconciler, Reporting):
            return
        reporting = cast("Reporting[Key]", self._reconciler)
        try:
            async with asyncio.timeout(REPORTING):
                await reporting.report(key, error)
        except Exception as failure:  # noqa: BLE001 -- the pass's own error matters more
            log.warning("Cannot report failed pass", controller=self.name, key=key, err=failure)

    async def _reconcile(self, key: Key) -> Result:
        deadline = self._in_hand[key] = Deadline(self._limits.deadline)
        try:
            async with deadline:
                result = await self._reconciler.reconcile(key)
        except TimeoutError as error:
            if not deadline.expired:
                raise
            raise PassTooLong(
                f"the pass was cancelled after {self._limits.deadline:g} s, not counting calls to "
                "the cloud and the API server"
            ) from error
        finally:
            del self._in_hand[key]
        if result.requeue_after is not None:
            self._queue.next_pass(key, max(result.requeue_after, SOONEST), result.priority)
        self._failures.pop(key, None)
        return result

    def _retry(self, key: Key, error: BaseException, record: Pass) -> None:
        if is_fenced(error):
            log.info("Pass stopped: not leader", v=2, controller=self.name, key=key)
            record.stopped("not leader", FENCED_PAUSE)
            self._queue.next_pass(key, FENCED_PAUSE)
            return
        if isinstance(self._reconciler, CountingFailures):
            cast("CountingFailures[Key]", self._reconciler).failed(key, error)
        failures = self._failures.get(key, 0)
        if not all_ask_to_wait(error):  # a requested delay is not a failure, as in Go
            failures = self._failures[key] = failures + 1
        delay = self._policy.delay(failures, error, asyncio.get_running_loop().time())
        write = log.error if is_expected(error) else log.exception
        write(
            "Pass failed, will be retried",
            error=error,
            controller=self.name,
            key=key,
            failures=failures,
            retry_in=round(delay, 3),
        )
        record.failed(error, delay)
        if pause := server_pause(error):
            self._queue.pause(key, pause)
        self._queue.next_pass(key, delay, retry=True)
