"""The whole controller: rounds, retries, what the cloud and the API server are asked."""

import asyncio
from dataclasses import replace

import pytest

from pileus.cloud.balancer import Effect
from pileus.cloud.errors import QuotaExceeded
from pileus.kube.model.core_v1 import NODES
from pileus.kube.patch import StrategicPatch
from pileus.objects.nodes import UNINITIALIZED
from pileus.objects.preview import EVERYTHING, Place, Planned, Scope, Trouble
from pileus.settings.feature_gates import WATCH_BASED_ROUTES, Gates
from pileus.testing.virtual_time import loop_time
from pileus_lab.simulation.managers import SkewedClock
from tests.unit.controllers.route.objects import RULES, route
from tests.unit.controllers.route.site import SETTINGS, FakeRoutes, Site

WITHOUT_WATCH = Gates(asked={WATCH_BASED_ROUTES.name: False})
PERIODIC = replace(SETTINGS, gates=WITHOUT_WATCH, given_period=10.0)


async def test_a_node_gets_its_routes_its_condition_and_then_peace():
    at = Site()
    await at.register("n1", "10.1.0.0/24", "fd00:1::/64")

    async with at.running():
        await asyncio.sleep(5)
        assert at.routes.places == {"10.1.0.0/24": "n1", "fd00:1::/64": "n1"}
        assert await at.network("n1") == ("False", "RouteCreated")
        writes = len(at.wire.writes())
        await asyncio.sleep(3600)

    assert writes == 1, "the condition, once"
    assert len(at.wire.writes()) == writes
    assert at.routes.calls.count(("create", 2)) == 1
    assert at.syncs("changed") == 1
    assert at.syncs("noop", "periodic") == pytest.approx(11, abs=1)
    assert at.events.lines() == []


async def test_the_condition_is_merged_by_type_with_both_timestamps():
    at = Site()
    await at.register("n1", "10.1.0.0/24")
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await at.kubectl.patch(NODES, "n1", StrategicPatch(ready), subresource="status")

    async with at.running():
        await asyncio.sleep(5)

    seen = await at.node("n1")
    assert seen.status is not None
    found = {each.type: each for each in seen.status.conditions or ()}
    assert found.keys() == {"Ready", "NetworkUnavailable"}
    said = found["NetworkUnavailable"]
    assert said.message == "RouteController created a route"
    assert said.last_heartbeat_time == said.last_transition_time is not None
    (write,) = at.wire.writes("/nodes/n1/status")
    assert write.headers["Content-Type"] == "application/strategic-merge-patch+json"


async def test_many_nodes_cost_one_list_and_a_few_calls():
    at = Site(FakeRoutes(takes=0.001))
    for number in range(350):
        await at.register(f"n{number}", f"10.{number // 250}.{number % 250}.0/24")

    async with at.running():
        await asyncio.sleep(30)

    assert len(at.routes.table) == 350
    assert at.routes.count("list") == 1
    assert at.routes.count("create") == 4
    assert len(at.wire.writes("/status")) == 350


async def test_a_restart_with_everything_in_place_writes_nothing():
    at = Site()
    await at.register("n1", "10.1.0.0/24")
    async with at.running():
        await asyncio.sleep(5)
    at.wire.requests.clear()
    at.routes.calls.clear()

    async with at.running():
        await asyncio.sleep(60)

    assert at.routes.calls == [("list", 0)]
    assert at.wire.writes() == []


async def test_the_route_of_a_deleted_node_is_removed():
    at = Site()
    await at.register("n1", "10.1.0.0/24")
    await at.register("n2", "10.2.0.0/24")
    async with at.running():
        await asyncio.sleep(5)
        await at.remove("n1")
        await asyncio.sleep(30)

    assert at.routes.places == {"10.2.0.0/24": "n2"}


async def test_a_range_that_comes_later_gets_its_route_at_once():
    at = Site()
    await at.register("n1")
    async with at.running():
        await asyncio.sleep(100)
        assert at.routes.calls == [("list", 0)], "the round at start"
        before = loop_time()
        await at.assign("n1", "10.1.0.0/24")
        while not at.routes.table:
            await asyncio.sleep(0.1)

    assert loop_time() - before < 2


async def test_changes_cause_rounds_at_a_limited_pace_and_none_is_lost():
    at = Site()
    async with at.running():
        for number in range(100):
            await at.register(f"n{number}", f"10.1.{number}.0/24")
            await asyncio.sleep(1)
        await asyncio.sleep(30)

    assert len(at.routes.table) == 100
    assert at.routes.count("list") <= 15


async def test_without_the_gate_rounds_are_made_at_fixed_times_only():
    at = Site()
    async with at.running(PERIODIC):
        await asyncio.sleep(1)
        await at.register("n1", "10.1.0.0/24")
        await asyncio.sleep(8)
        assert at.routes.count("list") == 1, "the change itself causes none"
        await asyncio.sleep(92)

    assert at.routes.places == {"10.1.0.0/24": "n1"}
    assert at.routes.count("list") == pytest.approx(11, abs=1)
    assert at.syncs("changed", "periodic") == 1
    assert at.syncs("changed") == at.syncs("noop") == 0


