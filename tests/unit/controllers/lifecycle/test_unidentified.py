"""Nodes without a provider ID whose machines are gone: deleted after a long grace, never before."""

import asyncio
from dataclasses import replace

import pytest

from pileus.cloud.errors import Unavailable
from pileus.cloud.model import Failure
from pileus.controllers.lifecycle.settings import LifecycleSettings, Policy, Rules
from pileus.kube.transport import Request
from pileus.objects.preview import EVERYTHING, Planned
from tests.unit.controllers.lifecycle.world import FakeInstances, World, gone, instance

TAINT = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
OURS = ("n1", "n2", "n3", "n4", "n5", "n6")
GRACE = 1800.0


async def with_new(*names: str) -> World:
    """A cluster with nodes of ours, and new ones whose machines are gone."""
    world = World()
    await world.add(*OURS)
    for name in names:
        await world.register(name, taints=[TAINT])
        await world.ready(name, "Unknown")
        world.cloud.machines[name] = gone(name)
    return world


async def test_a_node_that_was_never_initialized_is_deleted_after_the_long_grace() -> None:
    world = await with_new("new")
    async with world.running():
        await asyncio.sleep(GRACE - 10)
        assert await world.condition("new") == ("True", "NeverInitialized")
        await asyncio.sleep(30)

    assert await world.names() == set(OURS)
    assert "DeletingNode" in [each.reason for each in world.events.told]


async def test_the_grace_is_a_setting_and_zero_keeps_the_node_for_good() -> None:
    world = await with_new("new")
    async with world.running(LifecycleSettings(rules=Rules(unidentified_grace=0))):
        await asyncio.sleep(10 * GRACE)
        assert "new" in await world.names()
    world.restart()
    async with world.running(LifecycleSettings(rules=Rules(unidentified_grace=120))):
        await asyncio.sleep(150)
        assert "new" not in await world.names()


async def test_a_restart_of_the_manager_begins_the_grace_again() -> None:
    world = await with_new("new")
    for _ in range(3):
        async with world.running():
            await asyncio.sleep(GRACE - 60)
        world.restart()

    assert "new" in await world.names()


@pytest.mark.parametrize("state", ["True", "found"])
async def test_a_node_that_is_ready_or_found_in_between_begins_the_grace_again(state) -> None:
    world = await with_new("new")
    async with world.running():
        await asyncio.sleep(GRACE - 60)
        if state == "found":
            world.cloud.machines["new"] = instance("new")
        else:
            await world.ready("new", state)
        await asyncio.sleep(10)
        world.cloud.machines["new"] = gone("new")
        await world.ready("new", "Unknown")
        await asyncio.sleep(GRACE - 60)
        assert "new" in await world.names()
        await asyncio.sleep(100)
        assert "new" not in await world.names()


async def test_time_without_an_answer_from_the_cloud_does_not_count() -> None:
    world = await with_new("new")
    async with world.running():
        await asyncio.sleep(60)
        world.cloud.machines["new"] = Failure(Unavailable("maintenance"))
        await asyncio.sleep(GRACE)
        world.cloud.machines["new"] = gone("new")
        await asyncio.sleep(GRACE - 60)
        assert "new" in await world.names()
        await asyncio.sleep(100)
        assert "new" not in await world.names()


async def test_too_many_at_once_are_kept() -> None:
    world = await with_new("a", "b", "c")
    async with world.running():
        await asyncio.sleep(2 * GRACE)

        assert {"a", "b", "c"} <= await world.names()
        assert await world.condition("a") == ("True", "TooManyNodesGone")


async def test_new_nodes_that_the_cloud_does_not_list_yet_do_not_stop_other_deletions() -> None:
    world = await with_new("a", "b", "c")
    async with world.running():
        await asyncio.sleep(60)
        await world.lose("n1")
        await asyncio.sleep(60)

    assert "n1" not in await world.names()


async def test_a_cloud_that_denies_nodes_which_are_alive_is_not_believed() -> None:
    world = await with_new("new")
    for name in OURS:
        world.cloud.machines[name] = gone(name)
    async with world.running():
        await asyncio.sleep(2 * GRACE)

    assert "new" in await world.names()


async def test_a_veto_keeps_it_also_if_it_comes_just_before_the_deletion() -> None:
    world = await with_new("new", "other")
    await world.annotate("other", deletion="never")

    async def veto(request: Request) -> None:
        if request.method == "GET" and request.path.endswith("/nodes/new"):
            world.wire.before = lambda _: None
            await world.annotate("new", deletion="never")

    world.wire.before = veto
    async with world.running():
        await asyncio.sleep(2 * GRACE)

    assert {"new", "other"} <= await world.names()
    assert not world.wire.writes("DELETE")


@pytest.mark.parametrize("policy", [Policy.TAINT, Policy.REPORT])
async def test_policies_that_keep_nodes_keep_it(policy: Policy) -> None:
    world = await with_new("new")
    async with world.running(replace(LifecycleSettings(), policy=policy)):
        await asyncio.sleep(2 * GRACE)

    assert "new" in await world.names()


async def test_a_plan_shows_the_deletion_that_is_to_come() -> None:
    world = await with_new("new")
    async with world.running() as controller:
        await asyncio.sleep(100)
        lines = await controller.preview(EVERYTHING)

    deletions = [each for each in lines if isinstance(each, Planned) and "delete" in each.summary]
    assert [each.waits_for for each in deletions] == ["the same answer for 1800 s in a row"]


@pytest.mark.parametrize(
    ("elsewhere", "is_deleted"),
    [
        pytest.param(gone("new"), True, id="absent"),
        pytest.param(instance("new"), False, id="found"),
        pytest.param(Failure(Unavailable("502")), False, id="failed"),
        pytest.param(None, False, id="unknown"),
    ],
)
async def test_with_several_clouds_an_unidentified_node_is_deleted_only_if_all_deny_it(
    elsewhere: object, is_deleted: bool
) -> None:
    world = await with_new("new")
    other = FakeInstances()
    other.machines = {"new": elsewhere} if elsewhere else {}
    world.other_clouds = [other]
    async with world.running():
        await asyncio.sleep(2 * GRACE)

    assert ("new" not in await world.names()) is is_deleted


async def test_another_cloud_is_asked_about_no_node_that_is_identified() -> None:
    world = await with_new("new")
    world.other_clouds = [other := FakeInstances()]
    async with world.running():
        await asyncio.sleep(1)
        await world.lose("n1")
        await asyncio.sleep(100)

    assert "n1" not in await world.names()
    assert {name for call in other.calls for name in call} == {"new"}


async def test_another_cloud_that_hangs_delays_no_identified_node() -> None:
    world = await with_new("new")
    world.other_clouds = [other := FakeInstances()]
    other.takes = lambda _: 1e6
    async with world.running():
        await asyncio.sleep(1)
        await world.lose("n1")
        await asyncio.sleep(40)
        assert "n1" not in await world.names()
