"""Metrics, deadline, fence and budget: what is around every call alike."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from pileus.cloud.abilities import Deadlines, Limits
from pileus.cloud.errors import Throttled, Unavailable
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.budget import Budget
from pileus.cloud.middleware.deadline import GRACE, Overdue
from pileus.cloud.model import Failure, Found, NodeName
from pileus.fence import Fenced
from tests.unit.cloud.fakes import (
    ROUTE,
    WISH,
    Change,
    FakeBalancers,
    FakeInstances,
    FakeRoutes,
    Seen,
    cloud_of,
    equipped,
    node,
)


async def find(cloud: Cloud, *names: str):
    assert cloud.instances
    return await cloud.instances.find([node(name) for name in names], fresh=False)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_capability_that_is_absent_stays_absent(metrics):
    assert equipped(cloud_of(), metrics) == cloud_of()


async def test_the_items_of_calls_are_counted(metrics):
    cloud = equipped(cloud_of(FakeInstances(), FakeBalancers(), FakeRoutes()), metrics)
    assert cloud.balancers
    assert cloud.routes
    await find(cloud, "a", "b")
    await cloud.balancers.observe([WISH], deep=True)
    await cloud.routes.create("blue", routes=[ROUTE, ROUTE, ROUTE])
    await cloud.routes.create(cluster="blue", routes=[ROUTE])

    def items(capability: str, method: str) -> float | None:
        labels = {"provider": "fake", "capability": capability, "method": method}
        return metrics.registry.value("pileus_cloud_call_items_total", labels)

    assert items("instances", "find") == 2
    assert items("balancers", "observe") == 1
    assert items("routes", "create") == 4


async def test_each_call_is_counted_by_its_result_and_timed(metrics):
    def fail(nodes):
        raise Unavailable("down")

    await find(equipped(cloud_of(FakeInstances(latency=3)), metrics), "a", "b")
    with pytest.raises(Unavailable):
        await find(equipped(cloud_of(FakeInstances(fail)), metrics), "a")

    place = {"provider": "fake", "capability": "instances", "method": "find"}
    read = metrics.registry.value
    assert read("pileus_cloud_calls_total", {**place, "result": "success"}) == 1
    assert read("pileus_cloud_calls_total", {**place, "result": "Unavailable"}) == 1
    assert read("pileus_cloud_call_items_total", place) == 3
    assert read("pileus_cloud_call_duration_seconds_sum", place) == pytest.approx(3)


async def test_a_call_that_is_cancelled_or_interrupted_is_counted_too(metrics):
    def crash(nodes):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await find(equipped(cloud_of(FakeInstances(crash)), metrics), "a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await find(equipped(cloud_of(FakeInstances(latency=1e6)), metrics), "a")

    place = {"provider": "fake", "capability": "instances", "method": "find"}
    read = metrics.registry.value
    assert read("pileus_cloud_calls_total", {**place, "result": "crash"}) == 1
    assert read("pileus_cloud_calls_total", {**place, "result": "cancelled"}) == 1


async def test_a_hanging_provider_is_given_up_and_named(metrics):
    deadlines = Deadlines(read=30, per_item=1)
    cloud = equipped(cloud_of(FakeInstances(latency=1e6)), metrics, deadlines=deadlines)

    with pytest.raises(Unavailable, match=r'"fake" did not answer instances.find in 31 s'):
        await find(cloud, "a", "b")

    assert now() == pytest.approx(31)


async def test_a_timeout_of_the_providers_own_is_not_taken_for_ours(metrics):
    def fail(nodes):
        raise TimeoutError("theirs")

    with pytest.raises(Unavailable, match="failed in instances.find: TimeoutError: theirs"):
        await find(equipped(cloud_of(FakeInstances(fail)), metrics), "a")


async def test_cancelling_the_caller_is_no_timeout(metrics):
    cloud = equipped(cloud_of(FakeInstances(latency=100)), metrics, deadlines=Deadlines(read=50))

    async with asyncio.TaskGroup() as group:
        task = group.create_task(find(cloud, "a"))
        await asyncio.sleep(1)
        task.cancel()

    assert task.cancelled()


class Closed:
    def check(self) -> None:
        raise Fenced("the lease is too old")


async def test_without_the_lease_reads_pass_and_writes_do_not(metrics):
    balancers, routes = FakeBalancers(), FakeRoutes()
    cloud = equipped(cloud_of(FakeInstances(), balancers, routes), metrics, fence=Closed())
    assert cloud.balancers
    assert cloud.routes

    await find(cloud, "a")
    with pytest.raises(Fenced):
        await cloud.balancers.apply(Change(), Seen())
    with pytest.raises(Fenced):
        await cloud.routes.delete("blue", [ROUTE])

    assert balancers.applied == []
    assert routes.written == []


async def rush(cloud: Cloud, count: int) -> None:
    async with asyncio.TaskGroup() as group:
        for i in range(count):
            group.create_task(find(cloud, f"n{i}"))


async def test_calls_beyond_the_burst_leave_at_the_rate(metrics):
    cloud = equipped(
        cloud_of(FakeInstances()),
        metrics,
        budget=Budget(Limits(per_second=2, burst=10, growth=1), metrics),
    )

    await rush(cloud, 30)

    assert now() == pytest.approx(10, abs=0.01)


class Counting(FakeInstances):
    running = most = 0

    async def find(self, nodes: Any, *, fresh: bool) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await super().find(nodes, fresh=fresh)
        finally:
            self.running -= 1


async def test_no_more_than_so_many_calls_run_at_once(metrics):
    instances = Counting(latency=1)

    await rush(
        equipped(cloud_of(instances), metrics, budget=Budget(Limits(at_once=3, growth=1), metrics)),
        20,
    )

    assert instances.most == 3


async def test_tokens_are_not_saved_beyond_the_burst(metrics):
    cloud = equipped(
        cloud_of(FakeInstances()),
        metrics,
        budget=Budget(Limits(per_second=1, burst=2, growth=1), metrics),
    )
    await asyncio.sleep(1000)

    await rush(cloud, 5)

    assert now() == pytest.approx(1003, abs=0.01)


async def test_when_the_cloud_asks_one_caller_to_wait_all_wait(metrics):
    calls: list[float] = []

    def answer(nodes):
        calls.append(now())
        if len(calls) == 1:
            raise Throttled("slow down", retry_after=30)
        return {}

    cloud = equipped(
        cloud_of(FakeInstances(answer)),
        metrics,
        budget=Budget(Limits(at_once=1, growth=1), metrics),
    )
    with pytest.raises(Throttled):
        await find(cloud, "a")
    await rush(cloud, 3)

    assert calls == [0, 30, 30, 30]
    waits = metrics.registry.value("pileus_cloud_budget_wait_seconds_total", {"provider": "fake"})
    assert waits == pytest.approx(90)


async def test_a_long_silence_is_told_at_once_instead_of_holding_the_caller(metrics):
    def answer(nodes):
        if now() < 100:
            raise Throttled("slow down", retry_after=100)
        return {}

    instances = FakeInstances(answer)
    cloud = equipped(cloud_of(instances), metrics, budget=Budget(Limits(patience=30), metrics))
    for expected in (100, 100):
        with pytest.raises(Throttled) as told:
            await find(cloud, "a")
        assert told.value.retry_after == pytest.approx(expected)
    await asyncio.sleep(80)

    assert await find(cloud, "a") == {}
    assert (len(instances.asked), now()) == (2, pytest.approx(100))


async def test_a_wish_to_wait_inside_a_bulk_answer_is_heeded(metrics):
    def answer(nodes):
        return {n.name: Failure(Throttled("slow", retry_after=7)) for n in nodes}

    cloud = equipped(cloud_of(FakeInstances(answer)), metrics, budget=Budget(Limits(), metrics))
    await find(cloud, "a")
    began = now()
    await find(cloud, "a")

    assert now() - began == pytest.approx(7)


async def test_who_is_cancelled_while_waiting_blocks_nobody(metrics):
    cloud = equipped(
        cloud_of(FakeInstances()),
        metrics,
        budget=Budget(Limits(per_second=1, burst=1, at_once=2, growth=1), metrics),
    )

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(find(cloud, f"n{i}")) for i in range(4)]
        await asyncio.sleep(0.5)
        tasks[1].cancel()
        tasks[2].cancel()

    assert tasks[3].result()
    assert now() == pytest.approx(1, abs=0.01)


async def test_a_call_that_ignores_its_cancellation_fails_the_health_check_until_it_ends(metrics):
    async def stubborn(*_: object, **__: object) -> Mapping[NodeName, Found]:
        until = now() + 200
        while now() < until:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(until - now())
        return {}

    instances, overdue = FakeInstances(), Overdue()
    instances.find = stubborn
    cloud = equipped(cloud_of(instances), metrics, deadlines=Deadlines(read=30), overdue=overdue)
    task = asyncio.create_task(find(cloud, "a"))

    await asyncio.sleep(29 + GRACE)
    assert overdue.health() is None
    await asyncio.sleep(2)
    assert overdue.health() == (
        'cloud provider "fake": instances.find was cancelled 61 s ago and has not ended'
    )
    await task
    assert overdue.health() is None
