"""Services of all shapes: families, host names, and what the cluster must show first."""

import asyncio
from ipaddress import IPv4Network, IPv6Network

import pytest

from pileus.cloud.balancer import Ingress, Owner, Wish
from pileus.cloud.errors import Unsupported
from pileus.kube.errors import Unreachable
from pileus.kube.transport import Request
from pileus_lab.apiserver.allocation import Ranges
from pileus_lab.apiserver.state import Options
from tests.unit.controllers.service.plain import Change, PlainBalancers, Seen
from tests.unit.controllers.service.world import CLUSTER, World

NETWORKS = (IPv4Network("10.0.0.0/16"), IPv6Network("fd00::/108"))
DUAL_STACK = Options(ranges=Ranges(networks=NETWORKS))


async def test_a_service_of_two_families_gets_two_addresses():
    world = World(options=DUAL_STACK)
    await world.add_node("a")
    async with world.managed():
        await world.add(ipFamilyPolicy="RequireDualStack")
        await asyncio.sleep(10)

        assert len((await world.service())["spec"]["ipFamilies"]) == 2
        assert [each["ip"].count(":") > 0 for each in await world.ingress()] == [False, True]


class OneFamily(PlainBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        if wish.spec is not None and len(wish.spec.families) > 1:
            raise Unsupported("this cloud has one family for each balancer")
        return super().changes(wish, seen)


@pytest.mark.parametrize(
    ("policy", "state"), [("PreferDualStack", "True"), ("RequireDualStack", "False")]
)
async def test_who_only_prefers_two_families_gets_one_where_the_cloud_has_no_more(
    policy: str, state: str
):
    world = World(options=DUAL_STACK)
    world.plain = OneFamily()
    await world.add_node("a")
    async with world.managed(drift_period=60):
        await world.add(ipFamilyPolicy=policy)
        await asyncio.sleep(10)

        assert (await world.condition())[0] == state
        assert len(await world.ingress()) == (1 if state == "True" else 0)
        changed = len(world.plain.changed)
        await asyncio.sleep(200)
        assert len(world.plain.changed) == changed


async def test_an_address_that_is_a_host_name_has_no_mode():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    uid = (await world.add())["metadata"]["uid"]
    owner = Owner(CLUSTER, uid)
    cloud.standing[owner] = Seen(owner, None, ingress=(Ingress(hostname="lb.example"),))
    async with world.managed():
        await asyncio.sleep(10)

        assert await world.ingress() == [{"hostname": "lb.example"}]


@pytest.mark.parametrize("kind", ["nodes", "services"])
async def test_nothing_is_done_before_nodes_and_services_are_all_known(kind: str):
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    await world.add()

    def blind(request: Request) -> None:
        if request.path == f"/api/v1/{kind}":
            raise Unreachable(request.path, "in-process", "connection refused")

    world.wire.before = blind
    async with world.managed():
        await asyncio.sleep(300)
        assert (cloud.looks, cloud.changed, world.wire.writes) == ([], [], [])

        world.wire.before = lambda request: None
        await asyncio.sleep(60)
        assert await world.ingress()


async def test_deep_looks_are_spread_over_the_period_and_still_travel_together():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    for number in range(40):
        await world.add(f"s{number}")
    async with world.managed(drift_period=600):
        await asyncio.sleep(60)
        cloud.looks.clear()
        await asyncio.sleep(1200)

        deep = [number for number, is_deep in cloud.looks if is_deep]
        assert 50 <= sum(deep) <= 110
        assert 8 <= len(deep) <= 25
        assert max(deep) < 30


async def test_a_new_service_goes_before_those_that_are_only_looked_at_again():
    world = World()
    cloud = world.plainly()
    cloud.takes = 1.0
    await world.add_node("a")
    for number in range(20):
        await world.add(f"s{number}")
    async with world.managed():
        await asyncio.sleep(60)

    async with world.managed(workers=2):
        await asyncio.sleep(1)
        await world.add("new")
        await asyncio.sleep(6)

        assert await world.ingress("new")
        assert sum(number for number, _ in cloud.looks) < 20 + 20
