"""A load balancer is created, changed and deleted with its Service."""

import asyncio

from tests.unit.controllers.service.world import FINALIZER, World


async def test_a_service_gets_a_balancer_an_address_and_a_condition():
    world = World()
    await world.add_node("a")
    async with world.managed():
        await world.add()
        await asyncio.sleep(5)

        service = await world.service()
        assert world.members() == ["a"]
        assert service["metadata"]["finalizers"] == [FINALIZER]
        assert await world.ingress() == [
            {"ip": world.balancers["default-web"].addresses[0], "ipMode": "Proxy"}
        ]
        assert (await world.condition())[:2] == ("True", "LoadBalancerReady")
        assert world.events.reasons("web") == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]
        assert len(world.wire.written()) == 2


async def test_a_deleted_service_leaves_nothing_behind():
    world = World()
    await world.add_node("a")
    async with world.managed():
        await world.add()
        await asyncio.sleep(5)
        await world.delete()
        await asyncio.sleep(5)

        assert await world.services() == {}
        assert world.balancers == {}
        assert world.events.reasons("web")[2:] == ["DeletingLoadBalancer", "DeletedLoadBalancer"]
