"""What the whole controller makes of a cloud and an API server that fail."""

import asyncio

import pytest

from pileus.cloud.errors import (
    Conflict,
    NotFound,
    QuotaExceeded,
    Throttled,
    Unauthorized,
    Unavailable,
)
from tests.unit.controllers.route.objects import RULES, route
from tests.unit.controllers.route.site import FakeRoutes, Site


async def test_defect_16_a_route_that_could_not_be_created_is_retried_and_counted_as_an_error():
    at = Site()
    at.routes.errors["10.1.0.0/24"] = Unavailable("the cloud is down")
    await at.register("n1", "10.1.0.0/24")
    await at.register("n2", "10.2.0.0/24")

    async with at.running():
        await asyncio.sleep(20)
        assert at.routes.places == {"10.2.0.0/24": "n2"}
        assert await at.network("n1") == ("True", "NoRouteCreated")
        seen = await at.node("n1")
        messages = [each.message for each in (seen.status and seen.status.conditions) or ()]
        assert messages == ["RouteController failed to create a route"]
        assert await at.network("n2") == ("False", "RouteCreated")
        assert at.syncs("error") >= 2
        assert at.syncs("noop") == 0
        at.routes.errors.clear()
        await asyncio.sleep(60)
        assert await at.network("n1") == ("False", "RouteCreated")

    assert at.routes.places == {"10.1.0.0/24": "n1", "10.2.0.0/24": "n2"}
    assert at.syncs("changed") == 1


async def test_defect_17_a_route_that_keeps_failing_is_told_once_an_hour_in_the_same_words():
    at = Site()
    at.routes.errors["10.1.0.0/24"] = QuotaExceeded("no more than 50 routes")
    await at.register("n1", "10.1.0.0/24")

    async with at.running():
        await asyncio.sleep(3 * 3600)

    uid = (await at.node("n1")).metadata.uid
    told = f"Could not create route {uid} 10.1.0.0/24 for node n1: no more than 50 routes"
    assert set(at.events.lines()) == {("n1", "Warning", "FailedToCreateRoute", told)}
    assert 3 <= len(at.events.lines()) <= 4
    assert 30 <= at.routes.count("create") <= 80, "backed off"


async def test_each_route_that_fails_has_its_event_as_in_the_go_framework():
    at = Site()
    at.routes.errors |= {
        "10.1.0.0/24": QuotaExceeded("no more than 50 routes"),
        "fd00:1::/64": Unavailable("no IPv6 yet"),
    }
    await at.register("n1", "10.1.0.0/24", "fd00:1::/64")

    async with at.running():
        await asyncio.sleep(600)

    route_of = f"Could not create route {(await at.node('n1')).metadata.uid}"
    assert at.events.messages("FailedToCreateRoute") == [
        f"{route_of} 10.1.0.0/24 for node n1: no more than 50 routes",
        f"{route_of} fd00:1::/64 for node n1: no IPv6 yet",
    ]


async def test_a_range_stays_reserved_for_the_older_node_while_the_cloud_refuses_its_route():
    at = Site()
    at.routes.errors["10.1.0.0/24"] = NotFound('no instance "old"')
    await at.register("old", "10.1.0.0/24")
    async with at.running():
        await asyncio.sleep(5)
        await at.register("new", "10.1.0.0/24")
        await asyncio.sleep(60)
        assert await at.network("old") == ("True", "NoRouteCreated")
        assert await at.network("new") == ("True", "NoRouteCreated")
        told = {(node, reason) for node, _, reason, _ in at.events.lines()}
        assert told == {("old", "FailedToCreateRoute"), ("new", "PodCIDRNotRouted")}
        at.routes.errors.clear()
        await asyncio.sleep(300)
        assert at.routes.places == {"10.1.0.0/24": "old"}
        await at.remove("old")
        await asyncio.sleep(60)
        assert at.routes.places == {"10.1.0.0/24": "new"}
        assert await at.network("new") == ("False", "RouteCreated")


async def test_another_error_is_news():
    at = Site()
    at.routes.errors["10.1.0.0/24"] = Unavailable("down")
    await at.register("n1", "10.1.0.0/24")

    async with at.running():
        await asyncio.sleep(10)
        at.routes.errors["10.1.0.0/24"] = QuotaExceeded("full")
        await asyncio.sleep(60)

    assert [told.rsplit(": ", 1)[1] for *_, told in at.events.lines()] == ["down", "full"]


