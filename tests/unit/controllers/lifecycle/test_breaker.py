"""Too many nodes gone at once: none is deleted, everyone is told, and a human can go on."""

import asyncio
import logging

import pytest

from pileus.controllers.lifecycle.settings import LifecycleSettings, Rules
from pileus.telemetry.log import VALUES
from tests.unit.controllers.lifecycle.world import World, instance

TEN = tuple(f"n{number}" for number in range(10))


async def test_trap_7_a_cloud_that_denies_all_machines_deletes_no_node() -> None:
    world = World()
    await world.add(*TEN)

    async with world.running():
        await world.lose(*TEN)
        await asyncio.sleep(1000)

        assert await world.names() == set(TEN)
        assert world.wire.writes("DELETE") == []
        assert world.sample("pileus_node_breaker_open", action="delete") == 1
        assert world.sample("pileus_nodes_held", action="delete") == 10


async def test_trap_7_it_is_told_on_each_node_once_with_the_way_to_go_on() -> None:
    world = World()
    await world.add(*TEN)

    async with world.running():
        await world.lose(*TEN[:3])
        await asyncio.sleep(600)

        for name in TEN[:3]:
            assert await world.condition(name) == ("True", "TooManyNodesGone")
            assert world.events.reasons(name) == ["TooManyNodesGone"]
        told = world.events.messages("TooManyNodesGone")[0]
        assert "no server n0" in told
        assert "3 of 10 nodes" in told
        assert "the limit is 2" in told
        assert "kubectl annotate node n0 pileus.dev/deletion=approved" in told
        assert len(world.wire.writes()) == 3, "a condition each, and no more"


async def test_trap_7_the_log_says_when_it_opens_and_closes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    await world.add(*TEN)

    async with world.running():
        await world.lose(*TEN[:3])
        await asyncio.sleep(100)
        world.cloud.machines |= {name: instance(name) for name in TEN}
        await asyncio.sleep(100)

    told = [record for record in caplog.records if "node actions" in record.message]
    assert [record.message.split(":")[0] for record in told] == [
        "Stopping node actions",
        "Resuming node actions",
    ]
    opened = getattr(told[0], VALUES)
    assert (opened["nodes"], opened["limit"], opened["of"]) == (3, 2, 10)
    assert opened["resume"] == "kubectl annotate node NAME pileus.dev/deletion=approved"


async def test_nodes_whose_machines_are_found_again_close_it() -> None:
    world = World()
    await world.add(*TEN)

    async with world.running():
        await world.lose(*TEN[:3])
        await asyncio.sleep(60)
        world.cloud.machines |= {name: instance(name) for name in TEN[1:]}
        await asyncio.sleep(25)
        assert await world.names() == set(TEN), "the one that is left has its grace again"
        assert world.sample("pileus_node_breaker_open", action="delete") == 0
        assert await world.condition("n1") == ("False", "InstanceFound")
        await asyncio.sleep(15)

        assert await world.names() == set(TEN[1:])


async def test_nodes_that_are_ready_again_close_it() -> None:
    world = World()
    await world.add(*TEN)

    async with world.running():
        assert world.sample("pileus_node_breaker_open", action="delete") == 0
        await world.lose(*TEN)
        await asyncio.sleep(60)
        assert world.sample("pileus_node_breaker_open", action="delete") == 1
        for name in TEN:
            await world.ready(name, "True")
        await asyncio.sleep(6)

        assert world.sample("pileus_node_breaker_open", action="delete") == 0
        assert world.sample("pileus_nodes_held", action="delete") == 0
        assert await world.condition("n5") == ("False", "NodeReady")


async def test_an_approval_deletes_what_is_held_and_nothing_else() -> None:
    world = World()
    await world.add(*TEN)

    async with world.running():
        await world.lose(*TEN)
        await asyncio.sleep(60)
        await world.annotate("n4", deletion="approved")
        await asyncio.sleep(5)
        assert await world.names() == set(TEN) - {"n4"}
        await asyncio.sleep(1000)

        assert await world.names() == set(TEN) - {"n4"}


async def test_an_approval_ends_with_the_absence_that_it_was_about() -> None:
    world = World()
    await world.add(*TEN)
    await world.annotate("n4", deletion="approved")

    async with world.running():
        await asyncio.sleep(5)

        node = await world.node("n4")
        assert node is not None
        assert "pileus.dev/deletion" not in (node.metadata.annotations or {})


async def test_an_approval_skips_no_look() -> None:
    world = World()
    await world.add(*TEN)
    await world.lose("n1")
    await world.annotate("n1", deletion="approved")

    async with world.running():
        await asyncio.sleep(29)

        assert await world.names() == set(TEN)


async def test_deletions_within_the_window_count() -> None:
    world = World()
    await world.add(*TEN)
    rules = Rules(window=300)

    async with world.running(LifecycleSettings(rules=rules)):
        await world.lose("n0", "n1")
        await asyncio.sleep(60)
        assert await world.names() == set(TEN[2:])
        await world.lose("n2")
        await asyncio.sleep(200)
        assert "n2" in await world.names()
        await asyncio.sleep(200)

        assert await world.names() == set(TEN[3:])


async def test_nodes_that_a_human_keeps_make_no_crowd() -> None:
    world = World()
    await world.add(*TEN)
    for name in TEN[:5]:
        await world.annotate(name, deletion="never")

    async with world.running():
        await world.lose(*TEN[:6])
        await asyncio.sleep(60)

        assert await world.names() == set(TEN) - {"n5"}


async def test_foreign_and_unproven_nodes_make_no_crowd() -> None:
    world = World()
    await world.add("n1", "n2")
    for number in range(50):
        await world.register(f"metal{number}", provider_id=f"metal://{number}")
        await world.register(f"plain{number}")

    async with world.running():
        await world.lose("n1", "n2")
        await asyncio.sleep(600)

        assert {"n1", "n2"} <= await world.names(), "two of two, not two of a hundred"


async def test_a_restart_does_not_close_it() -> None:
    world = World()
    await world.add(*TEN)
    await world.lose(*TEN[:3])
    for _ in range(10):
        async with world.running():
            await asyncio.sleep(60)
        world.restart()

    assert await world.names() == set(TEN)
