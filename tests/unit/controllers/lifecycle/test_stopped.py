"""Nodes whose machines are stopped: tainted as upstream, and out of service if that is wanted."""

import asyncio

from pileus.cloud.errors import Unavailable
from pileus.cloud.model import InstanceState
from pileus.controllers.lifecycle.settings import LifecycleSettings
from pileus.kube.errors import Unreachable
from pileus.kube.model.core_v1 import NODES
from pileus.kube.patch import MergePatch
from pileus.kube.transport import Request
from tests.unit.controllers.lifecycle.world import OUT_OF_SERVICE, SHUTDOWN, World, instance

TEN = tuple(f"n{number}" for number in range(10))
OUT = LifecycleSettings(takes_out_of_service=True)
USERS = "example.com/mine:NoSchedule"


async def taint(world: World, name: str, *taints: str) -> None:
    """Have a user set exactly these."""
    split = [each.rpartition(":") for each in taints]
    body = [
        {"key": key.partition("=")[0], "value": key.partition("=")[2], "effect": effect}
        for key, _, effect in split
    ]
    await world.users.patch(NODES, name, MergePatch({"spec": {"taints": body}}))


def cut(request: Request) -> None:
    if request.method == "PATCH":
        raise Unreachable(request.path, "in-process", "cut")


async def test_a_stopped_machine_taints_its_node_until_it_is_ready_again() -> None:
    world = World()
    await world.add("n1")
    await taint(world, "n1", USERS)

    async with world.running():
        await world.stop("n1")
        await asyncio.sleep(1)
        assert await world.taints("n1") == [USERS, SHUTDOWN]

        world.cloud.machines["n1"] = instance("n1")
        await asyncio.sleep(60)
        assert await world.taints("n1") == [USERS, SHUTDOWN], "as upstream: until it is ready"

        await world.ready("n1", "True")
        await asyncio.sleep(1)
        assert await world.taints("n1") == [USERS]
    assert world.wire.writes() == ["PATCH /api/v1/nodes/n1"] * 2
    assert world.events.told == []


async def test_a_taint_of_the_same_key_and_another_effect_is_not_ours() -> None:
    world = World()
    await world.add("n1")
    other = SHUTDOWN.replace("NoSchedule", "NoExecute")
    await taint(world, "n1", other)

    async with world.running():
        await asyncio.sleep(10)
        assert await world.taints("n1") == [other]
        assert world.wire.writes() == []


async def test_a_taint_that_others_add_meanwhile_is_not_lost() -> None:
    world = World()
    await world.add("n1")
    meddled = False

    async def meddle(request: Request) -> None:
        nonlocal meddled
        if request.method == "PATCH" and not meddled:
            meddled = True
            await taint(world, "n1", USERS)

    world.wire.before = meddle

    async with world.running():
        await world.stop("n1")
        await asyncio.sleep(3)

        assert await world.taints("n1") == [USERS, SHUTDOWN]


async def test_stopped_is_not_out_of_service_unless_that_is_wanted() -> None:
    world = World()
    await world.add(*TEN)

    async with world.running():
        await world.stop("n1")
        await asyncio.sleep(600)

        assert await world.taints("n1") == [SHUTDOWN]


async def test_what_is_stopped_for_longer_than_the_grace_goes_out_of_service() -> None:
    world = World()
    await world.add(*TEN)

    async with world.running(OUT):
        await world.stop("n1")
        await asyncio.sleep(29)
        assert await world.taints("n1") == [SHUTDOWN]
        await asyncio.sleep(6)
        assert await world.taints("n1") == [SHUTDOWN, OUT_OF_SERVICE]
        assert world.events.reasons("n1") == ["NodeOutOfService"]

        world.cloud.machines["n1"] = instance("n1")
        await asyncio.sleep(6)
        assert await world.taints("n1") == [SHUTDOWN], "the machine runs"
        assert world.events.reasons("n1") == ["NodeOutOfService", "NodeBackInService"]


