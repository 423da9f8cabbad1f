import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Barrier, Event, Lock, current_thread, get_ident, main_thread
from typing import Any

import pytest

from pileus.cloud.abilities import Deadlines
from pileus.cloud.errors import CloudError, Conflict, Throttled, Unavailable
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.deadline import Overdue
from pileus.cloud.model import Route
from pileus.cloud.permission import check_permission, pass_on, permitted_by
from pileus.cloud.threads import EXHAUSTED, STUCK, Blocking
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from tests.unit.cloud.fakes import ROUTE, FakeRoutes, equipped


async def abandon(blocking: Blocking, *call: Any, key: str | None = None) -> None:
    """Cancel the call a moment after it began."""
    function, *arguments = call
    name = function.__qualname__
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(blocking.run(name, key, partial(function, *arguments)), 0.05)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


async def test_functions_run_in_threads_with_their_arguments() -> None:
    def add(one: int, *, other: int) -> tuple[int, bool]:
        return one + other, current_thread() is main_thread()

    assert await Blocking().call(add, 1, other=2) == (3, False)
    assert await Blocking().write("key", add, 1, other=2) == (3, False)


@pytest.mark.parametrize("error", [KeyError("zone"), Conflict("busy"), SystemExit(3)])
async def test_errors_reach_the_caller_as_they_are(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        await Blocking().call(fail)

    assert raised.value is error


async def test_a_stop_iteration_reaches_the_caller_as_an_error_that_a_task_can_raise() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await Blocking().call(next, iter(()))


@pytest.mark.real_time
async def test_as_many_threads_as_the_limit_run_at_once_and_no_more() -> None:
    blocking, lock, together = Blocking(limit=3), Lock(), Barrier(3)
    running: set[int] = set()
    counts: list[int] = []

    def work() -> None:
        with lock:
            running.add(get_ident())
            counts.append(len(running))
        together.wait(30)
        with lock:
            running.discard(get_ident())

    async with asyncio.TaskGroup() as group:
        for _ in range(12):
            group.create_task(blocking.call(work))

    assert max(counts) == 3


def test_a_limit_that_allows_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="limit must be 1 or more, not 0"):
        Blocking(limit=0)


@pytest.mark.real_time
async def test_an_abandoned_call_counts_for_the_limit_until_its_thread_ends() -> None:
    release, blocking = Event(), Blocking(limit=2)

    await abandon(blocking, release.wait, 60)
    assert blocking.abandoned == 1
    assert await blocking.call(lambda: 7) == 7, "one thread is left"
    await abandon(blocking, release.wait, 60)
    with pytest.raises(Unavailable, match="abandoned calls take all 2 threads"):
        await blocking.call(lambda: 7)

    release.set()
    await until(lambda: blocking.abandoned == 0)
    assert await blocking.call(lambda: 7) == 7


@pytest.mark.real_time
async def test_no_new_write_of_an_object_begins_before_the_abandoned_one_has_ended() -> None:
    release, blocking = Event(), Blocking()
    written: list[str] = []

    def write(text: str) -> None:
        if text == "old":
            release.wait(60)
        written.append(text)

    await abandon(blocking, write, "old", key="balancer/u1")
    with pytest.raises(Conflict, match="an earlier call for balancer/u1 is still running"):
        await blocking.write("balancer/u1", write, "new")
    await blocking.write("balancer/u2", write, "other")

    release.set()
    await until(lambda: blocking.abandoned == 0)
    await blocking.write("balancer/u1", write, "new")
    assert written == ["other", "old", "new"]


async def test_a_caller_that_gives_up_waiting_for_a_thread_leaves_nothing_behind() -> None:
    release, blocking = asyncio.Event(), Blocking(limit=1)

    async def holding() -> None:
        async with blocking.reserved("first"):
            await release.wait()

    task = asyncio.create_task(holding())
    await asyncio.sleep(0)
    await abandon(blocking, lambda: None, key="route/a")
    release.set()
    await task

    assert blocking.abandoned == 0
    assert await blocking.write("route/a", lambda: 7) == 7


