"""Blocking calls in a bounded number of threads, for providers whose SDK is not async.

    blocking = Blocking(limit=16)
    machines = await blocking.call(sdk.list_machines, region)
    await blocking.write(f"balancer/{uid}", sdk.delete_balancer, balancer_id)
    yield Cloud(name="acme", ..., health=blocking.health)

A thread cannot be stopped. If the caller is cancelled, for example at the deadline of its call or
because this process is no longer the leader, the thread goes on: the call is *abandoned*.

- An abandoned call keeps its thread of the limit until it ends, so threads never pile up.
- An abandoned write keeps its key. A new write with the same key raises `Conflict` until the
  abandoned one has ended: a late write never overwrites a newer one of the same object.
- `check_permission`, called in the thread before each further request, raises as soon as the call
  is abandoned, so that a function with several requests stops at the next one.
- One request that was already sent may still take effect, even when another process has become the
  leader. Set a timeout in the SDK that is shorter than the lease duration (15 s) where it allows.
- `health` reports calls that do not end. Only a restart of the process frees their threads.

The process does not wait for abandoned threads when it ends.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import ParamSpec, TypeVar, cast

from pileus.cloud.errors import Conflict, Unavailable
from pileus.cloud.permission import check_permission, permitted_by
from pileus.dataclass import dataclass
from pileus.telemetry.log import Log

P = ParamSpec("P")
T = TypeVar("T")
log = Log(__name__)

LIMIT = 16
EXHAUSTED = 60.0
"""Seconds for which all threads may be taken by abandoned calls before health reports it."""
STUCK = 600.0
"""Seconds that one abandoned call may go on before health reports it: its key is blocked."""


@dataclass(eq=False, slots=True)
class _Job:
    """One call, from the moment it has a thread until the thread has ended."""

    name: str
    key: str | None
    abandoned_at: float | None = None
    has_ended: bool = False

    def check(self) -> None:
        """Raises `Unavailable` once no caller waits for the call any more."""
        if self.abandoned_at is not None:
            raise Unavailable(f"request not sent: the call of {self.name} was cancelled")


class Blocking:
    """Runs blocking functions in threads, at most `limit` at the same time.

    Guarantees: abandoned calls count for the limit; functions run with the caller's context, so
    `check_permission` and `pass_on` work in them. Errors are raised to the caller as they are.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        if limit < 1:
            raise ValueError(f"limit must be 1 or more, not {limit}")
        self._limit = limit
        self._slots = asyncio.Semaphore(limit)
        self._keys: set[str] = set()
        self._abandoned: set[_Job] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def abandoned(self) -> int:
        """The number of threads whose caller was cancelled and that have not ended since."""
        return len(self._abandoned)

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns what the function returns. For reads, and for writes that need no key.

        Raises what the function raises; what `check_permission` raises, without a call;
        `Unavailable`, without a call, while abandoned calls take all threads.
        """
        return await self.run(_name(function), None, partial(function, *args, **kwargs))

    async def write(
        self, key: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `call`, for writes: never at the same time as another one with the same key.

        The key names the object that is written, such as `f"route/{destination}"`. Raises
        `Conflict`, without a call, while another write with it is running or abandoned. The
        caller observes the object again before the next attempt, as after every `Conflict`.
        """
        return await self.run(_name(function), key, partial(function, *args, **kwargs))

    async def run(self, name: str, key: str | None, function: Callable[[], T]) -> T:
        """As `call`, or with a key as `write`; `name` is for logs and errors."""
        job = await self._begin(name, key)
        with permitted_by(job.check):
            outcome = _started(function, name, partial(self._end, job))
        try:
            return await outcome
        except asyncio.CancelledError:
            self._abandon(job)
            raise

    @asynccontextmanager
    async def reserved(self, name: str, key: str | None = None) -> AsyncGenerator[None]:
        """The same limit and keys for a block that needs no thread. Raises as `write`."""
        job = await self._begin(name, key)
        try:
            yield
        finally:
            self._end(job)

    def health(self) -> str | None:
        """Returns the message for a health check; None while abandoned calls do no lasting harm."""
        if self._loop is None:
            return None
        now = self._loop.time()
        # A copy, because health checks may come from a thread.
        since = [(now - (job.abandoned_at or now), job.name) for job in list(self._abandoned)]
        if len(since) >= self._limit and min(since)[0] > EXHAUSTED:
            return f"abandoned calls have taken all {self._limit} threads for {min(since)[0]:.0f} s"
        longest, name = max(since, default=(0.0, ""))
        if longest > STUCK:
            return f"{name} was abandoned {longest:.0f} s ago and has not ended"
        return None

    async def _begin(self, name: str, key: str | None) -> _Job:
        """Take the key and a slot. What was taken is given back if this raises."""
        self._loop = asyncio.get_running_loop()
        if key is not None and key in self._keys:
            raise Conflict(f"an earlier call for {key} is still running in the cloud provider")
        if len(self._abandoned) >= self._limit:
            raise Unavailable(f"{name} not called: abandoned calls take all {self._limit} threads")
        job = _Job(name, key)
        if key is not None:
            self._keys.add(key)
        try:
            await self._slots.acquire()
        except BaseException:
            self._free(job)
            raise
        try:
            check_permission()
        except BaseException:
            self._end(job)
            raise
        return job

    def _abandon(self, job: _Job) -> None:
        if job.has_ended:
            return
        job.abandoned_at = asyncio.get_running_loop().time()
        self._abandoned.add(job)
        log.warning(
            "Abandoned a blocking call of the cloud provider, its thread continues",
            function=job.name,
            abandoned=len(self._abandoned),
            limit=self._limit,
        )

    def _end(self, job: _Job) -> None:
        job.has_ended = True
        self._slots.release()
        self._free(job)
        if job in self._abandoned:
            self._abandoned.discard(job)
            log.info("Abandoned call of the cloud provider has ended", function=job.name)

    def _free(self, job: _Job) -> None:
        if job.key is not None:
            self._keys.discard(job.key)


async def in_thread(call: Callable[[], T]) -> T:
    """Returns what the function returns, from a thread of its own, outside of any limit.

    For background work. A cancelled caller stops waiting; the thread goes on.
    """
    return await _started(call, _name(call), lambda: None)


def _started(call: Callable[[], T], name: str, ended: Callable[[], None]) -> asyncio.Future[T]:
    """Start the thread. `ended` is called in the loop when it has ended."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(answer: T | None, error: BaseException | None) -> None:
        ended()
        if outcome.done():
            return
        if error is None:
            outcome.set_result(cast("T", answer))
        else:
            outcome.set_exception(error)

    work = (copy_context().run, call, loop, settle)
    try:
        Thread(target=_work, args=work, name=name, daemon=True).start()
    except RuntimeError as error:
        ended()
        raise Unavailable(f"no thread for {name}: {error}") from error
    return outcome


def _work(
    run: Callable[[Callable[[], T]], T],
    call: Callable[[], T],
    loop: asyncio.AbstractEventLoop,
    settle: Callable[[T | None, BaseException | None], None],
) -> None:
    """Runs in the thread. A pool would be joined when the process ends, so threads are our own."""
    answer: T | None = None
    error: BaseException | None = None
    try:
        answer = run(call)
    except StopIteration as raised:
        error = RuntimeError(f"raised StopIteration: {raised}")
    except BaseException as raised:  # noqa: BLE001 -- carried to the caller
        error = raised
    try:
        loop.call_soon_threadsafe(settle, answer, error)
    except RuntimeError:
        return  # the loop is closed: no caller waits any more


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
