"""What happens to nodes whose machines are gone, as the operator and the user wish."""

import asyncio

import pytest

from pileus.controllers.lifecycle.settings import LifecycleSettings, Policy
from tests.unit.controllers.lifecycle.world import World, gone, instance

IMMEDIATE = LifecycleSettings(policy=Policy.IMMEDIATE)
FEW = ("n1", "n2", "n3", "n4", "n5", "n6")


async def test_immediate_is_upstreams_way() -> None:
    world = World()
    await world.add(*FEW)
    await world.register("new")
    await world.lose(*FEW)
    world.cloud.machines["new"] = gone("new")

    async with world.running(IMMEDIATE):
        await asyncio.sleep(1)

    assert await world.names() == set()
    assert world.events.reasons("n3") == ["DeletingNode"]
    assert world.sample("pileus_node_breaker_open", action="delete") == 0


async def test_report_only_tells() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")

    async with world.running(LifecycleSettings(policy=Policy.REPORT)):
        await asyncio.sleep(300)

        assert await world.names() == set(FEW)
        assert await world.condition("n1") == ("True", "NodeKeptByPolicy")
        assert await world.taints("n1") == []
        assert world.events.reasons("n1") == ["NodeKeptByPolicy"]
        assert "no server n1" in world.events.messages("NodeKeptByPolicy")[0]
        assert world.wire.writes() == ["PATCH /api/v1/nodes/n1/status"]


async def test_taint_keeps_pods_away_until_the_node_is_back() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")

    async with world.running(LifecycleSettings(policy=Policy.TAINT)):
        await asyncio.sleep(60)
        assert await world.taints("n1") == ["pileus.dev/instance-gone:NoSchedule"]
        assert await world.condition("n1") == ("True", "NodeKeptByPolicy")

        world.cloud.machines["n1"] = instance("n1")
        await world.ready("n1", "True")
        await asyncio.sleep(5)

        assert await world.taints("n1") == []
        assert await world.condition("n1") == ("False", "NodeReady")


@pytest.mark.parametrize(
    ("word", "reason"),
    [("never", "DeletionVetoed"), ("aproved", "DeletionAnnotationUnknown")],
)
@pytest.mark.parametrize("policy", [Policy.GUARDED, Policy.IMMEDIATE])
async def test_a_human_may_forbid_it(word: str, reason: str, policy: Policy) -> None:
    world = World()
    await world.add(*FEW)
    await world.annotate("n1", deletion=word)
    await world.lose("n1")

    async with world.running(LifecycleSettings(policy=policy)):
        await asyncio.sleep(300)

        assert await world.names() == set(FEW)
        assert await world.condition("n1") == ("True", reason)
        assert set(world.events.reasons("n1")) - {"UnknownAnnotation"} == {reason}


async def test_a_misspelt_veto_is_reported_at_once_and_obeyed() -> None:
    world = World()
    await world.add(*FEW)

    async with world.running(LifecycleSettings(policy=Policy.IMMEDIATE)):
        await world.annotate("n1", deletoin="never")
        await asyncio.sleep(1)
        assert world.events.reasons("n1") == ["UnknownAnnotation"]
        (message,) = world.events.messages("UnknownAnnotation")
        assert 'did you mean "pileus.dev/deletion"?' in message
        assert message.endswith(
            "Fix: kubectl annotate node n1 "
            "pileus.dev/deletoin- pileus.dev/deletion=never --overwrite"
        )

        await world.lose("n1")
        await asyncio.sleep(300)
        assert await world.names() == set(FEW)
        assert await world.condition("n1") == ("True", "DeletionAnnotationUnknown")

        await world.annotate("n1", deletoin=None)
        await asyncio.sleep(60)
        assert "n1" not in await world.names()


async def test_annotations_of_a_foreign_node_are_not_reported() -> None:
    world = World()
    await world.add("n1", "n2")
    await world.register("far", provider_id="metal://1")
    await world.annotate("far", deletoin="never")

    async with world.running(LifecycleSettings()):
        await asyncio.sleep(60)

    assert world.events.reasons("far") == []
