"""Services whose class changes, also while no manager is running."""

import asyncio
from typing import Any

import pytest

from pileus.controllers.service.annotations import Classes
from pileus.kube.errors import Unreachable
from pileus.kube.transport import Request
from pileus_lab.local.model.state import Operation
from tests.unit.controllers.service.world import FINALIZER, World

OTHER = "example.com/other"
SERVED = "pileus.dev/Served"


async def served(world: World, **spec: str) -> None:
    """A Service that was served, by a manager that is gone."""
    await world.add_node("a")
    await world.add(**spec)
    async with world.managed():
        await asyncio.sleep(10)
    assert len(world.balancers) == 1
    world.wire.writes.clear()
    world.front.changes.clear()


async def goes_to(world: World, name: str) -> None:
    """As people must: the class of a Service that stays of the type cannot be changed."""
    await world.change(spec={"type": "ClusterIP"})
    await world.change(spec={"type": "LoadBalancer", "loadBalancerClass": name})


async def noted(world: World) -> list[str]:
    conditions = (await world.service())["status"].get("conditions", [])
    return [each["message"] for each in conditions if each["type"] == SERVED]


@pytest.mark.parametrize("first", [{}, {"loadBalancerClass": "pileus.dev/local"}])
async def test_a_class_that_changed_while_no_manager_ran_is_seen_by_the_next(
    first: dict[str, str],
):
    world = World()
    await served(world, **first)
    await goes_to(world, OTHER)

    async with world.managed():
        await asyncio.sleep(10)

        service = await world.service()
        assert world.balancers == {}
        assert "finalizers" not in service["metadata"]
        assert "conditions" not in service["status"]
        assert world.events.messages("OrphanedLoadBalancers") == []


async def test_who_dies_between_the_cloud_and_the_finalizer_is_succeeded():
    def die(request: Request) -> None:
        if b"deleteFromPrimitiveList" in (request.body or b""):
            raise Unreachable(request.path, "test", "nobody is left to send it")

    world = World()
    await served(world)
    world.wire.before = die
    async with world.managed():
        await goes_to(world, OTHER)
        await asyncio.sleep(1)
    assert world.balancers == {}
    assert (await world.service())["metadata"]["finalizers"] == [FINALIZER]

    world.wire.before = lambda _: None
    async with world.managed():
        await asyncio.sleep(40)

        assert "finalizers" not in (await world.service())["metadata"]


async def test_one_that_is_deleted_meanwhile_goes_too():
    world = World()
    await served(world)
    await goes_to(world, OTHER)
    await world.delete()

    async with world.managed():
        await asyncio.sleep(10)

        assert world.balancers == {}
        assert await world.services() == {}


async def test_without_its_finalizer_what_is_left_of_it_goes_all_the_same():
    world = World()
    await served(world)
    await goes_to(world, OTHER)
    await world.change(metadata={"finalizers": None})

    async with world.managed():
        await asyncio.sleep(30)

        assert world.balancers == {}
        assert await noted(world) == []


@pytest.mark.parametrize(
    "left",
    [Classes.of("local", default=False), Classes.of("elsewhere", [OTHER])],
    ids=["flag changed", "another provider's"],
)
async def test_what_is_noted_under_the_class_that_it_has_is_left_alone(left: Classes):
    """A manager that serves other classes: nothing says that this Service ever left them."""
    world = World()
    spec = {} if not left.default else {"loadBalancerClass": "pileus.dev/local"}
    await served(world, **spec)

    async with world.managed(classes=left):
        await asyncio.sleep(2000)

        assert (world.front.changes, world.wire.written()) == ([], [])
        assert (await world.service())["metadata"]["finalizers"] == [FINALIZER]


async def test_two_managers_of_one_cloud_hand_a_service_over():
    world = World()
    await served(world)
    await goes_to(world, OTHER)
    async with world.managed(classes=world.classes(OTHER, default=False)):
        await asyncio.sleep(10)
    assert await noted(world) == [OTHER]
    world.front.changes.clear()
    world.wire.writes.clear()

    async with world.managed():
        await asyncio.sleep(100)

        assert (world.front.changes, world.wire.written()) == ([], [])
        assert len(world.balancers) == 1


async def test_a_claim_that_comes_in_between_is_not_undone():
    """While the cloud is looked at, the manager of the other class notes the Service as its."""
    world = World()
    await served(world)
    await goes_to(world, OTHER)
    note = {"type": SERVED, "status": "True", "reason": "Class", "message": OTHER}
    theirs = {**note, "lastTransitionTime": "2030-01-01T00:00:00Z"}

    async with asyncio.TaskGroup() as group, world.managed():

        def claim(operation: Operation[Any]) -> None:
            if operation.NAME == "balancers.list":
                group.create_task(world.change_status(conditions=[theirs]))

        world.front.before = claim
        await asyncio.sleep(100)

        assert world.front.changes == ["balancers.delete"]
        assert (await world.service())["metadata"]["finalizers"] == [FINALIZER]
        assert await noted(world) == [OTHER]


async def test_a_service_that_was_served_by_others_before_is_noted_with_the_next_write():
    world = World()
    await world.add_node("a")
    await world.add(finalizers=[FINALIZER])

    async with world.managed():
        await asyncio.sleep(10)

        assert await noted(world) == [""]


async def test_what_is_noted_of_a_service_costs_no_write_of_its_own():
    world = World()
    await world.add_node("a")
    await world.add()

    async with world.managed():
        await asyncio.sleep(10)
    patches = world.wire.written()

    async with world.managed():
        await asyncio.sleep(10)

    assert len(patches) == 2
    assert world.wire.written() == patches
    assert await noted(world) == [""]
