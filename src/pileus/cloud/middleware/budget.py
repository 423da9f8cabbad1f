"""The call budget of a cloud: calls at once, calls per second, and pauses the cloud asks for."""

import asyncio
import heapq
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import field
from functools import cache
from itertools import count
from typing import cast

from pileus.bucket import Bucket
from pileus.cloud.abilities import Limits
from pileus.cloud.errors import Throttled
from pileus.cloud.middleware.methods import Call, Priority
from pileus.cloud.middleware.pace import Pace, Quickness
from pileus.cloud.model import Failure
from pileus.cloud.permission import permitted_by
from pileus.dataclass import dataclass, replace
from pileus.deadline import covered
from pileus.telemetry.metrics import Metrics

TICK = 1e-5
"""Seconds by which a timer may fire early; waiting for them again would spin."""
GRACE = {Priority.FIRST: 0.0, Priority.NORMAL: 1.0, Priority.MEMBERS: 5.0, Priority.LAST: 30.0}
"""Seconds for which calls of higher priority that come later are served before a waiting call."""


@dataclass(order=True, slots=True)
class _Waiting:
    """A call that waits for its turn. Ordered by when its turn is."""

    due: float
    number: int
    turn: asyncio.Future[None] = field(compare=False)


class Budget:
    """Limits the calls to one cloud.

    Guarantees: callers are served by priority, those of one priority in order, and every call is
    served in the end; a pause that the cloud asks one of them for holds for all: for later calls,
    and for requests of running calls that use `check_permission`. Calls that the cloud refuses
    make the pace slower, and quick answers while calls are waiting make it faster.
    Raises `Throttled`, without a call, while a pause lasts longer than `Limits.patience`.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._waits = cache(metrics.cloud_budget_waits.labels)
        self._paces = cache(metrics.cloud_budget_pace.labels)
        self._pace = Pace.declared(limits)
        self._quickness = Quickness()
        self._bucket: Bucket | None = None
        self._queue: list[_Waiting] = []
        self._numbers = count()
        self._running = 0
        self._paused_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pace(self) -> Pace:
        return self._pace

    @asynccontextmanager
    async def turn(self, call: Call) -> AsyncGenerator[int]:
        """Wait until the call may be made. The block makes it, and passes the number to `hear`."""
        time = asyncio.get_running_loop().time
        began = time()
        with covered():
            has_waited = await self._admitted(call)
        left, refusals = time(), self._pace.refusals
        self._waits(call.provider).inc(left - began)
        try:
            with self._listening(refusals):
                yield refusals
            kind = (call.name, call.items.bit_length())
            if self._quickness.is_quick(kind, time() - left) and has_waited:
                self._change(self._pace.faster())
        finally:
            self._running -= 1
            self._serve()
            self._paces(call.provider).set(self._pace.per_second)

    def hear(self, call: Call, answer: object, refusals: int) -> None:
        """Heed failures in a bulk answer that ask for a pause or a slower pace."""
        if call.method.has_outcomes and isinstance(answer, Mapping):
            time = asyncio.get_running_loop().time
            for error in refused(cast("Mapping[object, object]", answer)):
                self._heed(error, time(), refusals)

    @contextmanager
    def _listening(self, refusals: int) -> Generator[None]:
        """Pause when the block asks for it, by an error or, also from a thread, by `pass_on`."""
        time = asyncio.get_running_loop().time
        try:
            with permitted_by(
                lambda: self._refuse_pause(time(), beyond=TICK),
                lambda seconds: self._pause(time(), seconds),
            ):
                yield
        except Throttled as error:
            self._heed(error, time(), refusals)
            raise

    def _heed(self, error: Throttled, now: float, refusals: int) -> None:
        self._change(self._pace.slower(refusals=refusals))
        self._pause(now, error.retry_after)

    async def _admitted(self, call: Call) -> bool:
        """Wait for the turn of a call. Returns whether it had to wait for its turn."""
        loop = asyncio.get_running_loop()
        due = loop.time() + GRACE[call.priority]
        waiting = _Waiting(due, next(self._numbers), loop.create_future())
        heapq.heappush(self._queue, waiting)
        self._serve()
        has_to_wait = not waiting.turn.done()
        try:
            await waiting.turn
        except asyncio.CancelledError:
            turn = waiting.turn
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._give_back()  # let in and cancelled in the same instant
            raise
        return has_to_wait

    def _give_back(self) -> None:
        self._running -= 1
        if self._bucket is not None:
            self._bucket = self._bucket.returned()
        self._serve()

    def _serve(self) -> None:
        """Let in as many waiting calls as may run now, and set a timer for the next."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._refuse_waiting(loop.time())
        while self._queue:
            if self._queue[0].turn.done():  # cancelled
                heapq.heappop(self._queue)
            elif self._running >= int(self._pace.at_once):
                return
            elif (wait := self._wait(loop.time())) > TICK:
                self._timer = loop.call_later(wait, self._serve)
                return
            else:
                self._running += 1
                heapq.heappop(self._queue).turn.set_result(None)

    def _wait(self, now: float) -> float:
        """Returns the seconds until the next call may leave; takes its token if that is now."""
        bucket = self._bucket or Bucket.full(self._pace.per_second, self._pace.burst, now)
        wait, spent = bucket.reserve(now)
        wait = max(wait, self._paused_until - now)
        self._bucket = spent if wait <= TICK else bucket
        return wait

    def _refuse_waiting(self, now: float) -> None:
        """Fail all waiting calls during a pause that is longer than their patience."""
        if self._paused_until - now <= self._limits.patience:
            return
        for waiting in self._queue:
            try:
                self._refuse_pause(now, beyond=self._limits.patience)
            except Throttled as error:
                if not waiting.turn.done():
                    waiting.turn.set_exception(error)

    def _refuse_pause(self, now: float, *, beyond: float) -> None:
        left = self._paused_until - now
        if left > beyond:
            raise Throttled(
                f"the cloud asked for a pause, which lasts for another {left:.0f} s",
                retry_after=left,
            )

    def _pause(self, now: float, seconds: float | None) -> None:
        self._paused_until = max(self._paused_until, now + (seconds or 0.0))

    def _change(self, pace: Pace) -> None:
        self._pace = pace
        if self._bucket is not None:
            self._bucket = replace(self._bucket, rate=pace.per_second, burst=pace.burst)


def refused(answer: Mapping[object, object]) -> Iterator[Throttled]:
    """Yields the failures in a bulk answer that say that the cloud limits our calls."""
    for part in answer.values():
        error = part.error if isinstance(part, Failure) else part
        if isinstance(error, Throttled):
            yield error
