"""The number of calls to the cloud and requests to the API server."""

import asyncio

import pytest

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import QuotaExceeded
from pileus.controllers.service.plan import LAST_CHECK
from pileus_lab.local.model.account import SetQuota
from tests.unit.controllers.service.plain import Change
from tests.unit.controllers.service.world import World

MANY = 250


async def furnished(world: World, services: int, nodes: int = 3) -> None:
    await world.cloud.operate(SetQuota(limits={"balancers": services, "listeners": services}))
    for number in range(nodes):
        await world.add_node(f"n{number}")
    for number in range(services):
        await world.add(f"s{number}", ports=[{"port": 80, "nodePort": 30000 + number}])


async def test_a_restart_with_hundreds_of_unchanged_services_writes_nothing_and_only_looks():
    world = World()
    cloud = world.plainly()
    await furnished(world, MANY)
    async with world.managed():
        await asyncio.sleep(60)
        assert len(cloud.standing) == MANY
    world.wire.writes.clear()
    cloud.changed.clear()
    cloud.looks.clear()
    told = len(world.events.told)

    async with world.managed():
        await asyncio.sleep(60)

        assert world.wire.writes == []
        assert cloud.changed == []
        assert cloud.looks == [(MANY, False)]
        assert len(world.events.told) == told


async def test_the_cloud_is_asked_for_lists_alone_when_nothing_changed():
    world = World()
    await furnished(world, 20)
    async with world.managed():
        await asyncio.sleep(10)
    world.front.looks.clear()
    world.front.changes.clear()

    async with world.managed():
        await asyncio.sleep(10)

        assert sorted(world.front.looks) == ["balancers.list_outlines"] * 2 + ["cloud.describe"]
        assert world.front.changes == []


async def test_a_new_service_costs_two_writes_to_the_cluster_and_one_to_the_cloud():
    world = World()
    await furnished(world, 1)

    async with world.managed():
        await asyncio.sleep(30)

    assert len(world.wire.written()) == 2
    assert world.front.changes == ["balancers.create"]


async def test_a_burst_of_node_changes_is_one_member_update_per_balancer():
    world = World()
    await furnished(world, 20)
    async with world.managed():
        await asyncio.sleep(30)
        world.wire.writes.clear()
        world.front.changes.clear()

        for number in range(50):
            await world.add_node(f"late-{number}")
            await asyncio.sleep(0.01)
        await asyncio.sleep(30)

        assert world.front.changes == ["balancers.add_members"] * 20
        assert all(len(one.members) == 53 for one in world.balancers.values())
        assert world.wire.written() == []
        assert world.sample("service_controller_loadbalancer_sync_total") == 20
        assert world.sample("service_controller_nodesync_latency_seconds_count") == 1
        assert world.events.reasons("s1")[2:] == ["UpdatedLoadBalancer"]


async def test_heartbeats_and_labels_of_nodes_cost_nothing():
    world = World()
    await furnished(world, 3)
    async with world.managed():
        await asyncio.sleep(30)
        world.front.looks.clear()

        await world.change_node("n1", metadata={"labels": {"team": "blue"}})
        await asyncio.sleep(30)

        assert world.front.looks == []


@pytest.mark.parametrize("back", [True, False])
async def test_a_node_that_comes_back_within_a_second_changes_nothing(back: bool):
    world = World()
    await furnished(world, 3)
    async with world.managed():
        await asyncio.sleep(30)
        world.front.changes.clear()

        await world.remove_node("n1")
        await asyncio.sleep(0.3)
        if back:
            await world.add_node("n1")
        await asyncio.sleep(30)

        assert world.front.changes == ([] if back else ["balancers.remove_members"] * 3)


async def test_the_provider_counts_what_the_go_framework_would_ask_it_for():
    """The Go framework's providers count calls that ensure, update and delete load balancers."""
    world = World()
    cloud = world.plainly()
    cloud.takes = 3.0
    await world.add_node("n1")
    await world.add("web")
    async with world.managed():
        await asyncio.sleep(30)
        await world.add_node("n2")
        await asyncio.sleep(30)
        await world.delete("web")
        await asyncio.sleep(30)

    assert [kind for kind, _, _ in world.reconciled] == ["ensure", "update", "delete"]
    assert not any(has_failed for _, _, has_failed in world.reconciled)
    assert [round(seconds) for _, seconds, _ in world.reconciled] == [3, 3, 6 + LAST_CHECK]


async def test_the_provider_counts_failures_and_nothing_that_is_up_to_date():
    world = World()
    cloud = world.plainly()
    await world.add_node("n1")
    await world.add("web")

    def refuse(owner: Owner, change: Change) -> None:
        raise QuotaExceeded("no more balancers")

    cloud.changing = refuse
    async with world.managed():
        await asyncio.sleep(12)
        failed = list(world.reconciled)
        cloud.changing = lambda owner, change: None
        await asyncio.sleep(400)
    assert failed
    assert {(kind, has_failed) for kind, _, has_failed in failed} == {("ensure", True)}
    assert [has_failed for _, _, has_failed in world.reconciled].count(False) == 1
    world.reconciled.clear()

    async with world.managed(drift_period=60):
        await asyncio.sleep(600)
    assert world.reconciled == []