@pytest.mark.parametrize("error", [Unavailable("5xx"), Unauthorized("403")])
async def test_trap_1_a_cloud_that_cannot_list_changes_nothing(error):
    at = Site()
    await at.register("n1", "10.1.0.0/24")
    async with at.running():
        await asyncio.sleep(5)
        at.routes.list_error = error
        await at.remove("n1")
        await at.register("n2", "10.2.0.0/24")
        await asyncio.sleep(60)
        assert at.routes.places == {"10.1.0.0/24": "n1"}
        assert at.syncs("error") >= 2
        assert await at.network("n2") is None, "nothing is known"
        at.routes.list_error = None
        await asyncio.sleep(60)

    assert at.routes.places == {"10.2.0.0/24": "n2"}


async def test_a_cloud_that_asks_for_time_gets_it():
    at = Site()
    at.routes.list_error = Throttled("slow down", retry_after=100)
    await at.register("n1", "10.1.0.0/24")

    async with at.running():
        await asyncio.sleep(95)

    assert at.routes.count("list") == 1


async def test_a_list_that_lags_makes_no_second_route_and_no_trouble():
    at = Site()
    await at.register("n1", "10.1.0.0/24")
    at.routes.answers = [(), ()]

    async with at.running():
        await asyncio.sleep(5)
        await at.register("n2", "10.2.0.0/24")
        await asyncio.sleep(30)

    assert sorted(at.routes.created) == ["10.1.0.0/24", "10.2.0.0/24"]
    assert at.events.lines() == []
    assert at.syncs("error") == 0


async def test_an_empty_list_is_not_believed_at_once():
    at = Site()
    for number in range(9):
        await at.register(f"n{number}", f"10.{number}.0.0/24")
    async with at.running():
        await asyncio.sleep(100)
        at.routes.answers = [()]
        await at.register("new", "10.99.0.0/24")
        await asyncio.sleep(30)

    assert len(at.routes.created) == 10, "each once"
    assert at.syncs("error") == 0


async def test_a_route_whose_place_cannot_be_cleared_is_not_created_beside_it():
    at = Site()
    at.routes.add(route("10.1.0.0/24", "n2"))
    at.routes.errors["10.1.0.0/24"] = Unavailable("stuck")
    await at.register("n1", "10.1.0.0/24")
    await at.register("n2", "10.2.0.0/24")

    async with at.running():
        await asyncio.sleep(3)
        assert ("create", 1) in at.routes.calls, "of the other"
        assert at.routes.places == {"10.1.0.0/24": "n2", "10.2.0.0/24": "n2"}
        assert at.events.lines()[0][3].endswith("could not be deleted: stuck")
        at.routes.errors.clear()
        await asyncio.sleep(60)

    assert at.routes.places == {"10.1.0.0/24": "n1", "10.2.0.0/24": "n2"}


async def test_ranges_that_cannot_have_routes_are_told_and_others_served():
    at = Site()
    await at.register("odd", "192.168.1.0/24")
    await at.register("n1", "10.1.0.0/24")

    async with at.running():
        await asyncio.sleep(600)

    assert at.routes.places == {"10.1.0.0/24": "n1"}
    assert [told[:3] for told in at.events.lines()] == [("odd", "Warning", "PodCIDRNotRouted")]
    assert await at.network("odd") == ("True", "NoRouteCreated")
    assert at.syncs("error") == 0, "nothing to retry"


async def test_a_write_of_a_condition_that_fails_is_retried():
    at = Site()
    await at.register("n1", "10.1.0.0/24")
    async with at.running():
        at.wire.refuse = "/nodes/n1/status"
        await asyncio.sleep(5)
        assert await at.network("n1") is None
        assert at.syncs("error") >= 1
        at.wire.refuse = ""
        await asyncio.sleep(60)
        assert await at.network("n1") == ("False", "RouteCreated")
    assert at.routes.created == ["10.1.0.0/24"]


async def test_a_route_that_is_there_although_its_creation_seemed_to_fail_is_made_once():
    at = Site()
    at.routes.late["10.1.0.0/24"] = Unavailable("no answer in time")
    await at.register("n1", "10.1.0.0/24")

    async with at.running():
        await asyncio.sleep(30)
        assert await at.network("n1") == ("False", "RouteCreated")

    assert at.routes.count("create") == 1
    assert at.syncs("error") == 1


