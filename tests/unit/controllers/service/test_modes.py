"""The annotation pileus.dev/manage: how much of a load balancer is managed."""

import asyncio

import pytest

from pileus_lab.local.model.balancers import AddMembers, CreateBalancer, DeleteBalancer
from pileus_lab.local.model.records import Balancer, Member, Port
from tests.unit.controllers.service.world import FINALIZER, World

MANAGE, ADOPT = "pileus.dev/manage", "pileus.dev/adopt"


async def made_by_hand(world: World) -> Balancer:
    """As Terraform would make one."""
    return await world.cloud.operate(
        CreateBalancer(
            name="by-hand",
            ports=(Port(port=8443, node_port=31000),),
            members=(Member(name="x", machine="x"),),
        )
    )


async def furnished(world: World, mode: str) -> Balancer:
    for name in "ab":
        await world.add_node(name)
    balancer = await made_by_hand(world)
    world.trusted = ("default",)
    await world.add(annotations={MANAGE: mode, ADOPT: balancer.id})
    return balancer


async def test_members_mode_changes_members_and_nothing_else():
    world = World()
    before = await furnished(world, "members")
    async with world.managed(drift_period=60):
        await asyncio.sleep(10)

        (after,) = world.cloud.state.balancers.values()
        assert world.members("by-hand") == ["a", "b"]
        assert (after.ports, after.traffic, after.name) == (before.ports, before.traffic, "by-hand")
        assert [each["ip"] for each in await world.ingress()] == list(before.addresses)
        assert (await world.service())["metadata"]["finalizers"] == [FINALIZER]
    world.front.changes.clear()
    world.wire.writes.clear()
    async with world.managed(drift_period=60):
        await asyncio.sleep(300)
        assert (world.front.changes, world.wire.writes) == ([], [])


async def test_members_mode_takes_our_members_away_at_the_end_and_leaves_the_rest():
    world = World()
    before = await furnished(world, "members")
    async with world.managed():
        await asyncio.sleep(10)
        await world.delete()
        await asyncio.sleep(10)

        assert await world.services() == {}
        assert world.members("by-hand") == []
        assert world.balancers["by-hand"].ports == before.ports
        assert world.events.reasons("web")[-1] == "LoadBalancerKept"


async def test_observe_mode_publishes_the_addresses_and_touches_nothing():
    world = World()
    before = await furnished(world, "observe")
    async with world.managed(drift_period=60):
        await asyncio.sleep(10)
        assert [each["ip"] for each in await world.ingress()] == list(before.addresses)
        assert "finalizers" not in (await world.service())["metadata"]
        assert (await world.condition())[0] == "True"

        await world.delete()
        await asyncio.sleep(10)

        assert await world.services() == {}
        assert list(world.cloud.state.balancers.values()) == [before]
        assert world.front.changes == []


async def test_observe_mode_without_a_balancer_says_so_and_makes_none():
    world = World()
    await world.add_node("a")
    await world.add(annotations={MANAGE: "observe"})
    async with world.managed():
        await asyncio.sleep(10)

        assert world.balancers == {}
        assert (await world.condition())[:2] == ("False", "LoadBalancerNotFound")


async def test_none_mode_does_nothing_at_all():
    world = World()
    await furnished(world, "none")
    async with world.managed():
        await asyncio.sleep(10)
        await world.delete()
        await asyncio.sleep(10)

        assert await world.services() == {}
        assert (world.front.changes, world.wire.writes, world.events.told) == ([], [], [])


@pytest.mark.parametrize("mode", ["observe", "none"])
async def test_who_leaves_full_mode_keeps_the_balancer_and_loses_the_finalizer(mode: str):
    world = World()
    for name in "ab":
        await world.add_node(name)
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        address = await world.ingress()
        await world.change(metadata={"annotations": {MANAGE: mode}})
        await asyncio.sleep(10)
        assert "finalizers" not in (await world.service())["metadata"]
        assert await world.ingress() == address

        await world.add_node("c")
        await asyncio.sleep(10)
        assert world.members() == ["a", "b"]
        await world.delete()
        await asyncio.sleep(60)

        assert await world.services() == {}
        assert world.members() == ["a", "b"]


async def test_who_comes_back_to_full_mode_is_served_again():
    world = World()
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        await world.change(metadata={"annotations": {MANAGE: "none"}})
        await asyncio.sleep(10)
        await world.add_node("b")
        await world.change(metadata={"annotations": {MANAGE: None}})
        await asyncio.sleep(10)

        assert world.members() == ["a", "b"]
        assert (await world.service())["metadata"]["finalizers"] == [FINALIZER]
        assert (await world.condition())[0] == "True"


