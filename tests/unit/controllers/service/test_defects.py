"""Known defects of the Go framework, each with a test that we do not have it."""

import asyncio
from itertools import pairwise

from pileus.cloud.balancer import Ingress, Owner
from pileus.cloud.errors import Throttled, Unavailable
from pileus.controllers.service.notes import DeletedServices
from pileus.kube.model.core_v1 import SERVICES, Service
from pileus.kube.model.meta import ObjectMeta
from pileus.kube.store import Deleted
from pileus_lab.local.model.account import AddFault
from pileus_lab.local.model.balancers import AddMembers, DeleteBalancer, RemovePort
from pileus_lab.local.model.records import FaultKind, Member
from tests.unit.controllers.service.plain import Seen
from tests.unit.controllers.service.world import CLUSTER, FINALIZER, World


async def furnished(world: World) -> None:
    for name in "abcd":
        await world.add_node(name)
    await world.add()


async def test_defect_10_a_status_that_was_cleared_is_restored_at_once():
    world = World()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        before = await world.ingress()
        assert before

        await world.change_status(loadBalancer={"ingress": None})
        await asyncio.sleep(2)

        assert await world.ingress() == before


async def test_defect_10_what_hands_from_outside_changed_is_brought_back():
    world = World()
    await furnished(world)
    async with world.managed(drift_period=600):
        await asyncio.sleep(10)
        balancer = world.balancers["default-web"]
        stranger = AddMembers(balancer=balancer.id, members=(Member(name="x", machine="x"),))
        await world.cloud.operate(stranger)
        await world.cloud.operate(RemovePort(balancer=balancer.id, port=80))

        await asyncio.sleep(1000)

        repaired = world.balancers["default-web"]
        assert (repaired.ports, world.members()) == (balancer.ports, ["a", "b", "c", "d"])
        assert world.sample("pileus_service_drift_repaired_total") == 1


async def test_defect_10_a_balancer_deleted_by_hand_is_made_again():
    world = World()
    await furnished(world)
    async with world.managed(drift_period=600):
        await asyncio.sleep(10)
        await world.cloud.operate(DeleteBalancer(balancer=world.balancers["default-web"].id))

        await asyncio.sleep(1000)

        assert world.members() == ["a", "b", "c", "d"]
        address = world.balancers["default-web"].addresses[0]
        assert [each["ip"] for each in await world.ingress()] == [address]


async def test_defect_11_a_provider_that_leaves_the_mode_to_us_costs_no_write_per_pass():
    world = World()
    cloud = world.plainly()
    await furnished(world)
    async with world.managed(drift_period=60):
        await asyncio.sleep(10)
        assert (await world.ingress())[0]["ipMode"] == "VIP"
        world.wire.writes.clear()

        await asyncio.sleep(600)

        assert len(cloud.looks) > 5
        assert world.wire.writes == []


async def test_defect_11_addresses_are_compared_by_value_and_in_any_order():
    world = World()
    cloud = world.plainly()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        (owner, seen), *_ = cloud.standing.items()
        cloud.standing[owner] = Seen(
            owner, seen.spec, ingress=(Ingress(ip="2001:DB8::0:1"), Ingress(hostname="LB.example."))
        )
        uid = (await world.service())["metadata"]["uid"]
        assert owner == Owner(CLUSTER, uid)
        listed = [{"hostname": "lb.example"}, {"ip": "2001:db8::1"}]
        await world.change_status(loadBalancer={"ingress": listed})
        await asyncio.sleep(5)

        assert [each.get("ip") for each in await world.ingress()] == [None, "2001:db8::1"]


async def test_defect_12_a_service_deleted_without_its_finalizer_is_cleaned_up():
    world = World()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        await world.change(metadata={"finalizers": None})
        await world.delete()
        await asyncio.sleep(30)

        assert await world.services() == {}
        assert world.balancers == {}
        world.front.changes.clear()

        await world.add_node("e")
        await asyncio.sleep(30)

        assert world.front.changes == []