async def test_a_call_that_may_no_longer_be_made_is_not_made() -> None:
    made: list[int] = []

    def refuse() -> None:
        raise Throttled("slow down", retry_after=7)

    blocking = Blocking(limit=1)
    with permitted_by(refuse):
        for _ in range(3):
            with pytest.raises(Throttled):
                await blocking.write("key", made.append, 1)
    await blocking.write("key", made.append, 2)

    assert made == [2]


async def test_what_a_thread_is_told_is_passed_on() -> None:
    pauses: list[float] = []

    with permitted_by(lambda: None, pauses.append):
        await Blocking().call(pass_on, Throttled("slow down", retry_after=7))

    assert pauses == [7]


@pytest.mark.real_time
async def test_an_abandoned_function_of_many_requests_stops_at_the_next_one() -> None:
    release, blocking = Event(), Blocking()
    sent: list[int] = []
    stopped: list[str] = []

    def requests() -> None:
        for number in range(3):
            try:
                check_permission()
            except Unavailable as error:
                stopped.append(str(error))
                raise
            sent.append(number)
            release.wait(60)

    await abandon(blocking, requests)
    release.set()
    await until(lambda: blocking.abandoned == 0)

    assert sent == [0]
    (text,) = stopped
    assert text.startswith("request not sent: the call of ")
    assert text.endswith("was cancelled")


async def test_health_reports_a_call_that_does_not_end(caplog: pytest.LogCaptureFixture) -> None:
    release, blocking = Event(), Blocking(limit=3)

    await abandon(blocking, release.wait, 600)
    await asyncio.sleep(STUCK - 1)
    assert blocking.health() is None
    await asyncio.sleep(2)

    assert blocking.health() == "Event.wait was abandoned 601 s ago and has not ended"
    assert "Abandoned a blocking call" in caplog.text
    release.set()


async def test_health_reports_that_no_thread_is_left() -> None:
    release, blocking = Event(), Blocking(limit=2)

    await abandon(blocking, release.wait, 600)
    await asyncio.sleep(EXHAUSTED)
    await abandon(blocking, release.wait, 600)
    await asyncio.sleep(EXHAUSTED - 1)
    assert blocking.health() is None
    await asyncio.sleep(2)

    assert blocking.health() == "abandoned calls have taken all 2 threads for 61 s"
    release.set()


def test_a_blocking_that_was_never_used_is_healthy() -> None:
    assert Blocking().health() is None


# -- behind the middleware ---------------------------------------------------------------------


class SlowRoutes(FakeRoutes):
    """A provider on a blocking SDK, whose first write hangs."""

    def __init__(self, blocking: Blocking, release: Event) -> None:
        super().__init__()
        self._blocking = blocking
        self._release = release

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        for route in routes:
            await self._blocking.write(f"route/{route.destination}", self._create, route)
        return {}

    def _create(self, route: Route) -> None:
        first = not self.written
        self.written.append(route)
        if first:
            self._release.wait(600)


async def test_a_write_at_its_deadline_is_abandoned_fenced_and_reported() -> None:
    release, blocking, overdue = Event(), Blocking(limit=1), Overdue()
    routes = SlowRoutes(blocking, release)
    cloud = equipped(
        Cloud(name="fake", routes=routes, health=blocking.health),
        Metrics(MetricRegistry()),
        overdue=overdue,
        deadlines=Deadlines(write=30),
    )
    assert cloud.routes

    with pytest.raises(Unavailable, match="did not answer routes.create in 30 s"):
        await cloud.routes.create("blue", [ROUTE])
    with pytest.raises(Conflict):
        await cloud.routes.create("blue", [ROUTE])
    with pytest.raises(Unavailable, match="abandoned calls take all 1 threads"):
        await cloud.routes.create("blue", [replace(ROUTE, destination="10.9.0.0/24")])
    assert overdue.health() is None
    await asyncio.sleep(EXHAUSTED + 1)

    assert routes.written == [ROUTE]
    assert overdue.health() == (
        'cloud provider "fake": abandoned calls have taken all 1 threads for 61 s'
    )
    release.set()


async def test_a_health_that_fails_is_reported_too() -> None:
    overdue = Overdue()

    def fail() -> str | None:
        raise KeyError("zone")

    equipped(Cloud(name="fake", health=fail), Metrics(MetricRegistry()), overdue=overdue)

    assert overdue.health() == "cloud provider \"fake\" failed in health: KeyError: 'zone'"
