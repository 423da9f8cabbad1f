"""One request to the API server with all that belongs to it: limits, fence, patience, figures."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Self

from prometheus_client import Counter, Histogram

from pileus.deadline import covered
from pileus.fence import Fence
from pileus.kube.access import Server
from pileus.kube.errors import (
    ApiError,
    ServiceUnavailable,
    TooManyRequests,
    Unreachable,
    refusal,
)
from pileus.kube.throttle import Throttle
from pileus.kube.transport import READS, Reply, Request, Transport
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

TRIES = 5
LONGEST_WAIT = 60.0
"""Seconds of Retry-After that we sit out; who is asked to wait longer gets the error."""

log = Log(__name__)


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
        """The body of the answer; after some patience, if the server asked for it."""
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
                log.info("API server asks for patience", v=2, delay=delay, err=error)
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
            reply, body = await self._perform(request)
            figures.duration.observe(now() - started)
            figures.size.observe(len(request.body or b""))
            figures.answer.observe(len(body))
            if not _succeeded(reply):
                raise self._refusal(request, reply, body)
            return body

    async def _perform(self, request: Request) -> tuple[Reply, bytes]:
        if request.method not in READS:
            self._fence.check()
            # Once more by the transport: fetching credentials may have taken its time.
            request = replace(request, guard=self._fence.check)
        try:
            async with self._transport.send(request) as reply:
                body = await reply.read()
        except Unreachable:
            self._count(request, "<error>")
            raise
        self._count(request, str(reply.status))
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


def _succeeded(reply: Reply) -> bool:
    return 200 <= reply.status < 300  # noqa: PLR2004 -- HTTP's own numbers