async def test_services_that_vanish_one_after_the_other_count_together():
    """Else a script that deletes Services by force takes their load balancers one by one."""
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    for number in range(10):
        await world.add(f"s{number}")
    async with world.managed():
        await asyncio.sleep(10)
        for number in range(10):
            await world.change(f"s{number}", metadata={"finalizers": None})
            await world.delete(f"s{number}")
            await asyncio.sleep(30)

        assert await world.services() == {}
        assert len(cloud.standing) == 5
        assert world.sample("pileus_vanished_services_kept_total") == 5
        assert "ManyServicesVanished" in world.events.reasons("kube-system")


async def test_services_that_vanish_in_different_windows_do_not_count_together():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    for number in range(10):
        await world.add(f"s{number}")
    async with world.managed():
        await asyncio.sleep(10)
        for number in range(10):
            await world.change(f"s{number}", metadata={"finalizers": None})
            await world.delete(f"s{number}")
            await asyncio.sleep(200)

        assert len(cloud.standing) == 0


async def test_defect_12_of_many_that_vanish_at_once_nothing_is_concluded():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    for number in range(10):
        await world.add(f"s{number}")
    async with world.managed():
        await asyncio.sleep(10)
        for number in range(10):
            await world.change(f"s{number}", metadata={"finalizers": None})
            await world.delete(f"s{number}")
        await asyncio.sleep(1300)

        assert await world.services() == {}
        assert len(cloud.standing) == 10
        assert world.sample("pileus_orphaned_load_balancers") == 10
        reasons = world.events.reasons("kube-system")
        assert reasons == ["ManyServicesVanished", "OrphanedLoadBalancers"]


async def test_defect_13_one_service_is_worked_on_by_one_pass_node_changes_and_deletion_included():
    world = World()
    cloud = world.plainly()
    cloud.takes = 3.0
    cloud.changing = lambda owner, change: concurrent.append(len(cloud.at_work))
    concurrent: list[int] = []
    await furnished(world)
    async with world.managed():
        for name in "efghij":
            await asyncio.sleep(1)
            await world.add_node(name)
            await world.change(metadata={"annotations": {"touched": name}})
        await world.delete()
        await asyncio.sleep(60)

        assert cloud.standing == {}
        assert set(concurrent) == {1}
        assert cloud.changed[-1][1] == "-"


async def test_defect_14_the_finalizer_of_another_class_is_never_stripped():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    async with world.managed():
        await world.add(loadBalancerClass="example.com/other", finalizers=[FINALIZER])
        await asyncio.sleep(5)
        await world.delete()
        await asyncio.sleep(600)

        service = await world.service()
        assert service["metadata"]["finalizers"] == [FINALIZER]
        assert (cloud.changed, world.wire.writes) == ([], [])


async def test_defect_15_a_wish_to_wait_is_kept_at_deletion_too():
    world = World()
    cloud = world.plainly()
    await furnished(world)
    tries: list[float] = []

    def throttle(owner: object, change: object) -> None:
        tries.append(asyncio.get_running_loop().time())
        raise Throttled("slowly", retry_after=40)

    async with world.managed():
        await asyncio.sleep(10)
        cloud.changing = throttle
        await world.delete()
        await asyncio.sleep(130)

    gaps = [after - before for before, after in pairwise(tries)]
    assert len(tries) == 4
    assert all(40 <= gap <= 45 for gap in gaps)


async def test_defect_15_nothing_cuts_the_back_off_of_a_failing_deletion_short():
    world = World()
    cloud = world.plainly()
    await furnished(world)
    tries: list[float] = []

    def fail(owner: object, change: object) -> None:
        tries.append(asyncio.get_running_loop().time())
        raise Unavailable("the cloud is on holiday")

    async with world.managed(drift_period=30):
        await asyncio.sleep(10)
        cloud.changing = fail
        await world.delete()
        for number in range(30):
            await asyncio.sleep(10)
            await world.add_node(f"n{number}")

    gaps = [after - before for before, after in pairwise(tries)]
    assert len(tries) in {6, 7}
    assert all(gap >= 5 * 2**n for n, gap in enumerate(gaps))


