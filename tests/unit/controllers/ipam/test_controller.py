"""The whole controller: bulk start, races, lost answers, exhaustion, nodes that come and go."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from pileus.cloud.interface import Cloud
from pileus.controllers.ipam.controller import IpamController
from pileus.controllers.ipam.descriptor import IPAM
from pileus.controllers.ipam.settings import IpamSettings, sizes
from pileus.kube.client import Listed
from pileus.kube.model.core_v1 import Node
from pileus.kube.model.meta import ObjectMeta
from pileus.objects.cloud_scope import only_scope
from pileus.objects.preview import EVERYTHING, Planned, Scope, Trouble
from pileus.objects.ranges import pod_ranges_of
from pileus.runtime.memory import LINGER, ForgetsDeleted, remembering
from tests.unit.controllers.cluster import Cluster, Veiled
from tests.unit.controllers.ipam.asked import asked_for

DUAL = asked_for("10.0.0.0/16,fd00::/48", service_range="10.0.0.0/24")
FOUR = asked_for("10.0.0.0/22")


async def no_cluster_id() -> str:
    raise AssertionError("pod ranges do not depend on it")


class Site(Cluster):
    def __init__(self) -> None:
        super().__init__()
        self.controller: IpamController
        self.view: Veiled

    async def ranges(self) -> dict[str, tuple[str, ...]]:
        return {each.metadata.name: pod_ranges_of(each) for each in await self.nodes()}

    def metric(self, name: str, cluster: str) -> float:
        full = f"node_ipam_controller_{name}"
        return self.metrics.registry.value(full, {"clusterCIDR": cluster}) or 0.0

    @asynccontextmanager
    async def running(self, asked: IpamSettings = DUAL) -> AsyncGenerator[None]:
        context, informer, self.view = self.context(
            IPAM, only_scope(Cloud(name="fake")), no_cluster_id
        )
        self.controller = IpamController(context, sizes(asked))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(informer.run()), group.create_task(self.controller.run())]
            yield
            for task in tasks:
                task.cancel()


async def test_nodes_get_ranges_of_both_families_in_one_write_and_then_peace():
    at = Site()
    await at.register("n1")
    await at.register("n2")

    async with at.running():
        await asyncio.sleep(5)
        assert await at.ranges() == {
            "n1": ("10.0.1.0/24", "fd00::/64"),
            "n2": ("10.0.2.0/24", "fd00:0:0:1::/64"),
        }
        await asyncio.sleep(3600)

    assert len(at.wire.writes()) == 2
    assert (await at.node("n1")).spec.pod_cidr == "10.0.1.0/24"  # type: ignore[union-attr]
    assert at.metric("cidrset_cidrs_allocations_total", "fd00::/48") == 2
    assert at.metric("cirdset_max_cidrs", "10.0.0.0/16") == 256
    assert at.metric("cidrset_usage_cidrs", "10.0.0.0/16") == 3 / 256
    assert at.metric("cidrset_allocation_tries_per_request_count", "fd00::/48") == 2
    assert at.metrics.registry.value("workqueue_adds_total", {"name": "cidrallocator_node"})


async def test_many_nodes_get_as_many_ranges_with_a_write_each():
    at = Site()
    for number in range(300):
        await at.register(f"n{number}")

    async with at.running(asked_for("10.0.0.0/14")):
        await asyncio.sleep(30)

    given = [each for mine in (await at.ranges()).values() for each in mine]
    assert len(set(given)) == len(given) == 300
    assert len(at.wire.writes()) == 300


async def test_two_hundred_nodes_are_worked_on_at_a_time():
    at = Site()
    for number in range(300):
        await at.register(f"n{number}")

    async def dawdle() -> None:
        at.wire.before_write = dawdle
        await asyncio.sleep(10)

    at.wire.before_write = dawdle
    async with at.running(asked_for("10.0.0.0/14")):
        await asyncio.sleep(5)

        waiting = at.metrics.registry.value("workqueue_depth", {"name": "cidrallocator_node"})
        assert waiting == 100


async def test_what_a_node_has_is_given_to_no_other_also_after_a_restart():
    at = Site()
    await at.register("old", "10.0.1.0/24")
    async with at.running(FOUR):
        await at.register("n1")
        await asyncio.sleep(1)
    async with at.running(FOUR):
        await at.register("n2")
        await at.register("n3")
        await asyncio.sleep(5)

    assert sorted((await at.ranges()).values()) == [(f"10.0.{n}.0/24",) for n in range(4)]


async def test_nothing_is_given_before_all_nodes_were_read_from_the_server_itself():
    at = Site()
    await at.register("hidden", "10.0.0.0/24")
    await at.register("n1")
    at.wire.refuse = "/api/v1/nodes"

    async with at.running(FOUR):
        await asyncio.sleep(30)
        assert at.wire.writes() == []
        at.wire.refuse = ""
        await asyncio.sleep(120)

    assert (await at.ranges())["n1"] == ("10.0.1.0/24",)


async def test_a_node_that_got_ranges_meanwhile_keeps_them_and_its_promise_is_free_again(caplog):
    at = Site()
    at.wire.before_write = lambda: at.assign("n1", "10.0.3.0/24")
    await at.register("n1")

    async with at.running(FOUR):
        await asyncio.sleep(5)
        await at.register("n2")
        await asyncio.sleep(5)

    assert (await at.ranges())["n1"] == ("10.0.3.0/24",)
    assert len(set((await at.ranges()).values())) == 2
    assert "Another controller assigns pod ranges" in caplog.text


async def test_an_answer_that_was_lost_makes_no_node_get_another_range_and_no_two_the_same():
    at = Site()
    at.wire.lose_answers = 3
    for number in range(3):
        await at.register(f"n{number}")

    async with at.running(FOUR):
        await asyncio.sleep(60)

    given = list((await at.ranges()).values())
    assert len(set(given)) == 3
    assert {reason for _, _, reason, _ in at.events.lines()} == {"CIDRAssignmentFailed"}


async def test_a_full_range_is_told_and_served_as_soon_as_one_is_given_back():
    at = Site()
    async with at.running(FOUR):
        for number in range(6):
            await at.register(f"n{number}")
        await asyncio.sleep(10)
        waiting = [name for name, mine in (await at.ranges()).items() if not mine]
        assert len(waiting) == 2
        assert set(at.events.lines()) == {
            (name, "Normal", "CIDRNotAvailable", f"Node {name} status is now: CIDRNotAvailable")
            for name in waiting
        }
        served = [name for name, mine in (await at.ranges()).items() if mine]
        await at.remove(*served[:2])
        await asyncio.sleep(5)

    assert all((await at.ranges()).values())


async def test_the_oldest_node_gets_a_free_range_first_also_after_a_restart_and_in_a_preview():
    at = Site()
    for name in ("n5", "n6", "n7", "n9", "n8", "n1"):
        await at.register(name)
        await asyncio.sleep(2)

    async with at.running(FOUR):
        await asyncio.sleep(5)
    assert [name for name, mine in (await at.ranges()).items() if not mine] == ["n1", "n8"]
    async with at.running(FOUR):
        await asyncio.sleep(5)
        at.wire.refuse = "/api/v1/nodes/n5"
        await at.remove("n5")
        await asyncio.sleep(1)
        planned = await at.controller.preview(EVERYTHING)
        at.wire.refuse = ""
        await asyncio.sleep(5)

    assert [one.about.name for one in planned if isinstance(one, Planned)] == ["n8"]
    assert [name for name, mine in (await at.ranges()).items() if not mine] == ["n1"]


async def test_defect_19_retries_with_one_family_full_leak_nothing_of_the_other():
    at = Site()
    asked = asked_for("10.0.0.0/21,fd00::/63")
    for number in range(4):
        await at.register(f"n{number}")

    async with at.running(asked):
        await asyncio.sleep(3600)
        assert at.metric("cidrset_usage_cidrs", "10.0.0.0/21") == 2 / 8
        served = [name for name, mine in (await at.ranges()).items() if mine]
        assert len(served) == 2
        await at.remove(*served)
        await asyncio.sleep(5)

    assert all((await at.ranges()).values())


@pytest.mark.parametrize("odd", ["192.168.0.0/24", "fd99::/64", "10.0.0.0/24"])
async def test_a_node_with_an_odd_range_is_told_and_ends_nothing(odd):
    at = Site()
    await at.register("first", "10.0.0.0/24")
    await at.register("odd", odd)
    await at.register("n1")

    async with at.running(FOUR):
        await asyncio.sleep(60)

    assert (await at.ranges())["n1"] == ("10.0.1.0/24",)
    assert [told[2] for told in at.events.lines()] == ["PodCIDRUnexpected"]


async def test_a_watch_that_loses_nodes_gives_nothing_back():
    at = Site()
    async with at.running(FOUR):
        for number in range(4):
            await at.register(f"n{number}")
        await asyncio.sleep(5)
        at.view.lose()
        await asyncio.sleep(300)
        at.view.is_blind = False
        await at.register("n5")
        await asyncio.sleep(60)

    assert (await at.ranges())["n5"] == ()
    assert ("n5", "CIDRNotAvailable") in [(told[0], told[2]) for told in at.events.lines()]


async def test_a_node_that_is_registered_anew_gets_a_range_anew():
    at = Site()
    async with at.running(FOUR):
        await at.register("n1")
        await asyncio.sleep(5)
        await at.remove("n1")
        await at.register("n1")
        await asyncio.sleep(5)
        assert at.metric("cidrset_usage_cidrs", "10.0.0.0/22") == 1 / 4

    assert (await at.ranges())["n1"]


async def test_a_node_that_comes_while_its_namesake_is_asked_for_keeps_its_range():
    at = Site()
    async with at.running(FOUR):
        await at.register("n1", "10.0.0.0/24")
        await asyncio.sleep(5)
        await at.remove("n1")
        at.wire.slow_reads = 10.0
        await asyncio.sleep(5)
        await at.register("n1", "10.0.2.0/24")
        await asyncio.sleep(30)

        assert at.metric("cidrset_usage_cidrs", "10.0.0.0/22") == 1 / 4


async def test_a_preview_says_who_would_get_what_and_does_nothing():
    at = Site()
    await at.register("odd", "192.168.0.0/24")
    for number in range(5):
        await at.register(f"n{number}")
    at.wire.refuse = "/api/v1/nodes"

    async with at.running(FOUR):
        everything = await at.controller.preview(EVERYTHING)
        (one,) = await at.controller.preview(Scope("Node", "", "n1"))

    assert at.wire.writes() == []
    assert isinstance(one, Planned)
    assert one.details == ("spec.podCIDRs: [] → [10.0.1.0/24]",)
    troubles = [each.reason for each in everything if isinstance(each, Trouble)]
    assert troubles == ["PodCIDRUnexpected", "CIDRNotAvailable"]


async def test_a_node_that_goes_before_the_write_is_no_failure_and_its_promise_is_free_again():
    at = Site()
    await at.register("n1")
    at.wire.before_write = lambda: at.remove("n1")

    async with at.running(FOUR):
        await asyncio.sleep(5)
        assert at.metric("cidrset_usage_cidrs", "10.0.0.0/22") == 0

    assert at.events.lines() == []


async def test_nothing_is_given_while_there_are_nodes_that_cannot_be_read():
    at = Site()
    await at.register("n1")
    odd = Node(metadata=ObjectMeta(name="odd", uid="x"))

    async with at.running(FOUR):
        nodes = at.controller._nodes
        whole = nodes.fresh
        nodes.fresh = lambda: answered(Listed((), "1", (odd,)))
        await asyncio.sleep(300)
        assert at.wire.writes() == []
        nodes.fresh = whole
        await asyncio.sleep(100)

    assert (await at.ranges())["n1"]


async def answered(listed: Listed[Node]) -> Listed[Node]:
    return listed


async def test_a_range_stays_promised_to_its_node_while_writes_fail():
    at = Site()
    await at.register("n1")
    at.wire.refuse = "/api/v1/nodes/n1"

    async with at.running(FOUR):
        await asyncio.sleep(60)
        assert at.metric("cidrset_usage_cidrs", "10.0.0.0/22") == 0.25
        assert at.metric("cidrset_cidrs_releases_total", "10.0.0.0/22") == 0
        await at.register("n2")
        await asyncio.sleep(60)
        at.wire.refuse = ""
        await asyncio.sleep(300)

    assert await at.ranges() == {"n1": ("10.0.0.0/24",), "n2": ("10.0.1.0/24",)}
    assert "CIDRAssignmentFailed" in {reason for _, _, reason, _ in at.events.lines()}


async def test_nothing_is_remembered_of_nodes_with_odd_ranges_once_they_are_deleted():
    at = Site()
    with remembering(at.metrics) as memories:
        async with at.running():
            at.view.subscribe(ForgetsDeleted())
            for number in range(20):
                await at.register(f"n{number}", "192.168.0.0/24")
            await asyncio.sleep(5)
            assert memories.sizes()["objects/notices"] == 20
            for number in range(20):
                await at.remove(f"n{number}")
            await asyncio.sleep(LINGER + 5)

            assert {name: size for name, size in memories.sizes().items() if size} == {}
