"""Known problems of other cloud controller managers, each with a test."""

import asyncio

import pytest

from pileus.fence import Fenced
from pileus.kube.errors import Unreachable
from pileus.kube.transport import Request
from pileus_lab.local.model.account import AddFault
from pileus_lab.local.model.balancers import DeleteBalancer
from pileus_lab.local.model.records import FaultKind
from pileus_lab.local.model.state import Settings
from tests.unit.controllers.service.world import FINALIZER, World


async def furnished(world: World, nodes: str = "abcd") -> None:
    for name in nodes:
        await world.add_node(name)
    await world.add()


@pytest.mark.parametrize("kind", [FaultKind.PARTIAL, FaultKind.ERROR])
async def test_trap_1_what_the_cloud_does_not_show_is_neither_made_again_nor_let_go(
    kind: FaultKind,
):
    world = World()
    await furnished(world)
    async with world.managed(drift_period=60):
        await asyncio.sleep(10)
        fault = AddFault(kind=kind, where="balancers.list*", share=1.0, error="Unauthorized")
        await world.cloud.operate(fault)
        world.front.changes.clear()
        await asyncio.sleep(200)
        await world.delete()
        await asyncio.sleep(200)

        assert world.front.changes == []
        assert (await world.service())["metadata"]["finalizers"] == [FINALIZER]


async def test_trap_3_a_balancer_of_the_same_name_in_another_cluster_is_not_ours():
    world, theirs = World(), World()
    theirs.front = world.front
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
    (before,) = world.cloud.state.balancers.values()

    await furnished(theirs, "xy")
    theirs.cluster = "another"
    async with theirs.managed():
        await asyncio.sleep(10)
        await theirs.delete()
        await asyncio.sleep(10)
        assert await theirs.services() == {}

    assert list(world.cloud.state.balancers.values()) == [before]


async def test_trap_4_a_deletion_goes_on_when_the_balancer_is_gone_already():
    world = World()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        await world.cloud.operate(DeleteBalancer(balancer=world.balancers["default-web"].id))
        await world.delete()
        await asyncio.sleep(40)

        assert await world.services() == {}


async def test_trap_4_a_deletion_whose_answer_was_lost_is_finished():
    world = World()
    await furnished(world)
    await world.cloud.operate(
        AddFault(kind=FaultKind.LOST, where="balancers.delete", error="Unavailable", times=1)
    )
    async with world.managed():
        await asyncio.sleep(10)
        await world.delete()
        await asyncio.sleep(50)

        assert await world.services() == {}
        assert world.balancers == {}


@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort"])
async def test_trap_5_a_change_of_type_cleans_up(kind: str):
    world = World()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        await world.change(spec={"type": kind})
        await asyncio.sleep(10)

        service = await world.service()
        assert world.balancers == {}
        assert "finalizers" not in service["metadata"]
        assert await world.condition() == ("", "", "")

        await world.change(spec={"type": "LoadBalancer"})
        await asyncio.sleep(10)

        assert world.members() == ["a", "b", "c", "d"]
        assert (await world.condition())[0] == "True"


async def test_trap_5_a_change_of_type_while_nobody_looked_cleans_up():
    world = World()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
    await world.change(spec={"type": "ClusterIP"}, metadata={"finalizers": None})

    async with world.managed():
        await asyncio.sleep(10)

        assert world.balancers == {}


async def test_trap_5_a_service_that_goes_to_another_class_leaves_ours():
    world = World()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        await world.change(spec={"type": "ClusterIP"})
        other = {"type": "LoadBalancer", "loadBalancerClass": "example.com/other"}
        await world.change(spec=other)
        await asyncio.sleep(10)

        service = await world.service()
        assert world.balancers == {}
        assert "finalizers" not in service["metadata"]