async def test_defect_15_a_throttled_cloud_is_served_again_when_it_said():
    world = World()
    await furnished(world)
    fault = AddFault(kind=FaultKind.THROTTLE, where="balancers.create", seconds=33, times=1)
    await world.cloud.operate(fault)

    async with world.managed():
        await asyncio.sleep(32)
        assert world.balancers == {}
        await asyncio.sleep(10)
        assert world.members() == ["a", "b", "c", "d"]


async def test_balancers_are_not_compared_in_full_where_that_is_turned_off():
    world = World()
    await furnished(world)
    async with world.managed(drift_period=0):
        await asyncio.sleep(10)
        (balancer,) = world.balancers.values()
        await world.cloud.operate(DeleteBalancer(balancer=balancer.id))
        await asyncio.sleep(7200)

        assert world.balancers == {}

        await world.change(spec={"ports": [{"port": 81}]})
        await asyncio.sleep(30)

        assert len(world.balancers) == 1


async def test_one_empty_list_does_not_end_the_clean_up_of_a_vanished_service():
    """Else its balancer is orphaned, although the manager saw the Service vanish."""
    world = World()
    cloud = world.plainly()
    await furnished(world)
    async with world.managed():
        await asyncio.sleep(10)
        await world.change(metadata={"finalizers": None})
        await world.delete()
        there = dict(cloud.standing)
        assert len(there) == 1
        cloud.standing.clear()
        await asyncio.sleep(15)
        cloud.standing.update(there)
        await asyncio.sleep(60)

        assert cloud.standing == {}


async def test_services_that_only_a_watch_lacks_do_not_stop_the_clean_up_of_one_that_vanished():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    for number in range(10):
        await world.add(f"s{number}")
    async with world.managed():
        await asyncio.sleep(10)
        await world.change("s0", metadata={"finalizers": None})
        await world.delete("s0")
        await asyncio.sleep(5)
        informer = world.informers.of(SERVICES)
        for each in informer.store.list():
            informer._commit(Deleted(each))
        world.wire.reads.clear()
        await asyncio.sleep(15)

        assert len(cloud.standing) == 9
        assert len(world.wire.reads) <= 9, "a list in 10 s for all of them, and not one for each"
        assert world.sample("pileus_vanished_services_kept_total") == 0
        assert "ManyServicesVanished" not in world.events.reasons("kube-system")


def test_a_service_that_exists_after_all_does_not_count_as_vanished():
    deleted = DeletedServices()
    for number in range(6):
        deleted.add(Service(metadata=ObjectMeta(uid=str(number), name=f"s{number}")), 0.0)
        deleted.returned(str(number))
    deleted.add(Service(metadata=ObjectMeta(uid="gone", name="gone")), 1.0)

    assert deleted.too_many(6, 20.0) == 0
    assert "gone" in deleted


def test_vanished_services_that_exist_are_neither_counted_nor_forgotten():
    deleted = DeletedServices()
    names = [f"s{number}" for number in range(12)]
    for name in names:
        deleted.add(Service(metadata=ObjectMeta(uid=name, name=name)), 0.0)
    assert deleted.too_many(0, 20.0) == 12
    assert deleted.too_many(8, 20.0, existing=set(names[4:])) == 0
    assert deleted.too_many(4, 20.0, existing=set(names[8:])) == 8

    deleted.keep_as_orphans(20.0, existing=set(names[8:]))
    assert [name for name in names if name in deleted] == names[8:]
    assert deleted.too_many(4, 30.0) == 4, "nothing is trusted for a while"