async def test_a_node_that_is_ready_again_is_in_service_also_after_the_option_was_withdrawn() -> (
    None
):
    world = World()
    await world.add(*TEN)
    async with world.running(OUT):
        await world.stop("n1")
        await asyncio.sleep(60)
    world.restart()

    async with world.running():
        assert await world.taints("n1") == [SHUTDOWN, OUT_OF_SERVICE]
        await world.ready("n1", "True")
        await asyncio.sleep(6)

        assert await world.taints("n1") == []


async def test_a_cloud_that_does_not_answer_changes_nothing() -> None:
    world = World()
    await world.add(*TEN)

    async with world.running(OUT):
        await world.stop("n1")
        await asyncio.sleep(60)
        world.cloud.whole = Unavailable("down")
        await asyncio.sleep(600)
        assert await world.taints("n1") == [SHUTDOWN, OUT_OF_SERVICE]

        world.cloud.whole = None
        world.cloud.machines["n1"] = instance("n1", InstanceState.UNKNOWN)
        await asyncio.sleep(600)
        assert await world.taints("n1") == [SHUTDOWN, OUT_OF_SERVICE]


async def test_the_same_taint_set_by_hand_is_the_users() -> None:
    world = World()
    await world.add(*TEN)
    await world.stop("n1")
    await taint(world, "n1", OUT_OF_SERVICE)

    async with world.running(OUT):
        await asyncio.sleep(60)
        world.cloud.machines["n1"] = instance("n1")
        await world.ready("n1", "True")
        await asyncio.sleep(60)

        assert await world.taints("n1") == [OUT_OF_SERVICE]


async def test_a_taint_of_ours_that_a_user_removed_is_not_set_again() -> None:
    world = World()
    await world.add(*TEN)

    async with world.running(OUT):
        await world.stop("n1")
        await asyncio.sleep(60)
        await taint(world, "n1", SHUTDOWN)
        await asyncio.sleep(600)

        assert await world.taints("n1") == [SHUTDOWN]


async def test_trap_7_a_cloud_that_calls_all_machines_stopped_evicts_nobody() -> None:
    world = World()
    await world.add(*TEN)

    async with world.running(OUT):
        await world.stop(*TEN)
        await asyncio.sleep(600)

        for name in TEN:
            assert await world.taints(name) == [SHUTDOWN]
            assert world.events.reasons(name) == ["TooManyNodesStopped"]
        assert world.sample("pileus_node_breaker_open", action="out_of_service") == 1


async def test_nodes_out_of_service_for_long_do_not_count_for_ever() -> None:
    world = World()
    await world.add(*TEN)

    async with world.running(OUT):
        await world.stop("n1", "n2")
        await asyncio.sleep(1000)
        await world.stop("n3")
        await asyncio.sleep(60)

        assert OUT_OF_SERVICE in await world.taints("n3")


async def test_a_node_that_is_ready_again_does_not_rest_for_an_earlier_failure() -> None:
    world = World()
    await world.add(*TEN)
    await world.stop("n1")
    async with world.running():
        await asyncio.sleep(5)
        world.wire.before = cut
        await world.ready("n1", "True")
        await asyncio.sleep(200)
        world.wire.before = lambda _: None
        await world.ready("n1", "Unknown")
        await world.ready("n1", "True")
        await asyncio.sleep(1)

        assert await world.taints("n1") == []
        assert world.events.reasons("n1") == ["NodeWriteFailed"]


async def test_a_node_that_turns_ready_is_not_taken_out_of_service_by_an_old_view() -> None:
    world = World()
    await world.add(*TEN)

    async def come_back(request: Request) -> None:
        if request.method == "PATCH" and b"out-of-service" in (request.body or b""):
            await world.ready("n1", "True")

    world.wire.before = come_back

    async with world.running(OUT):
        await world.stop("n1")
        await asyncio.sleep(31)

        assert OUT_OF_SERVICE not in await world.taints("n1")
