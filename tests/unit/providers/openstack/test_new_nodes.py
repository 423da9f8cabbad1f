"""Services that exist before their nodes are initialized, on the controller and the model."""

import asyncio
from typing import Any, cast

import pytest

from pileus.kube.model.core_v1 import NODES
from pileus.kube.patch import MergePatch
from pileus.providers.openstack.api import Client
from pileus.providers.openstack.balancers import OpenStackBalancers, abilities_of
from pileus.providers.openstack.config import LoadBalancer, OpenStackConfig
from tests.unit.controllers.service.world import World
from tests.unit.providers.openstack.balancer_site import Site

UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
NAMES = ("a", "b", "c")


async def initialize(world: World, name: str) -> None:
    address = {"type": "InternalIP", "address": f"10.0.0.{ord(name)}"}
    status = MergePatch({"status": {"addresses": [address]}})
    await world.user.patch(NODES, name, status, subresource="status")
    await world.change_node(name, spec={"taints": None, "providerID": f"local://{name}"})


@pytest.mark.parametrize(
    ("seconds", "writes"),
    [(1, []), (30, ["members", "members"])],
    ids=["moments after the Service", "long after the Service"],
)
async def test_nodes_that_are_initialized_after_the_service_cost_few_writes_of_members(
    seconds: float, writes: list[str]
) -> None:
    """A new load balancer waits for them and has them from its creation on.

    One that could not wait any longer gets the first node at once, and all others together.
    """
    site = Site(nodes=0)
    config = OpenStackConfig(load_balancer=LoadBalancer(subnet_id=site.subnet))
    world = World()
    world.abilities = abilities_of(config)
    provider = OpenStackBalancers(Client(site.api), config, clock=world.clock)
    world.plain = cast("Any", provider)
    for name in NAMES:
        await world.add_node(name, spec={"taints": [UNINITIALIZED], "providerID": None})
    await world.add()

    async with world.managed():
        await asyncio.sleep(seconds)
        for name in NAMES:
            await initialize(world, name)
            await asyncio.sleep(0.2)
        await asyncio.sleep(60)

    sent = [call.path for call in site.api.calls if call.writes and "lbaas" in call.path]
    assert sent.pop(0) == "/v2.0/lbaas/loadbalancers"
    assert [path.rpartition("/")[2] for path in sent] == writes
    assert len(site.api.records("members")) == len(NAMES)
