"""A Service's pass is not woken by its own writes, in whatever order answer and watch come."""

import asyncio

import pytest

from pileus.classic.errors import Postponed
from pileus.cloud.balancer import Owner
from pileus.cloud.errors import CloudError, Throttled, Unavailable
from pileus.kube.transport import Request
from tests.unit.controllers.service.plain import Change, PlainBalancers
from tests.unit.controllers.service.world import FINALIZER, World

LATE = {"answer first": 0.0, "watch first": 0.5}
"""Seconds from the effect of a write to its answer; the watch brings the effect at once."""


async def furnished(late: str) -> tuple[World, PlainBalancers]:
    world = World()
    world.wire.answer_takes = LATE[late]
    cloud = world.plainly()
    await world.add_node("a")
    await world.add()
    return world, cloud


def passes(world: World) -> float:
    return world.sample("workqueue_work_duration_seconds_count", name="service")


@pytest.mark.parametrize("late", LATE)
async def test_a_new_service_costs_one_pass_one_look_one_change_and_two_writes(late: str):
    world, cloud = await furnished(late)
    async with world.managed():
        await asyncio.sleep(60)

        assert (await world.condition())[0] == "True"
        assert passes(world) == 1
        assert len(cloud.looks) == 1
        assert len(cloud.changed) == 1
        assert len(world.wire.written()) == 2


@pytest.mark.parametrize("late", LATE)
async def test_a_deleted_service_costs_two_more_passes(late: str):
    world, cloud = await furnished(late)
    async with world.managed():
        await asyncio.sleep(60)
        before = passes(world)
        await world.delete()
        await asyncio.sleep(60)

        assert await world.services() == {}
        assert cloud.standing == {}
        assert passes(world) - before <= 3, "nothing is left a moment later; its end is heard of"


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Postponed("still provisioning", retry_after=45), id="ported"),
        pytest.param(Throttled("too many requests", retry_after=45), id="native"),
    ],
)
async def test_a_delay_that_the_provider_asked_for_is_kept(late: str, error: CloudError):
    world, cloud = await furnished(late)
    tried: list[float] = []

    def refuse_twice(owner: Owner, change: Change) -> None:
        tried.append(asyncio.get_running_loop().time())
        if len(tried) <= 2:
            raise error

    cloud.changing = refuse_twice
    async with world.managed():
        await asyncio.sleep(200)

        first, second, third = tried
        assert 45 <= second - first < 51
        assert 45 <= third - second < 51
        assert (await world.condition())[0] == "True"


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(Postponed("still provisioning", retry_after=1), id="ported"),
        pytest.param(Throttled("too many requests", retry_after=1), id="native"),
    ],
)
async def test_after_eight_delays_that_were_asked_for_an_error_waits_as_the_first_one(
    asked: CloudError,
):
    world, cloud = await furnished("watch first")
    tried: list[float] = []
    script = [*[asked] * 8, Unavailable("try again")]

    def refuse(owner: Owner, change: Change) -> None:
        tried.append(asyncio.get_running_loop().time())
        if script:
            raise script.pop(0)

    cloud.changing = refuse
    async with world.managed():
        await asyncio.sleep(60)

        assert len(tried) == 10
        assert 5 <= tried[9] - tried[8] <= 6
        assert (await world.condition())[0] == "True"


@pytest.mark.parametrize("late", LATE)
async def test_a_user_who_changes_the_service_while_we_write_is_heard(late: str):
    world, cloud = await furnished(late)
    edits: list[asyncio.Task[None]] = []

    def edit(request: Request) -> None:
        if request.method == "PATCH" and b"finalizers" in (request.body or b"") and not edits:
            change = world.change(spec={"ports": [{"port": 443}]})
            edits.append(asyncio.create_task(change))

    world.wire.before = edit
    async with world.managed():
        await asyncio.sleep(60)

        (seen,) = cloud.standing.values()
        assert seen.spec is not None
        assert [one.port for one in seen.spec.listeners] == [443]


@pytest.mark.parametrize("late", LATE)
async def test_a_finalizer_that_is_taken_off_while_we_publish_is_put_back(late: str):
    """The status is written without a version: what else the answer shows may be another's."""
    world, _ = await furnished(late)
    edits: list[asyncio.Task[None]] = []

    def take_off(request: Request) -> None:
        if request.method == "PATCH" and b"ingress" in (request.body or b"") and not edits:
            change = world.change(metadata={"finalizers": None})
            edits.append(asyncio.create_task(change))

    world.wire.before = take_off
    async with world.managed():
        await asyncio.sleep(60)

        assert (await world.service())["metadata"]["finalizers"] == [FINALIZER]