async def test_a_mode_that_is_not_understood_changes_nothing_and_says_what_was_meant():
    world = World()
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        (before,) = world.cloud.state.balancers.values()
        await world.change(metadata={"annotations": {MANAGE: "membres"}})
        await world.add_node("b")
        await world.delete()
        await asyncio.sleep(60)

        assert list(world.cloud.state.balancers.values()) == [before]
        assert (await world.condition())[:2] == ("False", "Misconfigured")
        assert 'did you mean "members"?' in (await world.condition())[2]
        assert "SyncLoadBalancerFailed" in world.events.reasons("web")

        await world.change(metadata={"annotations": {MANAGE: "full"}})
        await asyncio.sleep(10)
        assert (world.balancers, await world.services()) == ({}, {})


async def test_a_misspelt_annotation_of_ours_protects_and_is_reported_with_its_fix():
    world = World()
    await world.add_node("a")
    await world.add(annotations={"pileus.dev/mange": "none"})
    async with world.managed():
        await asyncio.sleep(60)

        assert (world.balancers, (await world.service())["metadata"].get("finalizers")) == (
            {},
            None,
        )
        status, reason, message = await world.condition()
        assert (status, reason) == ("False", "Misconfigured")
        assert (
            'unknown annotation "pileus.dev/mange" (did you mean "pileus.dev/manage"?)' in message
        )
        assert message.endswith(
            "Fix: kubectl annotate service web --namespace=default "
            "pileus.dev/mange- pileus.dev/manage=none --overwrite"
        )

        await world.change(metadata={"annotations": {"pileus.dev/mange": None}})
        await asyncio.sleep(10)
        assert len(world.balancers) == 1


async def test_full_mode_adopts_what_was_made_by_hand_and_makes_it_as_wanted():
    world = World()
    before = await furnished(world, "full")
    async with world.managed():
        await asyncio.sleep(10)

        (after,) = world.cloud.state.balancers.values()
        assert (after.id, after.addresses) == (before.id, before.addresses)
        assert [port.port for port in after.ports] == [80]
        assert sorted(member.name for member in after.members) == ["a", "b"]

        stranger = AddMembers(balancer=after.id, members=(Member(name="y", machine="y"),))
        await world.cloud.operate(stranger)
        await world.delete()
        await asyncio.sleep(10)
        assert world.balancers == {}


@pytest.mark.parametrize("mode", ["full", "members", "observe"])
async def test_without_permission_nothing_of_others_is_used_and_nothing_is_published(mode: str):
    world = World()
    await world.add_node("a")
    before = await made_by_hand(world)
    await world.add("thief", annotations={ADOPT: before.id, MANAGE: mode})
    async with world.managed(trusted_namespaces=("kube-system",)):
        await asyncio.sleep(60)

        status, reason, message = await world.condition("thief")
        assert (status, reason) == ("False", "Misconfigured")
        assert "add the namespace to --trusted-namespaces" in message
        told = [message, *(str(each) for each in world.events.told)]
        assert [each for each in told if before.id in each] == []
        assert await world.ingress("thief") == []

        await world.delete("thief")
        await asyncio.sleep(60)
        assert list(world.cloud.state.balancers.values()) == [before]
        assert await world.services() == {}


@pytest.mark.parametrize("mode", ["full", "members", "observe"])
async def test_trap_16_what_serves_another_service_is_never_adopted(mode: str):
    world = World()
    world.trusted = ("*",)
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        (before,) = world.cloud.state.balancers.values()

        named = {ADOPT: before.id, MANAGE: mode}
        await world.add("thief", annotations=named)
        await asyncio.sleep(60)
        assert list(world.cloud.state.balancers.values()) == [before]
        assert (await world.condition("thief"))[:2] == ("False", "Misconfigured")
        assert "default/web" in (await world.condition("thief"))[2]
        assert await world.ingress("thief") == []

        await world.delete("thief")
        await asyncio.sleep(60)
        assert list(world.cloud.state.balancers.values()) == [before]
        assert set(await world.services()) == {"web"}


async def test_a_service_goes_though_the_balancer_that_it_adopted_is_gone():
    world = World()
    before = await furnished(world, "members")
    async with world.managed():
        await asyncio.sleep(10)
        await world.cloud.operate(DeleteBalancer(balancer=before.id))
        await world.delete()
        await asyncio.sleep(60)

        assert (world.balancers, await world.services()) == ({}, {})