async def test_a_route_that_is_lost_soon_after_it_was_listed_is_repaired_in_the_next_round():
    at = Site()
    await at.register("n1", "10.1.0.0/24")
    async with at.running(PERIODIC):
        await asyncio.sleep(12)
        assert at.routes.count("list") == 2
        at.routes.table.clear()
        await asyncio.sleep(7)
        assert at.routes.places == {}
        await asyncio.sleep(7)  # a list that is suddenly empty is requested again after 5 s
        assert at.routes.places == {"10.1.0.0/24": "n1"}


@pytest.mark.parametrize("settings", [SETTINGS, PERIODIC], ids=["watching", "periodic"])
async def test_a_route_that_is_lost_before_a_list_shows_it_is_repaired_after_a_minute(settings):
    at = Site()
    await at.register("n1", "10.1.0.0/24")
    async with at.running(settings):
        await asyncio.sleep(5)
        at.routes.table.clear()
        await asyncio.sleep(55)
        assert at.routes.places == {}, "it may exist: lists may be late"
        await asyncio.sleep(17)
        assert at.routes.places == {"10.1.0.0/24": "n1"}


@pytest.mark.parametrize("settings", [SETTINGS, PERIODIC], ids=["watching", "periodic"])
async def test_a_new_node_that_gets_no_addresses_has_its_route_after_a_minute(settings):
    at = Site()
    async with at.running(settings):
        await asyncio.sleep(5)
        await at.register("n1", "10.1.0.0/24", taint=UNINITIALIZED)
        await asyncio.sleep(58)
        assert at.routes.places == {}
        await asyncio.sleep(12)
        assert at.routes.places == {"10.1.0.0/24": "n1"}


@pytest.mark.parametrize("wrong_by", [3600, -3600])
async def test_a_new_node_has_a_minute_to_get_addresses_whatever_the_clock_says(wrong_by: int):
    at = Site()
    at.clock = SkewedClock(at.clock, wrong_by)
    async with at.running():
        await asyncio.sleep(400)
        await at.register("n1", "10.1.0.0/24", taint=UNINITIALIZED)
        await asyncio.sleep(58)
        assert at.routes.count("create") == 0
        await asyncio.sleep(12)
        assert at.routes.places == {"10.1.0.0/24": "n1"}


async def test_a_new_node_gets_its_route_after_a_minute_although_another_route_keeps_failing():
    at = Site()
    at.routes.errors["10.2.0.0/24"] = QuotaExceeded("no more than 50 routes")
    await at.register("n2", "10.2.0.0/24")
    async with at.running():
        await asyncio.sleep(700)
        await at.register("n1", "10.1.0.0/24", taint=UNINITIALIZED)
        await asyncio.sleep(70)
        assert at.routes.places == {"10.1.0.0/24": "n1"}


async def test_nodes_that_wait_for_addresses_one_after_another_share_passes():
    at = Site()
    async with at.running():
        await asyncio.sleep(5)
        for number in range(60):
            await at.register(f"n{number}", f"10.1.{number}.0/24", taint=UNINITIALIZED)
            await asyncio.sleep(1)
        before = at.routes.count("list")
        await asyncio.sleep(70)
        assert len(at.routes.table) == 60
        assert at.routes.count("list") - before <= 15


async def test_a_route_deleted_by_hand_is_found_by_the_slow_check():
    at = Site()
    await at.register("n1", "10.1.0.0/24")
    async with at.running():
        await asyncio.sleep(5)
        at.routes.table.clear()
        await asyncio.sleep(340)

    assert at.routes.places == {"10.1.0.0/24": "n1"}


async def test_trap_14_routes_of_others_stay_through_the_whole_life_of_a_node():
    others = [
        route("10.9.0.0/24", None),
        route("10.9.1.0/24", "their-node"),
        route("10.9.2.0/24", "n1"),
        route("0.0.0.0/0", "n1"),
        route("10.9.3.0/24", None, blackhole=True),
    ]
    at = Site()
    at.routes.add(*others)
    await at.register("n1", "10.1.0.0/24")

    async with at.running():
        await asyncio.sleep(400)
        await at.remove("n1")
        await asyncio.sleep(400)

    assert list(at.routes.table.values()) == others


async def test_a_restarted_manager_finds_marked_leftovers_and_leaves_unmarked_ones():
    for marks in (True, False):
        at = Site(FakeRoutes(marks=marks))
        await at.register("n1", "10.1.0.0/24")
        await at.register("n2", "10.2.0.0/24")
        async with at.running():
            await asyncio.sleep(5)
        await at.remove("n1")
        async with at.running():
            await asyncio.sleep(60)

        assert ("10.1.0.0/24" in at.routes.table) is not marks


