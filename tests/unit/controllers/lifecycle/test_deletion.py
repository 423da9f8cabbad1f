"""Nodes whose machines are gone: deleted after two looks, and never otherwise."""

import asyncio

import msgspec
import pytest

from pileus.cloud.model import NodeRef
from pileus.controllers.lifecycle.settings import LifecycleSettings, Policy, Rules
from pileus.kube.errors import Unreachable
from pileus.kube.model.core_v1 import NODES
from pileus.kube.transport import Request
from tests.unit.controllers.lifecycle.world import World, gone, instance

IMMEDIATE = LifecycleSettings(policy=Policy.IMMEDIATE)
FEW = ("n1", "n2", "n3", "n4", "n5", "n6")
WITNESSED = ("n1", "n2", "n3", "n4")
"""A call about n1 that asks about nodes that are alive as well."""


async def test_a_lost_node_is_deleted_after_a_second_look_and_told_as_upstream() -> None:
    world = World()
    await world.add(*FEW)

    async with world.running():
        await asyncio.sleep(1)
        await world.lose("n1")
        await asyncio.sleep(29)
        assert "n1" in await world.names()
        await asyncio.sleep(5)

    assert await world.names() == set(FEW) - {"n1"}
    assert [(each.kind, each.reason, each.message) for each in world.events.told] == [
        (
            "Normal",
            "DeletingNode",
            "Deleting node n1 because it does not exist in the cloud provider",
        )
    ]
    assert world.wire.writes() == ["DELETE /api/v1/nodes/n1"]
    assert world.sample("pileus_nodes_deleted_total") == 1


async def test_the_deletion_names_the_very_object_and_its_version() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")
    lost = await world.node("n1")
    assert lost is not None

    async with world.running():
        await asyncio.sleep(60)

    request = next(each for each in world.wire.requests if each.method == "DELETE")
    assert msgspec.json.decode(request.body or b"")["preconditions"] == {
        "uid": lost.metadata.uid,
        "resourceVersion": lost.metadata.resource_version,
    }


async def test_defect_9_the_first_look_is_at_the_nodes_that_there_are() -> None:
    world = World()
    await world.add("n1")
    await world.lose("n1")

    async with world.running():
        await asyncio.sleep(0.5)

    assert world.cloud.calls == [("n1",)]


async def test_ready_nodes_cost_no_call_even_if_the_cloud_has_lost_them() -> None:
    world = World()
    await world.add(*FEW)
    world.cloud.machines = {name: gone(name) for name in FEW}

    async with world.running():
        await asyncio.sleep(600)

    assert world.cloud.calls == []
    assert await world.names() == set(FEW)


async def test_a_node_that_turns_not_ready_is_looked_at_at_once() -> None:
    world = World()
    await world.add(*FEW)

    async with world.running(LifecycleSettings(period=3600)):
        await asyncio.sleep(10)
        await world.lose("n1")
        await asyncio.sleep(0.5)
        assert world.cloud.calls == [("n1",), WITNESSED]
        await asyncio.sleep(30.5)

        assert world.cloud.calls[2:] == [WITNESSED], "the second look waits for no period either"
        assert "n1" not in await world.names()


async def test_six_hundred_nodes_that_are_not_ready_are_two_calls_a_round() -> None:
    world = World()
    for number in range(600):
        await world.register(f"n{number}", provider_id=f"fake://n{number}")
        world.cloud.machines[f"n{number}"] = instance(f"n{number}")

    async with world.running():
        await asyncio.sleep(12)

    assert sorted(len(each) for each in world.cloud.calls) == [100] * 3 + [500] * 3, "at 0, 5, 10 s"
    assert world.wire.writes() == []


async def test_a_burst_of_nodes_that_turn_not_ready_is_one_call() -> None:
    world = World()
    await world.add(*FEW)

    async with world.running(LifecycleSettings(period=3600)):
        await asyncio.sleep(10)
        for name in FEW:
            await world.ready(name, "Unknown")
            await asyncio.sleep(0.02)
        await asyncio.sleep(5)

    assert world.cloud.calls == [FEW]


async def test_a_node_that_comes_back_in_between_is_not_deleted() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")

    async with world.running():
        await asyncio.sleep(20)
        await world.ready("n1", "True")
        await asyncio.sleep(5)
        await world.ready("n1", "Unknown")
        await asyncio.sleep(28)
        assert "n1" in await world.names(), "the grace began anew"
        await asyncio.sleep(10)

    assert "n1" not in await world.names()


async def test_a_machine_that_appears_in_between_saves_its_node() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")

    async with world.running():
        await asyncio.sleep(20)
        world.cloud.machines["n1"] = instance("n1")
        await asyncio.sleep(300)

    assert await world.names() == set(FEW)


async def test_a_node_that_is_ready_when_read_anew_is_not_deleted() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")

    async def come_back(request: Request) -> None:
        if request.method == "GET" and request.path.endswith("/n1"):
            await world.ready("n1", "True")

    world.wire.before = come_back

    async with world.running(IMMEDIATE):
        await asyncio.sleep(10)

    assert await world.names() == set(FEW)
    assert world.wire.writes() == []


async def test_a_node_that_turns_ready_just_before_the_deletion_is_not_deleted() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")

    async def come_back(request: Request) -> None:
        if request.method == "DELETE":
            await world.ready("n1", "True")

    world.wire.before = come_back

    async with world.running(IMMEDIATE):
        await asyncio.sleep(10)

    assert await world.names() == set(FEW)
    assert world.events.reasons("n1") == ["DeletingNode"]


