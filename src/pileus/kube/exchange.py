"""One request to the API server: concurrency limit, fence, Retry-After, metrics.

`Adaptive` is the default: no fixed rate, but a window that halves when the server says "too
many" or does not answer in time, and grows slowly while it is full. `TokenBucket` is what
`--kube-api-qps` and `--kube-api-burst` ask for.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import Protocol, Self

from pileus.bucket import Bucket
from pileus.dataclass import dataclass, replace
from pileus.deadline import covered
from pileus.fence import Fence
from pileus.kube.access import Server
from pileus.kube.errors import (
    ApiError,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unreachable,
    refusal,
)
from pileus.kube.transport import READS, Reply, Request, Transport
from pileus.telemetry.instruments import Counter, Histogram
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics
from pileus.telemetry.passes import wrote

log = Log(__name__)


GIVES_WAY = 60.0
"""Seconds for which a request that can wait gives way to the others."""


class Throttle(Protocol):
    def admission(self) -> AbstractAsyncContextManager[None]:
        """Wait until one more request may leave; the block is the request, and shows its error."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """How many requests may be under way: grows by one per window of successes, halves at once."""

    limit: float = 16
    most: int = 32
    halvings: int = 0
    """Identifies requests sent before the last halving: one burst of refusals halves once."""

    @property
    def size(self) -> int:
        return int(self.limit)

    def grown(self) -> "Window":
        if self.limit >= self.most:
            return self
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
        self._urgent = 0
        """Urgent requests that are waiting or under way."""
        self._lull = asyncio.Event()
        self._lull.set()

    @property
    def window(self) -> Window:
        return self._window

    def admission(self) -> AbstractAsyncContextManager[None]:
        return _Admission(self, is_urgent=True)

    def admission_in_a_lull(self) -> AbstractAsyncContextManager[None]:
        """As `admission`, for a request that can wait for `lull`; that does not wait for it."""
        return _Admission(self, is_urgent=False)

    async def lull(self) -> None:
        """Wait until no urgent request is waiting or under way, for at most `GIVES_WAY` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GIVES_WAY):
                await self._lull.wait()

    async def begin(self, *, is_urgent: bool) -> None:
        """Wait until the request may leave."""
        self._urgent += is_urgent
        if is_urgent:
            self._lull.clear()
        try:
            await self._enter()
        except BaseException:
            self._leave(is_urgent=is_urgent)
            raise

    def end(self, error: BaseException | None, admission: "_Admission") -> None:
        """The request has ended, perhaps with an error."""
        if error is None:
            if admission.was_full:
                self._window = self._window.grown()
        elif isinstance(error, TooManyRequests | Timeout) or (
            isinstance(error, Unreachable) and error.timed_out
        ):
            self._window = self._window.halved(sent_at=admission.sent_at)
        self._under_way -= 1
        self._wake()
        self._leave(is_urgent=admission.is_urgent)

    @property
    def is_full(self) -> bool:
        return self._under_way >= self._window.size

    def _leave(self, *, is_urgent: bool) -> None:
        self._urgent -= is_urgent
        if not self._urgent:
            self._lull.set()

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


class _Admission:
    """The block of one request. Not a generator: there are several in every pass."""

    __slots__ = ("_throttle", "is_urgent", "sent_at", "was_full")

    def __init__(self, throttle: Adaptive, *, is_urgent: bool) -> None:
        self._throttle = throttle
        self.is_urgent = is_urgent
        self.sent_at = 0
        self.was_full = False

    async def __aenter__(self) -> None:
        throttle = self._throttle
        await throttle.begin(is_urgent=self.is_urgent)
        self.sent_at, self.was_full = throttle.window.halvings, throttle.is_full

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._throttle.end(error, self)


class GivingWay:
    """Lets requests out that can wait, such as events: when no other request is under way.

    They wait for at most `GIVES_WAY` seconds each, and count in the window of the others.
    """

    def __init__(self, shared: Adaptive) -> None:
        self._shared = shared

    @asynccontextmanager
    async def admission(self) -> AsyncGenerator[None]:
        await self._shared.lull()
        async with self._shared.admission_in_a_lull():
            yield


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


TRIES = 5
AUDIT_ID = "Audit-Id"
"""The header with the ID of a request in the audit log of the API server."""
LONGEST_WAIT = 60.0
"""Longest Retry-After in seconds that is waited for; a longer one raises the error."""


