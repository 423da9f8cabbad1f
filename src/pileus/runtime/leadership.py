"""Leader election: an `async with` block whose body runs only while this process has the lease.

    async with election.leading():      # waits for the lease
        await work()                    # cancelled when the lease is lost
    # here the work has ended, and the lease is released

Why two processes never write at the same time: a leader's fence is open for `renew_deadline` from
the moment *before* it sent its last successful renewal. Another process takes the lease only after
it was unchanged for `lease`, which is longer, and only if it is still unchanged when the write
arrives.
"""

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from pileus.clock import Clock, SystemClock, since_boot
from pileus.dataclass import dataclass
from pileus.fence import Fenced
from pileus.kube.errors import AlreadyExists, Conflict, KubeError
from pileus.runtime.events import Recorder
from pileus.runtime.lease import (
    Candidate,
    LeaseStore,
    Observed,
    held,
    new_lease,
    observe,
    reference,
    released,
)
from pileus.runtime.settings import JITTER_FACTOR
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

Value = TypeVar("Value")

HEALTH_TOLERANCE = 20.0
"""Seconds beyond the lease duration after which a leader that does not renew is unhealthy."""


EXPIRED = 0.01
"""Seconds after its expiry at which a lease is read, so that it has surely expired."""


class LeadershipLost(Exception):
    """The lease could not be renewed in time, or another process has it."""


class NoAnswer(Exception):
    """The API server did not answer a request about the lease in time."""


@dataclass(frozen=True, slots=True)
class Times:
    """The clocks of an election."""

    wall: Clock
    """For the times in the lease, which are informational."""
    monotonic: Callable[[], float]
    """Seconds that never decrease and include the sleep of the machine. All decisions use it."""


SYSTEM_TIMES = Times(SystemClock(), since_boot)


class LeaseFence:
    """Open while the last successful renewal was sent less than the renew deadline ago."""

    def __init__(self, candidate: Candidate, monotonic: Callable[[], float]) -> None:
        self._candidate = candidate
        self._monotonic = monotonic
        self._sent: float | None = None

    def check(self) -> None:
        if self._sent is None:
            raise Fenced(f"lease {self._candidate.lock} is not held by this process")
        if self.remaining() <= 0:
            raise Fenced(f"lease {self._candidate.lock} was last renewed {self.age():.1f} s ago")

    def open_from(self, sent: float) -> None:
        """Record that a renewal sent at `sent` succeeded."""
        self._sent = sent

    def close(self) -> None:
        self._sent = None

    @property
    def is_held(self) -> bool:
        """Whether the lease was acquired and neither released nor lost since."""
        return self._sent is not None

    def age(self) -> float:
        """Returns the seconds since the last successful renewal was sent; 0 without the lease."""
        return 0.0 if self._sent is None else self._monotonic() - self._sent

    def remaining(self) -> float:
        """Returns the seconds until the fence closes."""
        return self._candidate.durations.renew_deadline - self.age()


