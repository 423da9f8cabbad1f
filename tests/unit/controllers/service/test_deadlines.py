"""Slow clouds: a write may take its whole time, and a pass that runs out of time is reported."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from pileus.cloud.balancer import BalancerState, Effect, Ingress, Owner, Wish
from pileus.cloud.model import Failure
from pileus.controllers.service.notes import WAITS
from pileus.runtime.controller import DEFAULT_LIMITS
from tests.unit.controllers.service.plain import Change, PlainBalancers, Seen
from tests.unit.controllers.service.world import World


async def furnished(services: int = 1) -> tuple[World, PlainBalancers]:
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    for number in range(services):
        await world.add(f"web-{number}")
    return world, cloud


@pytest.mark.parametrize("seconds", [310, 400, 599])
async def test_a_balancer_whose_creation_takes_long_converges_on_the_first_attempt(seconds: float):
    world, cloud = await furnished()
    tried: list[Owner] = []

    def dawdle(owner: Owner, change: Change) -> None:
        tried.append(owner)
        cloud.change_takes = seconds

    cloud.changing = dawdle
    async with world.managed():
        await asyncio.sleep(seconds + 5)

        assert (await world.condition("web-0"))[0] == "True"
        assert await world.ingress("web-0")
        assert len(tried) == 1
        assert world.events.messages("SyncLoadBalancerFailed") == []


async def test_services_that_wait_for_others_slow_creations_are_not_cancelled():
    """More Services than calls at once: the last ones wait for half an hour, and are served."""
    world, cloud = await furnished(100)
    tried: list[Owner] = []

    def dawdle(owner: Owner, change: Change) -> None:
        tried.append(owner)
        cloud.change_takes = 400

    cloud.changing = dawdle
    async with world.managed() as controller:
        stuck: set[str | None] = set()
        for _ in range(50):
            await asyncio.sleep(50)
            stuck.add(controller.stuck(DEFAULT_LIMITS.deadline))

        assert len(tried) == 100
        assert len(cloud.standing) == 100
        assert world.events.messages("SyncLoadBalancerFailed") == []
        assert stuck == {None}


async def test_a_write_beyond_its_deadline_is_reported_at_once():
    world, cloud = await furnished()

    def hang(owner: Owner, change: Change) -> None:
        cloud.change_takes = 1e6

    cloud.changing = hang
    async with world.managed():
        await asyncio.sleep(604)

        state, reason, message = await world.condition("web-0")
        assert (state, reason) == ("Unknown", "CloudUnavailable")
        assert "did not answer balancers.apply in 600 s" in message
        assert world.events.messages("SyncLoadBalancerFailed")


async def test_a_pass_that_runs_out_of_time_is_reported_on_the_service(
    monkeypatch: pytest.MonkeyPatch,
):
    world, _ = await furnished()

    async def forever(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(
        "pileus.controllers.service.reconciler.BalancerOperations.check_or", forever
    )
    async with world.managed():
        await asyncio.sleep(DEFAULT_LIMITS.deadline + 2)

        state, reason, message = await world.condition("web-0")
        assert (state, reason) == ("False", "TimedOut")
        assert "cancelled after 300 s" in message
        (event,) = world.events.messages("SyncLoadBalancerFailed")
        assert event.startswith("Error syncing load balancer: failed to ensure load balancer: ")


async def test_a_pass_that_ends_by_a_bug_is_reported_on_the_service(
    monkeypatch: pytest.MonkeyPatch,
):
    world, _ = await furnished()

    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret of the process")

    monkeypatch.setattr("pileus.controllers.service.reconciler.BalancerOperations.check_or", fail)
    async with world.managed():
        await asyncio.sleep(2)

        _, reason, message = await world.condition("web-0")
        assert reason == "SyncFailed"
        assert "internal error ZeroDivisionError (see the manager's log)" in message
        assert "secret" not in message


PARTS = 12
"""Changes that a cloud accepts one by one."""
BUSY = 2.0
"""Seconds for which it is busy after each of them."""


class OneByOne(PlainBalancers):
    """A cloud that makes one part of a load balancer at a time, such as Octavia."""

    def __init__(self, *, makes_progress: bool) -> None:
        super().__init__()
        self.made: list[float] = []
        """When it accepted changes."""
        self._makes_progress = makes_progress

    def _seen(self, wish: Wish) -> Seen | Failure | None:
        is_busy = self.made and asyncio.get_running_loop().time() < self.made[-1] + BUSY
        state = BalancerState.PENDING if is_busy else BalancerState.READY
        return Seen(wish.owner, wish.spec, state, (Ingress(ip="192.0.2.1"),))

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        if seen.state is BalancerState.PENDING or len(self.made) == PARTS:
            return ()
        number = len(self.made) if self._makes_progress else 0
        return (Change(Effect.UPDATE, f"part {number}", wish.spec),)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        self.made.append(asyncio.get_running_loop().time())
        return replace(seen, state=BalancerState.PENDING)


async def pauses_between_parts(*, makes_progress: bool) -> list[float]:
    world = World()
    world.plain = cloud = OneByOne(makes_progress=makes_progress)
    await world.add_node("a")
    await world.add("web")
    async with world.managed():
        await asyncio.sleep(600)

    assert len(cloud.made) == PARTS
    return [after - before for before, after in pairwise(cloud.made)]


async def test_checks_are_frequent_again_after_each_change_that_the_cloud_accepts():
    pauses = await pauses_between_parts(makes_progress=True)

    assert max(pauses) < 4 * BUSY


async def test_a_change_that_is_made_again_and_again_is_made_less_and_less_often():
    pauses = await pauses_between_parts(makes_progress=False)

    assert pauses[-1] > WAITS.last * 0.8