async def test_an_answer_about_what_the_node_was_before_is_void() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")
    world.cloud.takes = lambda _: 10

    async with world.running(IMMEDIATE):
        await asyncio.sleep(5)
        await world.ready("n1", "True")
        await asyncio.sleep(2)
        await world.ready("n1", "Unknown")
        await asyncio.sleep(4)
        world.cloud.machines["n1"] = instance("n1")
        await asyncio.sleep(60)

        assert await world.names() == set(FEW)


async def test_trap_3_a_node_of_the_same_name_is_another_node() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")

    async with world.running():
        await asyncio.sleep(20)
        await world.users.delete(NODES, "n1")
        await world.register("n1", provider_id="fake://n1")
        await asyncio.sleep(25)
        assert "n1" in await world.names()


async def test_heartbeats_do_not_defeat_a_deletion() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")
    await world.ready("n1", "False")
    beats = 0

    async def beat(request: Request) -> None:
        nonlocal beats
        if request.method == "DELETE" and beats < 2:
            beats += 1
            await world.annotate("n1", **{"out-of-service": str(beats)})

    world.wire.before = beat

    async with world.running():
        await asyncio.sleep(45)

    assert "n1" not in await world.names()
    assert world.wire.writes() == ["DELETE /api/v1/nodes/n1"] * 3
    assert world.events.reasons("n1") == ["DeletingNode"]


async def test_a_deletion_that_fails_is_told_once_and_tried_again_ever_more_seldom() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")

    def refuse(request: Request) -> None:
        if request.method == "DELETE":
            raise Unreachable(request.path, "in-process", "cut")

    world.wire.before = refuse

    async with world.running():
        await asyncio.sleep(600)

    assert world.events.reasons("n1") == ["DeletingNode", "DeletingNodeFailed"]
    assert world.events.messages("DeletingNodeFailed")[0].startswith("Failed deleting node n1: ")
    assert len(world.wire.writes("DELETE")) == 6


async def test_a_node_being_deleted_by_others_is_left_alone() -> None:
    world = World()
    await world.add("n1", finalizers=["example.com/wait"])
    await world.lose("n1")
    await world.users.delete(NODES, "n1")

    async with world.running(IMMEDIATE):
        await asyncio.sleep(60)

    assert world.cloud.calls == []
    assert world.wire.writes() == []


async def test_defect_8_a_new_node_that_the_cloud_does_not_list_yet_is_kept_and_told() -> None:
    world = World()
    taint = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
    await world.register("new", taints=[taint])
    world.cloud.machines["new"] = gone("new")

    async with world.running():
        await asyncio.sleep(600)

        assert "new" in await world.names()
        assert await world.condition("new") == ("True", "NeverInitialized")
        await world.annotate("new", deletion="approved")
        await asyncio.sleep(5)

    assert "new" not in await world.names()


async def test_a_node_with_this_clouds_provider_id_is_ours_even_before_its_initialization() -> None:
    world = World()
    taint = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
    await world.register("new", provider_id="fake://new", taints=[taint])
    world.cloud.machines["new"] = gone("new")

    async with world.running():
        await asyncio.sleep(20)
        assert "new" in await world.names()
        await asyncio.sleep(20)

    assert "new" not in await world.names()


@pytest.mark.parametrize("policy", list(Policy))
async def test_a_foreign_node_is_never_looked_up_nor_touched(policy: Policy) -> None:
    world = World()
    shutdown = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
    await world.register("other", provider_id="metal://7", taints=[shutdown])
    await world.register("down", provider_id="metal://8")
    await world.ready("other", "True")
    await world.ready("down", "Unknown")
    world.cloud.machines = {name: gone(name) for name in ("other", "down")}

    async with world.running(LifecycleSettings(policy=policy)):
        await asyncio.sleep(600)

    assert world.cloud.calls == []
    assert world.wire.writes() == []


async def test_a_node_that_the_cloud_disowns_is_foreign_whatever_its_provider_id() -> None:
    def owns(node: NodeRef) -> bool | None:
        return None if node.name == "mine" else False

    world = World(owns=owns)
    await world.add("mine", "theirs", ready=False)
    world.cloud.machines = {name: gone(name) for name in ("mine", "theirs")}

    async with world.running():
        await asyncio.sleep(60)

    assert await world.names() == {"theirs"}
    assert {name for call in world.cloud.calls for name in call} == {"mine"}


async def test_a_restart_begins_the_grace_anew() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")
    async with world.running():
        await asyncio.sleep(25)
    world.restart()

    async with world.running():
        await asyncio.sleep(25)
        assert "n1" in await world.names()
        await asyncio.sleep(10)

    assert "n1" not in await world.names()


async def test_no_grace_still_takes_two_looks() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")

    async with world.running(LifecycleSettings(rules=Rules(grace=0))):
        await asyncio.sleep(6)

    assert "n1" not in await world.names()
    assert world.cloud.calls == [("n1",), WITNESSED, WITNESSED], "the first look is two calls"


async def test_nothing_is_concluded_while_the_watch_is_silent() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")

    async with world.running():
        await asyncio.sleep(10)
        calls = len(world.cloud.calls)
        world.informer.age = lambda: 500.0
        await asyncio.sleep(600)
        assert len(world.cloud.calls) == calls
        assert "n1" in await world.names()
        del world.informer.age
        await asyncio.sleep(10)

    assert "n1" not in await world.names()