async def test_trap_7_a_watch_that_loses_all_nodes_removes_no_route():
    at = Site()
    for number in range(20):
        await at.register(f"n{number}", f"10.{number}.0.0/24")
    async with at.running():
        await asyncio.sleep(5)
        at.view.lose()
        await asyncio.sleep(700)
        lists = [each for each in at.wire.requests if "limit" in each.query]

    assert len(at.routes.table) == 20
    assert at.routes.count("delete") == 0
    assert 1 <= len(lists) <= 5, "the API server was asked"


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_routes_of_nodes_that_a_relist_lacks_are_not_deleted(marks, lost):
    at = Site(FakeRoutes(marks=marks))
    for number in range(20):
        await at.register(f"n{number}", f"10.{number}.0.0/24")
    async with at.running():
        await asyncio.sleep(5)
        at.view.lose(*(f"n{number}" for number in range(lost)))
        await asyncio.sleep(700)

    assert len(at.routes.table) == 20
    assert at.routes.count("delete") == 0


@pytest.mark.parametrize("marks", [True, False])
async def test_the_route_of_a_deleted_node_is_deleted_after_one_list_of_the_nodes(marks):
    at = Site(FakeRoutes(marks=marks))
    await at.register("n1", "10.1.0.0/24")
    await at.register("n2", "10.2.0.0/24")
    async with at.running():
        await asyncio.sleep(5)
        await at.remove("n1")
        await asyncio.sleep(700)
        lists = [each for each in at.wire.requests if "limit" in each.query]

    assert at.routes.places == {"10.2.0.0/24": "n2"}
    assert len(lists) == 1


async def test_the_route_of_a_node_that_the_watch_shows_with_a_former_range_is_not_deleted():
    at = Site(FakeRoutes(marks=True))
    await at.register("n1", "10.1.0.0/24")
    async with at.running(PERIODIC):
        await asyncio.sleep(5)
        at.view.freeze()
        await at.remove("n1")
        await at.register("n1", "10.2.0.0/24")
        at.routes.add(route("10.2.0.0/24", "n1", cluster=RULES.cluster))
        await asyncio.sleep(9)

    assert at.routes.places == {"10.2.0.0/24": "n1"}
    assert at.routes.created == ["10.1.0.0/24"], "the new route is the one that was there"


async def test_the_routes_of_the_last_nodes_are_deleted_at_start_without_waiting_for_a_check():
    at = Site(FakeRoutes(marks=True))
    at.routes.add(route("10.1.0.0/24", "n1", cluster=RULES.cluster))

    async with at.running(replace(SETTINGS, given_period=24 * 3600.0)):
        await asyncio.sleep(5)

    assert at.routes.table == {}
    assert at.routes.count("list") == 1


async def test_all_nodes_really_gone_is_believed_after_a_second_look():
    at = Site()
    for number in range(20):
        await at.register(f"n{number}", f"10.{number}.0.0/24")
    async with at.running():
        await asyncio.sleep(5)
        await at.remove(*(f"n{number}" for number in range(20)))
        await asyncio.sleep(60)

    assert at.routes.table == {}


async def test_a_preview_says_what_a_round_would_do_and_does_nothing():
    at = Site()
    at.routes.add(route("10.7.0.0/24", "gone", cluster=RULES.cluster))
    await at.register("n1", "10.1.0.0/24")
    await at.register("odd", "192.168.0.0/24")
    async with at.running(replace(SETTINGS, gates=WITHOUT_WATCH, given_period=1e6)):
        await asyncio.sleep(100)  # the next pass is far away
        at.routes.add(route("10.7.0.0/24", "gone", cluster=RULES.cluster))
        del at.routes.table["10.1.0.0/24"]
        await asyncio.sleep(100)
        before = (dict(at.routes.table), len(at.wire.writes()))
        everything = await at.controller.preview(EVERYTHING)
        one = await at.controller.preview(Scope("Node", "", "odd"))

    assert (dict(at.routes.table), len(at.wire.writes())) == before
    planned = {(each.effect, each.summary) for each in everything if isinstance(each, Planned)}
    assert planned == {
        (Effect.DELETE, "route 10.7.0.0/24 to gone"),
        (Effect.CREATE, "route 10.1.0.0/24 to n1"),
    }
    assert {each.place for each in everything if isinstance(each, Planned)} == {Place.CLOUD}
    (trouble,) = one
    assert isinstance(trouble, Trouble)
    assert trouble.reason == "PodCIDRNotRouted"


@pytest.mark.parametrize(("is_only", "suffix"), [(True, ""), (False, "@fake")])
async def test_queues_are_named_by_the_cloud_if_there_are_several(is_only, suffix):
    at = Site(is_only=is_only)
    await at.register("n1", "10.1.0.0/24")

    async with at.running():
        await asyncio.sleep(5)

    for queue in ("Routes", "route-check"):
        labels = {"name": queue + suffix}
        assert at.metrics.registry.value("workqueue_adds_total", labels)
