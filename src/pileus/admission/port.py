"""The webhook port: HTTPS without client authentication, one path per webhook.

Standby replicas serve it too. It is opened early, so that a port in use ends the start, and served
before the lease is acquired, so that webhooks answer from the first write of the leader on.
"""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pileus.admission.names import TIMEOUT
from pileus.admission.review import (
    AdmissionRequest,
    Answer,
    BadReview,
    Outcome,
    Review,
    parse,
    render,
    undecided,
)
from pileus.http.messages import Refused, Request, Response
from pileus.http.server import Server
from pileus.server import responses
from pileus.server.port import LAST_ANSWERS, Address, listen
from pileus.server.settings import ServingOptions
from pileus.server.tls import Tls
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

LARGEST = 8 << 20
"""Bytes of a request; the API server stores objects of up to 1.5 MiB, and sends two of them."""
SHARE = 0.8
"""Part of the API server's timeout that a webhook may use; the rest is for the network."""
AT_ONCE = 10
"""Reviews that ask the cloud at the same time: callers are not authenticated, and must not use up
the calls to the cloud that controllers need."""
_TIMEOUT = re.compile(r"(\d{1,4})(?:\.\d+)?s")
JSON = "application/json"


class WebhookPort:
    """A listening port for webhooks."""

    def __init__(self, listener: socket.socket, tls: Tls, metrics: Metrics) -> None:
        self._listener = listener
        self.tls = tls
        self._metrics = metrics

    @asynccontextmanager
    async def serving(self, reviews: Mapping[str, "Served"]) -> AsyncGenerator[Address]:
        """Serve these webhooks, by path, while the block lasts."""
        server = Server(Pipeline(reviews, self._metrics))
        try:
            host, port, *_ = self._listener.getsockname()
            await server.start(self._listener, self.tls.context)
            names = sorted(each.name for each in reviews.values())
            log.info("Serving webhooks", address=host, port=port, webhooks=names)
            yield Address(host, port)
        finally:
            await server.close(LAST_ANSWERS)


@contextlib.contextmanager
def opened(options: ServingOptions, metrics: Metrics) -> Generator[WebhookPort | None]:
    """Open the port without serving it; None if `--webhook-secure-port` is 0.

    Raises `ServerError`. The socket is closed at the end.
    """
    listener = listen(options, "webhook-")
    if listener is None:
        yield None
        return
    with contextlib.closing(listener):
        yield WebhookPort(listener, Tls(options), metrics)


@dataclass(frozen=True, slots=True)
class Served:
    name: str
    review: Review


class Pipeline:
    """What happens to every request: checks, the webhook, its deadline, metrics."""

    def __init__(self, reviews: Mapping[str, Served], metrics: Metrics) -> None:
        self._reviews = reviews
        self._metrics = metrics
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, request: Request) -> Response:
        served = self._reviews.get(request.path)
        if served is None:
            return responses.not_found()
        loop = asyncio.get_running_loop()
        start = loop.time()
        response = await self._response(request, served)
        labels = (str(response.status), served.name)
        self._metrics.webhook_requests.labels(*labels).inc()
        self._metrics.webhook_duration.labels(*labels).observe(loop.time() - start)
        return response

    async def _response(self, request: Request, served: Served) -> Response:
        if request.method != "POST":
            return responses.text("expected POST\n", status=400)
        if request.headers.get("Content-Type", "") != JSON:
            return responses.text(f"expected Content-Type {JSON}\n", status=400)
        try:
            review = parse(await request.read(LARGEST))
        except Refused as refusal:
            return responses.text(f"{refusal}\n", status=refusal.status)
        except BadReview as error:
            return responses.text(f"{error}\n", status=400)
        try:
            answer = await self._in_time(served, request, review)
        except Exception as error:  # a bug in a webhook must not stop the server
            log.exception("A webhook failed", error=error, webhook=served.name, uid=review.uid)
            return responses.text("internal error; see the log\n", status=500)
        self._record(served, answer, review.name)
        return Response(body=render(review, answer), headers={"Content-Type": JSON})

    async def _in_time(self, served: Served, request: Request, review: AdmissionRequest) -> Answer:
        """Returns the answer, before the API server gives up: then it would not know why."""
        limit = deadline(request.query.get("timeout", ""))
        timer = asyncio.timeout(limit)
        try:
            async with timer, self._turns:
                return await served.review(review)
        except TimeoutError:
            if not timer.expired():
                raise
            return undecided(f"webhook {served.name}: no answer from the cloud within {limit:g} s")

    def _record(self, served: Served, answer: Answer, name: str) -> None:
        self._metrics.webhook_reviews.labels(served.name, answer.outcome.value).inc()
        write = log.info if answer.outcome in {Outcome.UNCHANGED, Outcome.CHANGED} else log.warning
        reason = answer.message or "; ".join(answer.warnings)
        write("Reviewed", webhook=served.name, object=name, answer=answer.outcome, reason=reason)


def deadline(timeout: str) -> float:
    """Returns the seconds for an answer, given the API server's own timeout, such as `5s`."""
    found = _TIMEOUT.fullmatch(timeout)
    return SHARE * min(float(found[1]) if found else TIMEOUT, 30.0)
