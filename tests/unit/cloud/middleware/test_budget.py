"""The call budget: its pace follows the cloud, and important calls leave first."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.abilities import Limits
from pileus.cloud.balancer import Effect, Part
from pileus.cloud.errors import Throttled
from pileus.cloud.middleware.budget import GRACE, Budget
from pileus.cloud.middleware.methods import METHODS, Call, Priority
from pileus.cloud.middleware.pace import Pace, Quickness
from pileus.telemetry.metrics import Metrics
from tests.unit.cloud.fakes import Change

METHOD = {method.name: method for method in METHODS}
APPLY = METHOD["balancers.apply"]
CHANCE = 1e-3
"""What rounding may take from a token."""


def now() -> float:
    return asyncio.get_running_loop().time()


def call(priority: Priority = Priority.NORMAL) -> Call:
    return Call("fake", APPLY, 1, priority)


@dataclass
class LimitedCloud:
    """Takes so many calls a second, with a burst, and refuses others."""

    per_second: float = 1e9
    burst: float = 1e9
    latency: float = 0.05
    retry_after: float | None = 1.0
    left: list[float] = field(default_factory=list[float])
    refused: int = 0
    tokens: float | None = None
    at: float = 0.0

    async def answer(self) -> None:
        filled = self.burst if self.tokens is None else self.tokens
        self.tokens = min(self.burst, filled + (now() - self.at) * self.per_second)
        self.at = now()
        self.left.append(now())
        is_taken = self.tokens > 1 - CHANCE
        self.tokens -= is_taken
        await asyncio.sleep(self.latency)
        if not is_taken:
            self.refused += 1
            raise Throttled("slow down", retry_after=self.retry_after)


async def make(budget: Budget, cloud: LimitedCloud, which: Call) -> bool:
    try:
        async with budget.turn(which):
            await cloud.answer()
    except Throttled:
        return False
    return True


async def all_made(budget: Budget, cloud: LimitedCloud, count: int) -> None:
    """Make so many calls, each until the cloud takes it."""

    async def until_taken() -> None:
        while not await make(budget, cloud, call()):
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(until_taken())


async def test_a_cloud_that_answers_quickly_is_called_ever_faster(metrics: Metrics) -> None:
    limits = Limits(per_second=50, burst=100, at_once=20, growth=10)
    budget, cloud = Budget(limits, metrics), LimitedCloud()

    await all_made(budget, cloud, 1000)

    assert now() < 1000 / limits.per_second / 3
    assert limits.per_second < budget.pace.per_second <= 500
    pace = metrics.registry.value("pileus_cloud_budget_calls_per_second", {"provider": "fake"})
    assert pace == budget.pace.per_second


async def test_a_pace_that_is_not_used_up_does_not_grow(metrics: Metrics) -> None:
    budget, cloud = Budget(Limits(), metrics), LimitedCloud()

    for _ in range(200):
        await make(budget, cloud, call())

    assert budget.pace == Pace.declared(Limits())


async def test_a_cloud_that_becomes_slow_is_not_called_faster(metrics: Metrics) -> None:
    budget, cloud = Budget(Limits(at_once=5), metrics), LimitedCloud(latency=0.05)
    await make(budget, cloud, call())
    cloud.latency = 0.5

    await all_made(budget, cloud, 100)

    assert budget.pace == Pace.declared(Limits(at_once=5))


async def test_a_cloud_with_limits_is_called_at_about_its_limit(metrics: Metrics) -> None:
    budget = Budget(Limits(per_second=50, burst=100), metrics)
    cloud = LimitedCloud(per_second=20, burst=40, latency=0.2)

    await all_made(budget, cloud, 1000)

    assert now() < 1.5 * 1000 / 20
    assert cloud.refused < 200


async def test_a_cloud_whose_limits_are_declared_refuses_nothing(metrics: Metrics) -> None:
    budget = Budget(Limits(per_second=20, burst=40, growth=1), metrics)
    cloud = LimitedCloud(per_second=20, burst=40, latency=0.2)

    await all_made(budget, cloud, 1000)

    assert cloud.refused == 0
    assert now() == pytest.approx((1000 - 40) / 20, abs=1)


async def test_calls_that_are_refused_together_halve_the_pace_once(metrics: Metrics) -> None:
    budget = Budget(Limits(per_second=64, at_once=64), metrics)
    cloud = LimitedCloud(per_second=0, burst=0, retry_after=None)

    async with asyncio.TaskGroup() as group:
        for _ in range(64):
            group.create_task(make(budget, cloud, call()))

    assert (budget.pace.per_second, budget.pace.at_once) == (32, 32)


async def order_of(budget: Budget, arrivals: Sequence[tuple[float, Priority]]) -> list[int]:
    served: list[int] = []

    async def one(number: int, after: float, priority: Priority) -> None:
        await asyncio.sleep(after)
        async with budget.turn(call(priority)):
            served.append(number)
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for number, (after, priority) in enumerate(arrivals):
            group.create_task(one(number, after, priority))
    return served


async def test_a_lookup_leaves_before_member_updates_that_have_waited(metrics: Metrics) -> None:
    arrivals = [*[(0.0, Priority.MEMBERS)] * 4, (0.5, Priority.NORMAL), (0.6, Priority.FIRST)]

    served = await order_of(Budget(Limits(at_once=1, growth=1), metrics), arrivals)

    assert served == [0, 5, 4, 1, 2, 3]


async def test_calls_of_one_priority_are_served_in_order(metrics: Metrics) -> None:
    arrivals = [(i / 100, Priority.NORMAL) for i in range(10)]

    served = await order_of(Budget(Limits(at_once=1, growth=1), metrics), arrivals)

    assert served == list(range(10))


async def test_important_calls_that_never_end_do_not_hold_others_forever(metrics: Metrics) -> None:
    arrivals = [(0.0, Priority.FIRST), (0.0, Priority.MEMBERS)]
    arrivals += [(0.5 * i, Priority.FIRST) for i in range(100)]

    served = await order_of(Budget(Limits(at_once=1, growth=1), metrics), arrivals)

    assert served.index(1) <= 2 * GRACE[Priority.MEMBERS] + 1


async def test_who_is_let_in_and_cancelled_at_once_gives_the_turn_back(metrics: Metrics) -> None:
    budget = Budget(Limits(at_once=1, growth=1), metrics)
    cloud = LimitedCloud(latency=1)
    async with budget.turn(call()):
        second, third = (asyncio.create_task(make(budget, cloud, call())) for _ in range(2))
        await asyncio.sleep(0.5)
    second.cancel()  # let in by the end of the block, and not yet running

    async with asyncio.timeout(5):
        assert await third
    assert second.cancelled()
    assert now() <= 3


async def test_waiting_calls_fail_when_a_long_pause_begins(metrics: Metrics) -> None:
    budget = Budget(Limits(at_once=1, patience=30, growth=1), metrics)
    cloud = LimitedCloud(per_second=0, burst=0, retry_after=100)

    made = await asyncio.gather(*(make(budget, cloud, call()) for _ in range(5)))

    assert made == [False] * 5
    assert (len(cloud.left), now()) == (1, pytest.approx(0.05))


@given(
    st.lists(st.sampled_from(["quick", "refused"]), max_size=300),
    st.floats(0.01, 1000),
    st.integers(1, 500),
    st.floats(1, 20),
)
def test_a_pace_stays_between_its_bounds(
    events: list[str], per_second: float, at_once: int, growth: float
) -> None:
    limits = Limits(per_second=per_second, at_once=at_once, growth=growth)
    pace = Pace.declared(limits)
    for event in events:
        pace = pace.faster() if event == "quick" else pace.slower(refusals=pace.refusals)
        assert 0.1 * per_second <= pace.per_second <= per_second * growth + 1e-6
        assert 1 <= pace.at_once <= at_once * growth + 1e-6
        assert 1 <= pace.burst <= limits.burst


def test_a_pace_with_growth_1_stays_as_declared() -> None:
    limits = Limits(growth=1)
    assert Pace.declared(limits).faster() == Pace.declared(limits)


def test_what_is_quick_is_learned_for_each_kind_of_call() -> None:
    quickness = Quickness()

    assert [quickness.is_quick("a", 0.1), quickness.is_quick("b", 5)] == [True, True]
    assert [quickness.is_quick("a", 0.19), quickness.is_quick("a", 0.3)] == [True, False]
    assert any(quickness.is_quick("a", 0.3) for _ in range(200))


def test_priorities_of_calls() -> None:
    members = Change(Effect.UPDATE, "members", part=Part.MEMBERS)
    whole = Change(Effect.CREATE, "load balancer", part=Part.WHOLE)

    assert METHOD["instances.find"].priority(()) is Priority.FIRST
    assert METHOD["balancers.owners"].priority("blue") is Priority.LAST
    assert APPLY.priority(members) is Priority.MEMBERS
    assert APPLY.priority(whole) is Priority.NORMAL
