"""What a Service under a ported provider costs: writes to the API server, and calls, counted.

In Go a new Service costs two writes (finalizer, status), and a deletion two (finalizer, status).
"""

import asyncio
from typing import Any

import pytest

from pileus.classic.errors import ImplementedElsewhere
from pileus.kube.errors import Unreachable
from tests.unit.classic.world import World

STATUS = "PATCH /api/v1/namespaces/default/services/web/status"
NOTE = "pileus.dev/ensured"


async def served(world: World) -> None:
    await world.add_node("n1")
    await world.add()
    await asyncio.sleep(30)


def forgotten(world: World) -> None:
    world.wire.writes.clear()
    world.account.calls.clear()


def parts(world: World) -> list[set[str]]:
    """What each write is about."""
    return [
        {*body["metadata"], *body.get("status", {})} - {"uid", "resourceVersion"}
        for _, path, body in world.wire.writes
        if "/events" not in path
    ]


async def noted(world: World) -> str:
    return ((await world.service())["metadata"].get("annotations") or {}).get(NOTE, "")


async def test_a_new_service_costs_the_finalizer_and_the_status():
    world = World()

    async with world.managed():
        await served(world)
        assert await noted(world)

    assert world.wire.written() == [STATUS, STATUS]
    assert parts(world) == [
        {"finalizers", "$setElementOrder/finalizers", "conditions"},
        {"annotations", "loadBalancer", "conditions"},
    ]
    assert world.account.calls == ["ensure"]


async def test_what_is_implemented_elsewhere_costs_no_more():
    world = World()
    world.account.errors["ensure"] = ImplementedElsewhere()

    async with world.managed():
        await served(world)
        assert (await noted(world)).endswith(".elsewhere")

    assert len(world.wire.written()) == 2


CHANGES: dict[str, dict[str, Any]] = {
    "port": {"spec": {"ports": [{"port": 81, "nodePort": 30081}]}},
    "annotation": {"metadata": {"annotations": {"acme.example/size": "large"}}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_a_changed_service_costs_the_removal_of_its_note_and_a_new_one(change: Any):
    world = World()

    async with world.managed():
        await served(world)
        forgotten(world)
        before = await noted(world)
        await world.change(**change)
        await asyncio.sleep(30)
        assert await noted(world) not in {"", before}

    assert parts(world) == [{"annotations"}, {"annotations"}]
    assert world.account.calls == ["ensure"]


async def test_another_node_costs_the_removal_of_its_note_and_a_new_one():
    world = World()

    async with world.managed():
        await served(world)
        forgotten(world)
        await world.add_node("n2")
        await asyncio.sleep(30)

    assert parts(world) == [{"annotations"}, {"annotations"}]
    assert world.account.calls == ["update"]


async def test_a_deletion_costs_one_write():
    world = World()

    async with world.managed():
        await served(world)
        forgotten(world)
        await world.delete()
        await asyncio.sleep(60)

    assert world.wire.written() == [STATUS]
    assert world.account.calls == ["get", "delete", "get"], "and asked whether it is gone"
    assert "web" not in await world.services()


@pytest.mark.parametrize("is_forced", [False, True])
async def test_a_deletion_that_did_not_find_the_balancer_is_repeated(is_forced: bool):
    """Most providers look it up first. An answer that lacks it for a moment must not leak it."""
    world = World()

    async with world.managed():
        await served(world)
        forgotten(world)
        world.account.misses = 1
        await world.delete()
        if is_forced:
            await world.change(metadata={"finalizers": None})
        await asyncio.sleep(2)
        assert ("web" in await world.services()) is not is_forced
        await asyncio.sleep(100)

    assert world.account.calls == ["get", "delete", "get", "delete", "get"]
    assert world.account.built == {}
    assert "web" not in await world.services()


async def test_a_restart_costs_nothing():
    world = World()
    async with world.managed():
        await served(world)
    forgotten(world)

    async with world.managed():
        await asyncio.sleep(30)

    assert (world.wire.written(), world.account.calls) == ([], [])


async def test_a_change_of_type_costs_the_removal_of_its_note_and_the_release():
    world = World()

    async with world.managed():
        await served(world)
        forgotten(world)
        await world.change(spec={"type": "ClusterIP"})
        await asyncio.sleep(60)
        assert await noted(world) == ""

    assert len(world.wire.written()) == 2
    assert world.account.calls == ["get", "delete", "get"]


async def test_a_balancer_deleted_by_hand_gets_its_note_again():
    world = World()

    async with world.managed(drift_period=60):
        await served(world)
        before = await noted(world)
        forgotten(world)
        world.account.built.clear()
        await asyncio.sleep(200)
        assert await noted(world) == before

    assert world.account.built
    assert len(world.wire.written()) == 2


async def test_a_status_that_could_not_be_written_is_written_later_with_the_note():
    world = World()
    failing = True

    def refuse(request: Any) -> None:
        if failing and b"loadBalancer" in (request.body or b"") and request.method == "PATCH":
            raise Unreachable(request.path, "in-process", "connection refused")

    world.wire.before = refuse
    async with world.managed():
        await served(world)
        assert await noted(world) == ""
        failing = False
        await asyncio.sleep(400)
        assert await noted(world)

    assert world.account.calls == ["ensure"]