async def test_trap_5_a_service_of_another_class_is_released_though_the_first_try_fails():
    """Found by simulation: that it was ours was forgotten with the write that failed."""
    world = World()
    await furnished(world)
    refused: list[str] = []

    def refuse_once(request: Request) -> None:
        if request.method == "PATCH" and b"deleteFromPrimitiveList" in (request.body or b""):
            refused.append(request.path)
            if len(refused) == 1:
                raise Unreachable(request.path, "test", "the connection was lost")

    async with world.managed():
        await asyncio.sleep(10)
        world.wire.before = refuse_once
        await world.change(spec={"type": "ClusterIP"})
        other = {"type": "LoadBalancer", "loadBalancerClass": "example.com/other"}
        await world.change(spec=other)
        await asyncio.sleep(60)

        service = await world.service()
        assert len(refused) > 1
        assert "finalizers" not in service["metadata"]


async def test_trap_5_a_flag_that_was_changed_deletes_nothing():
    world = World()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
    world.wire.writes.clear()
    world.front.changes.clear()

    async with world.managed(classes=world.classes(default=False)):
        await asyncio.sleep(2000)

        assert (world.front.changes, world.wire.written()) == ([], [])
        assert world.sample("pileus_orphaned_load_balancers") == 1


async def test_trap_5_a_service_of_the_same_name_and_another_uid_gets_its_own_balancer():
    world = World()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        (first,) = world.cloud.state.balancers
        await world.change(metadata={"finalizers": None})
        await world.delete()
        await world.add()
        await asyncio.sleep(5)
        assert (await world.condition())[1] == "WaitsForFormer"
        assert list(world.cloud.state.balancers) == [first]
        await asyncio.sleep(30)

        (second,) = world.cloud.state.balancers
        uid = (await world.service())["metadata"]["uid"]
        assert second != first
        assert world.cloud.state.balancers[second].mark.owner == uid


async def test_trap_8_what_is_spelled_differently_is_equal():
    world = World()
    await world.add_node("a")
    async with world.managed(drift_period=60):
        await world.add(
            loadBalancerSourceRanges=["192.0.2.7/24", "198.51.100.0/24"],
            sessionAffinity="ClientIP",
        )
        await asyncio.sleep(10)
        world.front.changes.clear()
        world.wire.writes.clear()

        ranges = ["198.51.100.0/24", "192.0.2.0/24"]
        await world.change(spec={"loadBalancerSourceRanges": ranges})
        await world.change(metadata={"annotations": {"unrelated": "yes"}})
        await asyncio.sleep(300)

        assert (world.front.changes, world.wire.writes) == ([], [])


class Lapsed:
    """The fence of a process whose lease is too old."""

    def __init__(self) -> None:
        self.is_open = True

    def check(self) -> None:
        if not self.is_open:
            raise Fenced("not leader")


async def test_trap_10_who_is_not_leader_writes_nothing():
    world = World()
    cloud = world.plainly()
    fence = Lapsed()
    world.fence = fence
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        fence.is_open = False
        written, changed = len(world.wire.writes), len(cloud.changed)
        await world.add("late")
        await world.delete()
        await world.add_node("e")
        await asyncio.sleep(300)

        assert len(world.wire.writes) == written
        assert len(cloud.changed) == changed

        fence.is_open = True
        await asyncio.sleep(10)
        assert await world.ingress("late")


async def test_trap_11_a_port_removed_before_the_deletion_is_gone_afterwards():
    world = World()
    await world.add_node("a")
    async with world.managed():
        await world.add(ports=[{"name": "a", "port": 80}, {"name": "b", "port": 443}])
        await asyncio.sleep(10)
        await world.change(spec={"ports": [{"name": "a", "port": 80}]})
        await world.delete()
        await asyncio.sleep(10)

        assert (world.balancers, await world.services()) == ({}, {})