async def test_a_conflict_is_told_retried_and_leaves_the_others_alone():
    at = Site()
    at.routes.errors["10.1.0.0/24"] = Conflict("somebody is at work on that route")
    await at.register("n1", "10.1.0.0/24")
    await at.register("n2", "10.2.0.0/24")

    async with at.running():
        await asyncio.sleep(10)
        assert at.routes.places == {"10.2.0.0/24": "n2"}
        assert at.events.lines()[0][3].endswith("somebody is at work on that route")
        at.routes.errors.clear()
        await asyncio.sleep(60)

    assert at.routes.places == {"10.1.0.0/24": "n1", "10.2.0.0/24": "n2"}


async def test_of_many_different_failures_the_one_that_asks_for_most_patience_counts():
    at = Site()
    for number in range(9):
        await at.register(f"n{number}", f"10.1.{number}.0/24")
        at.routes.errors[f"10.1.{number}.0/24"] = Unavailable(f"no way to n{number}")
    at.routes.errors["10.1.8.0/24"] = Throttled("slow down", retry_after=100)

    async with at.running():
        await asyncio.sleep(95)
        assert at.routes.count("create") == 1
        await asyncio.sleep(60)

    assert at.routes.count("create") == 2


async def test_a_slow_cloud_gets_a_few_calls_a_round_and_new_nodes_wait_for_no_more():
    at = Site(FakeRoutes(takes=1.3))
    for number in range(300):
        await at.register(f"n{number}", f"10.{number // 250}.{number % 250}.0/24")

    async with at.running():
        await asyncio.sleep(100)
        await at.remove("n299")
        await asyncio.sleep(900)

    assert len(at.routes.table) == 299
    assert at.routes.count("list") >= 3
    assert at.events.lines() == []
    assert at.syncs("error") == 0


async def test_trap_7_while_nodes_cannot_be_looked_at_again_nothing_is_deleted():
    at = Site(FakeRoutes(marks=True))
    at.routes.add(*(route(f"10.9.{n}.0/24", f"gone{n}", cluster=RULES.cluster) for n in range(9)))
    at.wire.refuse = "/api/v1/nodes"
    await at.register("n1", "10.1.0.0/24")

    async with at.running():
        await asyncio.sleep(30)
        assert at.routes.count("delete") == 0
        assert at.routes.places["10.1.0.0/24"] == "n1", "creations go on"
        assert at.syncs("error") >= 2
        at.wire.refuse = ""
        await asyncio.sleep(60)

    assert at.routes.places == {"10.1.0.0/24": "n1"}


@pytest.mark.parametrize("marks", [True, False])
async def test_a_deleted_node_is_remembered_until_the_nodes_can_be_listed_again(marks):
    at = Site(FakeRoutes(marks=marks))
    await at.register("n1", "10.1.0.0/24")
    async with at.running():
        await asyncio.sleep(5)
        at.wire.refuse = "/api/v1/nodes"
        await at.remove("n1")
        await asyncio.sleep(400)
        assert at.routes.places == {"10.1.0.0/24": "n1"}
        at.wire.refuse = ""
        await asyncio.sleep(400)

    assert at.routes.table == {}


async def test_a_call_that_fails_as_a_whole_is_the_failure_of_all_its_routes():
    at = Site()
    at.routes.refuses = Unavailable("the cloud is down")
    await at.register("n1", "10.1.0.0/24")
    await at.register("n2", "10.2.0.0/24")

    async with at.running():
        await asyncio.sleep(5)
        assert {name for name, *_ in at.events.lines()} == {"n1", "n2"}
        at.routes.refuses = None
        await asyncio.sleep(60)

    assert at.routes.places == {"10.1.0.0/24": "n1", "10.2.0.0/24": "n2"}


async def test_a_node_that_goes_before_its_condition_is_written_is_no_failure():
    at = Site()
    await at.register("n1", "10.1.0.0/24")
    at.wire.before_write = lambda: at.remove("n1")

    async with at.running():
        await asyncio.sleep(60)

    assert at.syncs("error") == 0
    assert at.routes.table == {}


async def test_while_nodes_cannot_be_looked_at_again_no_route_is_made_beside_a_doubtful_one():
    at = Site(FakeRoutes(marks=True))
    at.routes.add(route("10.1.0.0/24", "unknown", cluster=RULES.cluster))
    at.wire.refuse = "/api/v1/nodes"
    await at.register("n1", "10.1.0.0/24")

    async with at.running():
        await asyncio.sleep(30)
        assert at.routes.calls == [("list", 0)] * at.routes.count("list")
        assert at.events.lines()[0][3].endswith("that of a node that could not be read")
        at.wire.refuse = ""
        await asyncio.sleep(60)

    assert at.routes.places == {"10.1.0.0/24": "n1"}
