import asyncio
from random import Random
from typing import Any

import pytest

from pileus.cloud.errors import Unavailable
from pileus.cloud.middleware.faults import Delay, Fail, LoseAnswer, Omit, Rule, faulty
from tests.unit.cloud.fakes import (
    ROUTE,
    FakeInstances,
    FakeRoutes,
    cloud_of,
    node,
)

DOWN = Unavailable("down")


def troubled(*rules: Rule, seed: int = 1) -> Any:
    return faulty(cloud_of(FakeInstances(), routes=FakeRoutes()), rules, Random(seed))


async def outcomes(cloud: Any, count: int) -> list[int]:
    """How many nodes each look-up answered; -1 if it failed."""
    nodes = [node(name) for name in "abcdefgh"]
    found: list[int] = []
    for _ in range(count):
        try:
            found.append(len(await cloud.instances.find(nodes, fresh=False)))
        except Unavailable:
            found.append(-1)
    return found


async def test_a_rule_strikes_where_and_as_often_as_it_says():
    cloud = troubled(Rule(where="instances.*", fault=Fail(DOWN), times=2))

    assert await outcomes(cloud, 4) == [-1, -1, 8, 8]
    assert await cloud.routes.create("blue", [ROUTE]) == {}


async def test_the_same_seed_gives_the_same_faults():
    rules = (Rule(where="*", fault=Fail(DOWN), rate=0.5), Rule(where="*", fault=Omit(0.3)))

    first = await outcomes(troubled(*rules), 20)

    assert await outcomes(troubled(*rules), 20) == first
    assert await outcomes(troubled(*rules, seed=2), 20) != first
    assert -1 in first
    assert any(0 <= count < 8 for count in first)


async def test_an_answer_can_be_lost_after_its_effect():
    routes = FakeRoutes()
    cloud = faulty(
        cloud_of(routes=routes), [Rule(where="routes.create", fault=LoseAnswer(DOWN))], Random(1)
    )
    assert cloud.routes

    with pytest.raises(Unavailable):
        await cloud.routes.create("blue", [ROUTE])

    assert routes.written == [ROUTE]


async def test_a_call_can_be_slow():
    await outcomes(troubled(Rule(where="*", fault=Delay(9))), 1)

    assert asyncio.get_running_loop().time() == pytest.approx(9)