async def test_trap_12_a_busy_balancer_is_waited_for_without_holding_a_worker():
    world = World(settings=Settings(settle_seconds=100))
    await world.add_node("a")
    async with world.managed(workers=1):
        for number in range(5):
            await world.add(f"s{number}")
        await asyncio.sleep(30)
        assert len(world.balancers) == 5
        assert world.sample("pileus_services_pending") == 5
        assert (await world.condition("s1"))[:2] == ("False", "Pending")
        assert world.sample("workqueue_longest_running_processor_seconds", name="service") == 0
        looks = len(world.front.looks)
        await asyncio.sleep(60)
        assert len(world.front.looks) - looks <= 60 / 15 * 5 + 5

        await asyncio.sleep(60)
        for number in range(5):
            assert await world.ingress(f"s{number}")


async def test_trap_12_several_changes_of_a_slow_balancer_follow_one_another():
    world = World(settings=Settings(settle_seconds=5))
    await world.add_node("a")
    async with world.managed():
        await world.add(ports=[{"name": f"p{n}", "port": 80 + n} for n in range(4)])
        await asyncio.sleep(30)
        await world.change(spec={"ports": [{"name": f"q{n}", "port": 90 + n} for n in range(4)]})
        await asyncio.sleep(120)

        assert [port.port for port in world.balancers["default-web"].ports] == [90, 91, 92, 93]
        assert "SyncLoadBalancerFailed" not in world.events.reasons("web")


async def test_trap_13_affinity_ranges_and_health_checks_are_updated_not_only_created():
    world = World()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        await world.change(
            spec={
                "sessionAffinity": "ClientIP",
                "externalTrafficPolicy": "Local",
                "loadBalancerSourceRanges": ["192.0.2.0/24"],
            }
        )
        await asyncio.sleep(10)

        traffic = world.balancers["default-web"].traffic
        spec = (await world.service())["spec"]
        assert traffic.sticky_seconds == 10800
        assert traffic.sources == ("192.0.2.0/24",)
        assert traffic.probe is not None
        assert traffic.probe.node_port == spec["healthCheckNodePort"]


async def test_trap_9_a_change_that_fails_half_way_deletes_nothing_that_existed():
    world = World()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        before = world.balancers["default-web"]
        fault = AddFault(kind=FaultKind.ERROR, where="balancers.put_port", error="QuotaExceeded")
        await world.cloud.operate(fault)
        ports = [{"name": "a", "port": 80}, {"name": "b", "port": 443}]
        await world.change(spec={"ports": ports})
        await asyncio.sleep(200)

        after = world.balancers["default-web"]
        assert (after.id, after.addresses, after.members) == (
            before.id,
            before.addresses,
            before.members,
        )
        assert "balancers.delete" not in world.front.changes


async def test_trap_16_a_restored_service_adopts_its_balancer_by_the_users_word():
    world = World()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
    (before,) = world.cloud.state.balancers.values()
    await world.change(metadata={"finalizers": None})
    await world.delete()

    await world.add(annotations={"pileus.dev/adopt": before.id})
    async with world.managed(trusted_namespaces=("default",)):
        await asyncio.sleep(10)

        (after,) = world.cloud.state.balancers.values()
        uid = (await world.service())["metadata"]["uid"]
        assert (after.id, after.addresses) == (before.id, before.addresses)
        assert after.mark.owner == uid != before.mark.owner
        assert [each["ip"] for each in await world.ingress()] == list(before.addresses)


async def test_trap_16_what_belongs_to_another_cluster_is_never_adopted():
    world, theirs = World(), World()
    theirs.front = world.front
    theirs.cluster = "another"
    await furnished(theirs)
    async with theirs.managed():
        await asyncio.sleep(10)
    (before,) = world.cloud.state.balancers.values()

    await world.add_node("a")
    await world.add(annotations={"pileus.dev/adopt": before.id})
    async with world.managed(trusted_namespaces=("default",)):
        await asyncio.sleep(60)
        assert list(world.cloud.state.balancers.values()) == [before]
        assert (await world.condition())[:2] == ("False", "Misconfigured")
        assert "another" in (await world.condition())[2]

        await world.delete()
        await asyncio.sleep(10)
        assert await world.services() == {}
        assert list(world.cloud.state.balancers.values()) == [before]
