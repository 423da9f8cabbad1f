"""Services that share a load balancer are changed one after the other; others do not wait."""

import asyncio

from pileus.cloud.balancer import Owner, Wish
from pileus.controllers.service.observation import SharedLocks
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


async def test_a_pass_that_waits_for_the_lock_learns_that_another_pass_held_it():
    locks = SharedLocks()
    heard: list[bool] = []

    async def visit(pause: float) -> None:
        with locks.visit() as visit:
            visit.join("k")
            await asyncio.sleep(pause)
            heard.append(await visit.take())
            assert await visit.take() is False, "held already"
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for pause in (0.1, 0.2, 5):
            group.create_task(visit(pause))
    await visit(0)

    assert heard == [False, True, True, False]
    assert locks._locks == {}


async def test_what_was_observed_before_the_wait_for_the_lock_is_never_used():
    world = World()
    cloud = world.plainly()
    cloud.takes, cloud.change_takes = 0.1, 1.0
    cloud.key = lambda wish: "shared"
    looks: dict[str, float] = {}
    ended, stale = 0.0, list[str]()

    def changing(owner: Owner, _: object) -> None:
        nonlocal ended
        if looks[owner.uid] < ended:
            stale.append(owner.uid)
        ended = asyncio.get_running_loop().time() + cloud.takes + cloud.change_takes

    now = asyncio.get_running_loop().time
    cloud.looking = lambda wishes: looks.update({each.owner.uid: now() for each in wishes})
    cloud.changing = changing
    await world.add_node("a")
    for number in range(4):
        await world.add(f"s{number}")
    async with world.managed():
        await asyncio.sleep(60)

    assert len(cloud.changed) >= 4
    assert stale == []
