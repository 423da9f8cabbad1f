"""Questions to the API server are repeated while that may help, within their deadline."""

import asyncio

import pytest

from pileus.server.reviews import Meter, ReviewFailed, persistently
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics

BUSY = ReviewFailed("busy", code=503, passing=True)


class Server:
    def __init__(self, *failures: ReviewFailed, slow: float = 0) -> None:
        self.times: list[float] = []
        self._failures = list(failures)
        self._slow = slow

    async def __call__(self) -> str:
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self._slow)
        if self._failures:
            raise self._failures.pop(0)
        return "answer"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(MetricRegistry())


@pytest.fixture
def meter(metrics: Metrics) -> Meter:
    return Meter(metrics.token_reviews, metrics.token_review_duration)


async def test_what_may_pass_is_tried_again_after_growing_pauses(meter: Meter, metrics: Metrics):
    server = Server(BUSY, BUSY, BUSY, BUSY)

    assert await persistently(server, meter) == "answer"

    pauses = [
        later - earlier for earlier, later in zip(server.times, server.times[1:], strict=False)
    ]
    assert pauses == pytest.approx([0.5, 0.75, 1.125, 1.6875])
    name = "apiserver_delegated_authn_request_total"
    assert metrics.registry.value(name, {"code": "503"}) == 4
    assert metrics.registry.value(name, {"code": "201"}) == 1


async def test_five_tries_are_all(meter: Meter):
    server = Server(*[BUSY] * 9)

    with pytest.raises(ReviewFailed, match="busy"):
        await persistently(server, meter)

    assert len(server.times) == 5


async def test_what_will_not_pass_is_not_tried_again(meter: Meter):
    server = Server(ReviewFailed("no right to ask", code=403))

    with pytest.raises(ReviewFailed, match="no right to ask"):
        await persistently(server, meter)

    assert len(server.times) == 1


async def test_a_server_that_hangs_is_left_after_the_deadline(meter: Meter, metrics: Metrics):
    start = asyncio.get_running_loop().time()

    with pytest.raises(ReviewFailed, match="within 10 s"):
        await persistently(Server(slow=3600), meter)

    assert asyncio.get_running_loop().time() - start == pytest.approx(10)
    labels = {"code": "<error>"}
    name = "apiserver_delegated_authn_request_total"
    assert metrics.registry.value(name, labels) == 1
