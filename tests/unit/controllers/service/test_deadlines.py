"""Slow clouds: a write may take its whole time, and a pass that runs out of time is reported."""

import asyncio

import pytest

from pileus.cloud.balancer import Owner
from pileus.runtime.controller import DEFAULT_LIMITS
from tests.unit.controllers.service.plain import Change, PlainBalancers
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