class Election:
    """One candidate for one lease.

    Guarantees: at most one candidate's fence is open at any moment, even if processes are
    suspended, answers are lost or requests are late. This holds if no clock runs faster than
    another by more than lease ÷ renew deadline, and if the lease is not deleted.
    """

    def __init__(
        self,
        candidate: Candidate,
        store: LeaseStore,
        *,
        random: random.Random,
        metrics: Metrics,
        events: Recorder,
        times: Times = SYSTEM_TIMES,
    ) -> None:
        wrong = candidate.durations.problems()
        if wrong:
            raise ValueError(f"lease {candidate.lock}: {'; '.join(wrong)}")
        self.fence = LeaseFence(candidate, times.monotonic)
        self._candidate = candidate
        self._store = store
        self._random = random
        self._events = events
        self._times = times
        self._seen: Observed | None = None
        self.when_lost: Callable[[], None] = lambda: None
        """Called when the lease is lost, before the body is cancelled."""
        self._why_lost = ""
        self._has_failed = False
        """Whether the last attempt to take the lease ended with an error."""
        self._status = metrics.leading.labels(candidate.name)
        self._slow = metrics.lease_slow_renewals.labels(candidate.name)
        self._status.set(0)
        metrics.lease_transitions.labels(candidate.name).set_function(self._transitions)

    @asynccontextmanager
    async def leading(self) -> AsyncGenerator[None]:
        """Wait for the lease, run the body, and release the lease when the body has ended.

        The lease is renewed until the body ends. When the lease is lost, the fence closes first,
        then the body is cancelled; once it has ended, `LeadershipLost` is raised.
        """
        await self._acquire()
        failure: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._renew_until_lost(), name="lease")
                yield
                renewing.cancel()
        except BaseExceptionGroup as errors:
            failure = _foremost(errors)
        finally:
            await self._leave()
        if failure is not None:
            raise failure

    def health(self) -> str | None:
        """Returns the message for a health check; None while healthy, and always on standbys."""
        if self._why_lost:
            return f"lost lease {self._candidate.name}: {self._why_lost}; the process is ending"
        if self.fence.age() <= self._candidate.durations.lease + HEALTH_TOLERANCE:
            return None
        return f"failed election to renew leadership on lease {self._candidate.name}"

    def _transitions(self) -> float:
        """Returns how often the lease changed hands; not a number before the lease is known."""
        return math.nan if self._seen is None else self._seen.spec.lease_transitions or 0

    async def _acquire(self) -> None:
        log.info("attempting to acquire leader lease", lock=self._candidate.lock)
        if not await self._attempt():
            await self._stand_by()
        log.info("successfully acquired lease", lock=self._candidate.lock)
        self._status.set(1)
        self._announce("became leader")

    async def _stand_by(self) -> None:
        """Try to take the lease until that succeeds."""
        changed = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(changed), name="lease-watch")
            await self._wait_for_next_attempt(changed)
            while not await self._attempt():
                await self._wait_for_next_attempt(changed)
            watching.cancel()

    async def _watch(self, changed: asyncio.Event) -> None:
        """Set `changed` when the lease may have changed. Without a watch, it is only polled.

        While it cannot be read, it is not watched: that would only be a second failing request.
        """
        while True:
            try:
                if not self._has_failed:
                    await self._store.watch(changed.set)
            except KubeError as error:
                log.info("Cannot watch the lease", v=2, lock=self._candidate.lock, err=error)
            except Exception as error:  # the lease is polled, too
                log.exception("Cannot watch the lease", error=error, lock=self._candidate.lock)
            await asyncio.sleep(self._pause())

    async def _wait_for_next_attempt(self, changed: asyncio.Event) -> None:
        """Wait until the lease has changed or expired, or the retry period is over.

        A watch only says when to read the lease: what is read decides whether it may be taken.
        After an error only time counts: the change may be our own, whose answer was lost.
        """
        pause, left = self._pause(), self._until_expiry()
        if self._has_failed:
            await asyncio.sleep(pause)
            changed.clear()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(min(pause, left) if left > 0 else pause):
                await changed.wait()
        changed.clear()

    def _pause(self) -> float:
        """Returns from one to 1 + JITTER_FACTOR retry periods: the same spread as upstream."""
        retry = self._candidate.durations.retry
        return self._random.uniform(retry, retry * (1 + JITTER_FACTOR))

    def _until_expiry(self) -> float:
        """Returns the seconds until the lease of another process expires; 0 if not known."""
        if self._seen is None:
            return 0.0
        expiry = self._seen.since + (self._seen.spec.lease_duration_seconds or 0)
        return expiry + EXPIRED - self._times.monotonic()

    async def _attempt(self) -> bool:
        """Take the lease if it is free. Returns whether this process has it now."""
        self._has_failed = False
        try:
            if not await self._read_lease():
                return False
            await self._write()
        except (AlreadyExists, Conflict):
            log.info("Another candidate took the lease", v=4, lock=self._candidate.lock)
            return False
        except (KubeError, NoAnswer) as error:
            log.error("error retrieving resource lock", error=error, lock=self._candidate.lock)
            self._has_failed = True
            return False
        return True

    async def _read_lease(self) -> bool:
        """Read the lease. Returns whether it may be taken. A deleted lease must expire as well."""
        lease = await self._in_time(self._store.read())
        now = self._times.monotonic()
        if lease is not None:
            before, self._seen = self._seen, observe(self._seen, lease, now)
            self._log_leader(before, self._seen)
        if self._seen is None:
            return True
        free = self._seen.is_free(self._candidate.identity, now)
        if lease is None and free:
            self._seen = None
        return free

    async def _write(self) -> None:
        """Create, take or renew the lease, based on the copy read last."""
        sent, now = self._times.monotonic(), self._times.wall.now()
        if self._seen is None:
            lease = await self._in_time(self._store.create(new_lease(self._candidate, now)))
        else:
            taken = held(self._seen.lease, self._candidate, now)
            lease = await self._in_time(self._store.update(taken))
        self._seen = Observed(lease, self._times.monotonic())
        self.fence.open_from(sent)

    async def _renew_until_lost(self) -> None:
        while True:
            await asyncio.sleep(self._candidate.durations.retry)
            if self.fence.remaining() <= 0 or not await self._renewed_in_time():
                self._lose(f"not renewed for {self.fence.age():.1f} s")

    async def _renewed_in_time(self) -> bool:
        try:
            async with asyncio.timeout(self.fence.remaining()):
                while not await self._renew():  # noqa: ASYNC110 -- a pause between tries
                    await asyncio.sleep(self._candidate.durations.retry)
        except TimeoutError:
            return False
        return True

    async def _renew(self) -> bool:
        """Renew the lease based on the copy read last; if that fails, read it first."""
        try:
            await self._write()
        except (KubeError, NoAnswer) as error:
            log.error("Renewal failed, reading the lease", error=error, lock=self._candidate.lock)
        else:
            return True
        self._slow.inc()
        try:
            await self._read_lease()
            if self._is_taken():
                self._lose("another process has it")
            await self._write()
        except (KubeError, NoAnswer) as error:
            log.error("error retrieving resource lock", error=error, lock=self._candidate.lock)
            return False
        return True

    def _is_taken(self) -> bool:
        """Whether the lease names another holder."""
        holder = self._seen.spec.holder_identity if self._seen else None
        return holder is not None and holder not in {"", self._candidate.identity}

    def _lose(self, why: str) -> None:
        self.fence.close()
        self._status.set(0)
        self._why_lost = why
        log.error("leaderelection lost", lock=self._candidate.lock, why=why)
        self.when_lost()
        raise LeadershipLost(f"leaderelection lost: lease {self._candidate.lock}: {why}")

    async def _leave(self) -> None:
        """Release the lease, if this process still has it, so that it can be taken at once."""
        holding = self.fence.is_held
        self.fence.close()
        self._status.set(0)
        if not holding:
            return
        try:
            await self._in_time(self._release())
        except (KubeError, NoAnswer) as error:
            log.error("Failed to release lock", error=error, lock=self._candidate.lock)
        else:
            self._announce("stopped leading")

    async def _release(self) -> None:
        """A cancelled renewal may have changed the lease: after a conflict it is read first."""
        try:
            await self._free()
        except Conflict:
            await self._read_lease()
            await self._free()

    async def _free(self) -> None:
        if self._seen is None or self._is_taken():
            return
        await self._store.update(released(self._seen.lease, self._times.wall.now()))
        log.info("Released leader lease", lock=self._candidate.lock)

    async def _in_time(self, request: Awaitable[Value]) -> Value:
        limit = self._candidate.durations.request_timeout
        timer = asyncio.timeout(limit)
        try:
            async with timer:
                return await request
        except TimeoutError as error:
            if not timer.expired():
                raise
            raise NoAnswer(f"no answer within {limit:g} s") from error

    def _announce(self, what: str) -> None:
        if self._seen is not None:
            about = reference(self._seen.lease)
            message = f"{self._candidate.identity} {what}"
            self._events.record(about, "Normal", "LeaderElection", message)

    def _log_leader(self, before: Observed | None, now: Observed) -> None:
        holder = now.spec.holder_identity
        if holder and (before is None or before.spec.holder_identity != holder):
            log.info("new leader elected", lock=self._candidate.lock, identity=holder)


def _foremost(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the loss of the lease if it is among the errors, otherwise the body's error."""
    for error in errors.exceptions:
        if isinstance(error, LeadershipLost):
            return error
    return errors.exceptions[0]
