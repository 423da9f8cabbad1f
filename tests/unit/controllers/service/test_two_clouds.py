"""Two clouds in one process: each controller has its own names, and gauges count both."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

from pileus.cloud.errors import Rejected
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.controllers.service.annotations import Classes
from pileus.controllers.service.controller import ServiceController
from pileus.controllers.service.descriptor import SERVICE
from pileus.controllers.service.settings import ServiceSettings
from pileus.fence import Open
from pileus.kube.client import Client
from pileus.objects.cloud_scope import only_scope
from pileus.objects.descriptor import ControllerContext
from pileus.runtime.informers import Informers
from tests.unit.controllers.service.plain import PlainBalancers
from tests.unit.controllers.service.world import World, running


@asynccontextmanager
async def serving(
    world: World, informers: Informers, client: Client, name: str, balancers: PlainBalancers
) -> AsyncGenerator[ServiceController]:
    """The controller of one of several clouds."""
    async with stacked(
        Cloud(name=name, balancers=balancers),
        metrics=world.metrics,
        fence=Open(),
        equipment=Equipment(),
    ) as cloud:
        context = ControllerContext(
            names=SERVICE,
            scope=replace(only_scope(cloud), is_only=False),
            client=client,
            events=world.events,
            informers=informers,
            fence=Open(),
            metrics=world.metrics,
            clock=world.clock,
            random=Random(3),
            cluster_id=world._identify,
        )
        classes = Classes.of(name, default=name == "a")
        assert cloud.balancers is not None
        yield ServiceController(context, cloud.balancers, ServiceSettings(), classes)


def refuse(*_: object) -> None:
    raise Rejected("no")


async def test_two_clouds_serve_their_own_services_side_by_side():
    world, first, second = World(), PlainBalancers(), PlainBalancers()
    client = Client(world.wire, user_agent="manager", metrics=world.metrics)
    informers = Informers(client, Random(2), 0.0)
    await world.add_node("n")
    await world.add("one")
    await world.add("two", loadBalancerClass="pileus.dev/b")

    async with (
        serving(world, informers, client, "a", first) as a,
        serving(world, informers, client, "b", second) as b,
        running(informers.run(), a.run(), b.run()),
    ):
        await asyncio.sleep(10)
        assert (len(first.standing), len(second.standing)) == (1, 1)
        assert await world.ingress("one")
        assert await world.ingress("two")
        for name in ("service@a", "service@b", "node@a", "node@b", "orphan-sweep@b"):
            assert world.sample("workqueue_adds_total", name=name) > 0, name

        first.changing = second.changing = refuse
        await world.change("one", spec={"ports": [{"port": 81}]})
        await world.change("two", spec={"ports": [{"port": 81}]})
        await asyncio.sleep(2)
        assert world.sample("pileus_services_failing") == 2
