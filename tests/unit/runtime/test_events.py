"""Events reach the cluster, or are given up, and nobody waits for them."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest

from pileus.fence import Fenced
from pileus.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    ServiceUnavailable,
    Status,
    TooManyRequests,
    Unreachable,
)
from pileus.kube.model.core_v1 import Event, ObjectReference
from pileus.kube.model.meta import Resource, T
from pileus.kube.patch import Patch
from pileus.runtime.events import (
    LONGEST_BURST,
    LONGEST_QUEUE,
    MANY,
    TRIES,
    WRITERS,
    EventRecorder,
)
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from tests.unit.runtime.election_world import WallClock

NODE = ObjectReference(kind="Node", name="n1", uid="u1", api_version="v1")
DOWN = Unreachable("POST events", "api", "refused")


class Cluster:
    """Keeps events as an API server does, at a second each by default."""

    def __init__(self) -> None:
        self.events: dict[str, Event] = {}
        self.requests: list[str] = []
        self.failure: KubeError | Fenced | None = None
        self.takes = 1.0

    async def create(self, resource: Resource[T], body: T, *, namespace: str) -> T:
        await self._receive("POST")
        assert isinstance(body, Event)
        assert namespace == body.metadata.namespace
        if body.metadata.name in self.events:
            raise AlreadyExists("POST events", 409, Status())
        self.events[body.metadata.name] = body
        return body

    async def patch(self, resource: Resource[T], name: str, patch: Patch, *, namespace: str) -> T:
        await self._receive("PATCH")
        if name not in self.events:
            raise NotFound("PATCH events", 404, Status())
        assert isinstance(patch.body, dict)
        self.events[name] = msgspec.structs.replace(
            self.events[name],
            count=patch.body["count"],
            message=patch.body["message"],
            last_timestamp=patch.body["lastTimestamp"],
        )
        return msgspec.convert(self.events[name], resource.type, from_attributes=True)

    async def _receive(self, method: str) -> None:
        self.requests.append(method)
        await asyncio.sleep(self.takes)
        if self.failure is not None:
            raise self.failure


class Newsroom:
    def __init__(self) -> None:
        self.cluster = Cluster()
        self.registry = MetricRegistry()
        self.recorder = EventRecorder(
            "cloud-node-controller",
            self.cluster,
            clock=WallClock(),
            random=random.Random(1),
            metrics=Metrics(self.registry),
        )

    def record(self, message: str = "oops", about: ObjectReference = NODE) -> None:
        self.recorder.record(about, "Warning", "Failed", message)

    def dropped(self, reason: str) -> float | None:
        labels = {"component": "cloud-node-controller", "reason": reason}
        return self.registry.value("pileus_events_dropped_total", labels)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.recorder.run())
            yield
            task.cancel()


def nodes(count: int) -> list[ObjectReference]:
    return [ObjectReference(kind="Node", name=f"n{n}", api_version="v1") for n in range(count)]


async def test_an_event_looks_as_client_go_makes_it() -> None:
    news = Newsroom()
    async with news.open():
        news.record()
        await asyncio.sleep(5)

    (event,) = news.cluster.events.values()
    assert event.metadata.namespace == "default"
    assert event.metadata.name.startswith("n1.")
    assert event.involved_object == NODE
    assert (event.type, event.reason, event.message) == ("Warning", "Failed", "oops")
    assert event.source is not None
    assert event.source.component == event.reporting_component == "cloud-node-controller"
    assert event.count == 1
    assert event.first_timestamp == event.last_timestamp is not None


async def test_an_event_has_no_control_character() -> None:
    """Terminals and lines of `kubectl get events` show it as it is."""
    news = Newsroom()
    async with news.open():
        news.record("two\nlines\x1b[2J\x00")
        await asyncio.sleep(5)

    (event,) = news.cluster.events.values()
    assert event.message == r"two\nlines\u001b[2J\u0000"


async def test_an_event_has_no_secret_and_can_be_encoded() -> None:
    news = Newsroom()
    async with news.open():
        news.record("the cloud said password=hunter2 a\udc80")
        await asyncio.sleep(5)

    (event,) = news.cluster.events.values()
    assert event.message == r"the cloud said password=*** a\udc80"


async def test_a_long_message_is_cut_at_the_limit_of_the_newer_events_api() -> None:
    news = Newsroom()
    async with news.open():
        news.record("x" * 5000)
        await asyncio.sleep(5)

    (event,) = news.cluster.events.values()
    assert event.message == "x" * 1024


async def test_the_queue_of_events_has_metrics_under_the_name_of_its_component() -> None:
    news = Newsroom()
    async with news.open():
        news.record()
        await asyncio.sleep(5)

    labels = {"name": "events_cloud-node-controller"}
    assert news.registry.value("workqueue_adds_total", labels)


async def test_an_event_about_something_in_a_namespace_is_kept_there() -> None:
    news = Newsroom()
    async with news.open():
        news.record(about=ObjectReference(kind="Service", namespace="shop", name="web"))
        await asyncio.sleep(5)

    (event,) = news.cluster.events.values()
    assert event.metadata.namespace == "shop"


async def test_a_repeated_event_becomes_a_patch_of_its_count() -> None:
    news = Newsroom()
    async with news.open():
        for _ in range(3):
            news.record()
            await asyncio.sleep(10)

    (event,) = news.cluster.events.values()
    assert event.count == 3
    assert event.first_timestamp != event.last_timestamp
    assert news.cluster.requests == ["POST", "PATCH", "PATCH"]


async def test_repetitions_while_an_event_is_written_cost_one_more_write() -> None:
    news = Newsroom()
    async with news.open():
        news.record()
        await asyncio.sleep(0.5)
        for _ in range(5):
            news.record()
        await asyncio.sleep(10)

    (event,) = news.cluster.events.values()
    assert event.count == 6
    assert news.cluster.requests == ["POST", "PATCH"]


async def test_an_event_that_the_server_forgot_is_made_again() -> None:
    news = Newsroom()
    async with news.open():
        news.record()
        await asyncio.sleep(10)
        news.cluster.events.clear()
        news.record()
        await asyncio.sleep(10)

    (event,) = news.cluster.events.values()
    assert event.count == 2


async def test_events_do_not_wait_for_one_another() -> None:
    news = Newsroom()
    async with news.open():
        for about in nodes(80):
            news.record(about=about)
        await asyncio.sleep(10.5)

        assert len(news.cluster.events) == 80


async def test_more_events_than_the_queue_holds_are_dropped_and_counted() -> None:
    news = Newsroom()

    for about in nodes(LONGEST_QUEUE + 5):
        news.record(about=about)

    assert news.dropped("queue_full") == 5


async def test_an_unreachable_server_is_tried_twelve_times_ten_seconds_apart() -> None:
    news = Newsroom()
    news.cluster.failure = DOWN
    async with news.open():
        news.record()
        await asyncio.sleep(1000)

    assert len(news.cluster.requests) == TRIES
    assert news.dropped("gave_up") == 1


async def test_an_event_is_written_once_the_server_is_back() -> None:
    news = Newsroom()
    news.cluster.failure = ServiceUnavailable("POST events", 503, Status())
    async with news.open():
        news.record()
        await asyncio.sleep(30)
        news.record()
        news.cluster.failure = None
        await asyncio.sleep(15)

    (event,) = news.cluster.events.values()
    assert event.count == 2


async def test_a_retry_planned_for_what_was_written_meanwhile_does_nothing() -> None:
    news = Newsroom()
    news.cluster.failure = DOWN
    async with news.open():
        news.record()
        await asyncio.sleep(0.5)
        news.record()
        await asyncio.sleep(0.6)
        news.cluster.failure = None
        await asyncio.sleep(30)
        news.record("another")
        await asyncio.sleep(5)

    assert sorted(event.count for event in news.cluster.events.values()) == [1, 2]
    assert news.cluster.requests == ["POST"] * 3


async def test_missing_rights_are_told_once_and_nothing_is_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    news = Newsroom()
    news.cluster.failure = Forbidden("POST events", 403, Status(message="no"))
    async with news.open():
        for about in nodes(3):
            news.record(about=about)
        await asyncio.sleep(1000)

    assert len(news.cluster.requests) == 3
    assert news.dropped("refused") == 3
    assert [record.message for record in caplog.records] == ["Server rejected event"]


async def test_a_conflict_is_no_refusal_and_loses_no_event() -> None:
    news = Newsroom()
    news.cluster.failure = Conflict("POST events", 409, Status(message="the quota has changed"))
    async with news.open():
        news.record()
        await asyncio.sleep(5)
        news.cluster.failure = None
        await asyncio.sleep(30)

    assert len(news.cluster.events) == 1


async def test_who_is_not_leader_drops_its_events_silently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    news = Newsroom()
    news.cluster.failure = Fenced("not leader")
    async with news.open():
        news.record()
        await asyncio.sleep(100)

    assert news.cluster.requests == ["POST"]
    assert not caplog.records


async def test_when_stopped_what_is_left_is_written_within_a_moment() -> None:
    news = Newsroom()
    async with news.open():
        for about in nodes(10):
            news.record(about=about)
        await asyncio.sleep(0.1)

    assert len(news.cluster.events) == 10


async def test_when_stopped_a_dead_server_is_not_waited_for() -> None:
    news = Newsroom()
    news.cluster.failure = DOWN
    async with news.open():
        news.record()
        await asyncio.sleep(0.1)

    assert asyncio.get_running_loop().time() == pytest.approx(2.1)


async def test_an_event_is_not_tried_again_before_the_server_lets_us() -> None:
    news = Newsroom()
    news.cluster.failure = TooManyRequests("POST events", 429, Status(), retry_after=40)
    async with news.open():
        news.record()
        await asyncio.sleep(40)

        assert news.cluster.requests == ["POST"]
        await asyncio.sleep(10)
        assert news.cluster.requests == ["POST", "POST"]


async def test_a_burst_of_events_is_written_when_it_is_over() -> None:
    news = Newsroom()
    news.cluster.takes = 0.001
    async with news.open():
        for each in nodes(4 * MANY):
            news.record(about=each)
            await asyncio.sleep(0)
        while_it_lasts = len(news.cluster.requests)
        await asyncio.sleep(5)

    assert while_it_lasts <= MANY + WRITERS
    assert len(news.cluster.events) == 4 * MANY


async def test_events_are_written_although_a_burst_does_not_end() -> None:
    news = Newsroom()
    news.cluster.takes = 0.1
    first, *later = nodes(10 * MANY)
    async with news.open():
        for each in (first, *later[: 2 * MANY]):
            news.record(about=each)
        for each in later[2 * MANY :]:
            news.record(about=each)
            await asyncio.sleep(3 * LONGEST_BURST / len(later))
        assert len(news.cluster.events) > 2 * MANY
        await asyncio.sleep(30)

    assert len(news.cluster.events) == 10 * MANY
