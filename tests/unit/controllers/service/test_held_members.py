"""Many members are removed only after a second check of the nodes."""

import asyncio

from pileus.kube.model.core_v1 import NODES
from tests.unit.controllers.service.world import World


async def furnished(world: World, nodes: str = "abcd") -> None:
    for name in nodes:
        await world.add_node(name)
    await world.add()


async def test_trap_7_members_are_not_halved_by_one_view_of_the_nodes():
    world = World()
    await furnished(world, "abcdefgh")
    async with world.managed():
        await asyncio.sleep(10)
        for name in "abcde":
            await world.remove_node(name)
        await asyncio.sleep(4)
        assert len(world.members()) == 8
        assert world.sample("pileus_services_held") == 1
        assert "LoadBalancerMembersHeld" in world.events.reasons("web")

        await asyncio.sleep(10)
        assert world.members() == ["f", "g", "h"]
        assert world.sample("pileus_services_held") == 0


async def test_trap_7_a_view_that_is_wrong_takes_nobody_away():
    world = World()
    await furnished(world, "abcdefgh")
    async with world.managed() as controller:
        await asyncio.sleep(10)
        for name in "abcdefgh":
            node = world.informers.of(NODES).store.list()
            (gone,) = [each for each in node if each.metadata.name == name]
            controller._membership.deleted(gone)
        await asyncio.sleep(300)

        assert world.members() == list("abcdefgh")


async def test_trap_7_an_empty_cluster_empties_its_balancers_after_the_second_look():
    world = World()
    await furnished(world, "ab")
    async with world.managed():
        await asyncio.sleep(10)
        await world.remove_node("a")
        await world.remove_node("b")
        await asyncio.sleep(20)

        assert world.members() == []
        assert world.events.reasons("web")[-1] == "UnAvailableLoadBalancer"
        assert (await world.condition())[:2] == ("False", "NoMembers")

        await world.add_node("c")
        await asyncio.sleep(10)

        assert world.members() == ["c"]
        assert (await world.condition())[0] == "True"