class Exchange:
    """Sends requests, and turns every answer that is not a success into its error."""

    def __init__(
        self,
        transport: Transport,
        *,
        metrics: Metrics,
        fence: Fence,
        throttle: Throttle,
        server: Server,
    ) -> None:
        self._transport = transport
        self._metrics = metrics
        self._fence = fence
        self._throttle = throttle
        self._server = server
        self._by_method: dict[str, _Figures] = {}
        self._counts: dict[tuple[str, str], Counter] = {}

    async def send(self, request: Request) -> bytes:
        """Returns the body of the answer. Waits and retries if the server asks for it."""
        with covered():
            return await self._send(request)

    async def _send(self, request: Request) -> bytes:
        for _ in range(TRIES - 1):
            try:
                return await self._send_once(request)
            except (TooManyRequests, ServiceUnavailable) as error:
                delay = patience(request.method, error)
                if delay is None:
                    raise
                log.info(
                    "Retrying after the delay that the API server asked for",
                    v=2,
                    delay=delay,
                    err=error,
                )
            await asyncio.sleep(delay)
        return await self._send_once(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[Reply]:
        """The reply of a watch, once it is known to be a success. Counted, but not throttled."""
        answered = False
        try:
            async with self._transport.send(request) as reply:
                answered = True
                self._count(request, str(reply.status))
                if not _succeeded(reply):
                    raise self._refusal(request, reply, await reply.read())
                yield reply
        except Unreachable:
            if not answered:
                self._count(request, "<error>")
            raise

    async def _send_once(self, request: Request) -> bytes:
        now = asyncio.get_running_loop().time
        asked = now()
        figures = self._figures(request.method)
        async with self._throttle.admission():
            started = now()
            figures.throttled.observe(started - asked)
            reply, body = await self._perform(request, started)
            figures.duration.observe(now() - started)
            figures.size.observe(len(request.body) if request.body else 0)
            figures.answer.observe(len(body))
            if not _succeeded(reply):
                raise self._refusal(request, reply, body)
            return body

    async def _perform(self, request: Request, began: float) -> tuple[Reply, bytes]:
        if request.method not in READS:
            self._fence.check()
            # Once more by the transport: fetching credentials may have taken its time.
            request = replace(request, guard=self._fence.check)
        try:
            async with self._transport.send(request) as reply:
                body = await reply.read()
        except Unreachable as error:
            self._count(request, "<error>")
            _record(request, began, 0, str(error))
            raise
        self._count(request, str(reply.status))
        why = "" if _succeeded(reply) else str(self._refusal(request, reply, body))
        _record(request, began, reply.status, why, reply.headers.get(AUDIT_ID, ""))
        return reply, body

    def _refusal(self, request: Request, reply: Reply, body: bytes) -> ApiError:
        return refusal(
            request.method,
            request.path,
            reply.status,
            headers=reply.headers,
            body=body,
            credentials=self._server.refused,
        )

    def _figures(self, method: str) -> "_Figures":
        """Found once: finding an instrument by its labels costs more than using it."""
        if method not in self._by_method:
            self._by_method[method] = _Figures.of(self._metrics, method, self._server.host)
        return self._by_method[method]

    def _count(self, request: Request, code: str) -> None:
        counted = self._counts.get((code, request.method))
        if counted is None:
            counted = self._metrics.requests.labels(code, request.method, self._server.host)
            self._counts[code, request.method] = counted
        counted.inc()


@dataclass(frozen=True, slots=True)
class _Figures:
    """What is measured of the requests of one method."""

    throttled: Histogram
    duration: Histogram
    size: Histogram
    answer: Histogram

    @classmethod
    def of(cls, metrics: Metrics, method: str, host: str) -> Self:
        return cls(
            throttled=metrics.request_throttled.labels(method, host),
            duration=metrics.request_duration.labels(method, host),
            size=metrics.request_size.labels(method, host),
            answer=metrics.response_size.labels(method, host),
        )


def patience(method: str, error: ApiError) -> float | None:
    """Seconds after which to ask again; None: not at all.

    429 means that nothing was done. 503 does not say so, hence only reads are repeated.
    """
    if error.retry_after is None or error.retry_after > LONGEST_WAIT:
        return None
    if isinstance(error, TooManyRequests) or method in READS:
        return error.retry_after
    return None


def _record(request: Request, began: float, status: int, why: str, request_id: str = "") -> None:
    if request.method not in READS:
        wrote(f"{request.method} {request.path}", began, status, why, request_id)


def _succeeded(reply: Reply) -> bool:
    return 200 <= reply.status < 300  # noqa: PLR2004 -- HTTP's own numbers
