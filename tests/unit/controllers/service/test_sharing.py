"""Services that share a balancer take turns; others do not wait for them."""

import asyncio

from pileus.cloud.balancer import Wish
from pileus.controllers.service.turns import Turns
from tests.unit.controllers.service.world import World


async def test_sharers_are_never_worked_on_at_once_and_all_are_served():
    world = World()
    cloud = world.plainly()
    cloud.takes = 1.0
    at_once: list[int] = []
    await world.add_node("a")
    shared = {(await world.add(f"s{n}"))["metadata"]["uid"] for n in range(5)}
    for number in range(5):
        await world.add(f"alone-{number}")

    def key(wish: Wish) -> str:
        return "shared" if wish.owner.uid in shared else wish.owner.uid

    cloud.key = key
    cloud.changing = lambda owner, change: at_once.append(len(shared & set(cloud.at_work)))
    async with world.managed():
        await asyncio.sleep(4)
        for number in range(5):
            assert await world.ingress(f"alone-{number}")
        await asyncio.sleep(20)

        for number in range(5):
            assert await world.ingress(f"s{number}")
        assert set(at_once) <= {0, 1}


async def test_who_waits_for_a_turn_is_told_that_another_had_one():
    turns = Turns()
    heard: list[bool] = []

    async def visit(pause: float) -> None:
        with turns.queueing("k") as turn:
            await asyncio.sleep(pause)
            async with turn.taken() as moved_on:
                heard.append(moved_on)
                await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for pause in (0.1, 0.2, 5):
            group.create_task(visit(pause))
    await visit(0)

    assert heard == [False, True, True, False]
    assert turns._lines == {}
