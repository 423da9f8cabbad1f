"""Nodes without a provider ID whose machines are gone: deleted after a long grace, never before."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from pileus.cloud.errors import Unavailable
from pileus.cloud.interface import Instances
from pileus.cloud.model import Failure, Found, NodeName, NodeRef
from pileus.controllers.lifecycle.settings import LifecycleSettings, Policy, Rules
from pileus.kube.transport import Request
from pileus.objects.preview import EVERYTHING, Planned
from tests.unit.controllers.lifecycle.world import World, gone, instance

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


class WithAnotherCloud:
    """Denies unidentified nodes only once another cloud, which hangs, has answered."""

    def __init__(self, inner: Instances) -> None:
        self._inner = inner

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        answers = await self._inner.find(nodes, fresh=fresh)
        if any(not node.provider_id for node in nodes):
            await asyncio.sleep(1e6)
        return answers


async def test_another_cloud_that_hangs_delays_no_identified_node() -> None:
    world = await with_new("new")
    world.joined = WithAnotherCloud
    async with world.running():
        await world.lose("n1")
        await asyncio.sleep(40)
        assert "n1" not in await world.names()
        await asyncio.sleep(2 * GRACE)

    assert "new" in await world.names()
