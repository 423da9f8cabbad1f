import asyncio

import pytest

from pileus.cloud.errors import Unavailable
from pileus.cloud.middleware.budget import Budget, Limits
from pileus.cloud.middleware.faults import Delay, Rule
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.fence import Fenced, Open
from tests.unit.cloud.fakes import (
    Change,
    FakeBalancers,
    FakeInstances,
    Seen,
    cloud_of,
    node,
)

FIND = {"provider": "fake", "capability": "instances", "method": "find"}


async def test_a_thousand_look_ups_cost_the_budget_and_the_measures_two_calls(metrics):
    equipment = Equipment(budget=Budget(Limits(per_second=1, burst=2), metrics))
    instances = FakeInstances()

    async with stacked(
        cloud_of(instances), metrics=metrics, fence=Open(), equipment=equipment
    ) as cloud:
        assert cloud.instances
        async with asyncio.TaskGroup() as group:
            for i in range(1000):
                group.create_task(cloud.instances.find([node(f"n{i}")], fresh=True))

    read = metrics.registry.get_sample_value
    assert read("pileus_cloud_calls_total", {**FIND, "result": "success"}) == 2
    assert read("pileus_cloud_call_items_total", FIND) == 1000
    assert asyncio.get_running_loop().time() < 1


class ClosesLater:
    def check(self) -> None:
        if asyncio.get_running_loop().time() > 1:
            raise Fenced("the lease is too old")


async def test_a_write_that_waited_for_the_budget_asks_the_fence_when_it_leaves(metrics):
    balancers = FakeBalancers(Seen)
    equipment = Equipment(budget=Budget(Limits(per_second=0.1, burst=1), metrics))

    async with stacked(
        cloud_of(balancers=balancers), metrics=metrics, fence=ClosesLater(), equipment=equipment
    ) as cloud:
        assert cloud.balancers
        await cloud.balancers.apply(Change(), Seen())
        with pytest.raises(Fenced):
            await cloud.balancers.apply(Change(), Seen())

    assert len(balancers.applied) == 1


async def test_a_provider_that_hangs_or_errs_is_counted_as_unavailable(metrics):
    hang = Rule(where="*", fault=Delay(1e6), times=1)

    async with stacked(
        cloud_of(FakeInstances(lambda nodes: vars(object)["no_such_field"])),
        metrics=metrics,
        fence=Open(),
        equipment=Equipment(faults=(hang,)),
    ) as cloud:
        assert cloud.instances
        for text in ("did not answer instances.find in 60 s", "KeyError"):
            with pytest.raises(Unavailable, match=text):
                await cloud.instances.find([node("a")], fresh=True)

    read = metrics.registry.get_sample_value
    assert read("pileus_cloud_calls_total", {**FIND, "result": "Unavailable"}) == 2
