"""Which routes are deleted, and above all which are not."""

from dataclasses import replace

import pytest

from pileus.controllers.route.plan import Observation, plan
from pileus.controllers.route.record import Recorded
from pileus.kube.errors import KubeError
from pileus.objects.ownership import owner_by
from tests.unit.controllers.route.objects import (
    RULES,
    WIDE,
    Made,
    deleted,
    node,
    places,
    planned,
    route,
)


def test_the_route_of_a_node_that_was_seen_being_deleted_goes():
    recorded = Recorded(deleted=frozenset({deleted("n1", "10.1.0.0/24")}))

    made = planned([], [route("10.1.0.0/24", "n1")], recorded)

    assert places(made.delete) == [("10.1.0.0/24", "n1")]


@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param(route("10.1.0.0/24", None), id="unknown next hop to a node's range"),
        pytest.param(route("10.9.0.0/24", None), id="unknown next hop"),
        pytest.param(
            route("10.1.0.0/24", None, provider_id="acme://other"),
            id="a machine that is no node, to a node's range",
        ),
        pytest.param(route("10.9.0.0/24", None, blackhole=True), id="somebody's blackhole"),
        pytest.param(route("10.9.0.0/24", "elsewhere"), id="unknown node"),
        pytest.param(route("10.1.0.0/25", "elsewhere"), id="unknown node to half of the range"),
        pytest.param(route("10.1.0.0/24", "elsewhere", cluster=""), id="the same, marked"),
        pytest.param(route("10.9.0.0/24", "n1"), id="an operator's, by way of our node"),
        pytest.param(route("10.9.0.0/24", "n1", cluster="green"), id="another cluster's mark"),
        pytest.param(route("10.9.0.0/24", "n1", cluster=""), id="marked as nobody's"),
        pytest.param(route("192.168.0.0/24", "n1", cluster="blue"), id="outside the range"),
        pytest.param(route("0.0.0.0/0", "n1"), id="the default route"),
        pytest.param(route("nonsense", "n1"), id="no range"),
    ],
)
def test_trap_14_a_route_that_is_not_known_to_be_ours_is_never_deleted(foreign):
    assert planned([node("n1", "10.1.0.0/24")], [foreign]).delete == ()


@pytest.mark.parametrize(
    "ours",
    [
        pytest.param(route("10.9.0.0/24", "gone", cluster="blue"), id="our mark"),
        pytest.param(route("10.9.0.0/24", None, cluster="blue"), id="our mark, no next hop"),
        pytest.param(route("10.9.0.0/24", None, name="k8s-uid-n1"), id="our node's UID"),
        pytest.param(route("10.1.0.0/24", None, blackhole=True), id="blackhole to our range"),
        pytest.param(route("10.1.0.0/24", "n2"), id="wrong node of ours"),
    ],
)
def test_a_route_that_is_known_to_be_ours_and_not_wanted_is_deleted(ours):
    made = planned([node("n1", "10.1.0.0/24"), node("n2", "10.2.0.0/24")], [ours])

    assert made.delete == (ours,)


def test_a_blackhole_is_deleted_and_its_route_created_in_one_round():
    blackhole = route("10.1.0.0/24", "n1", cluster="blue", blackhole=True)

    made = planned([node("n1", "10.1.0.0/24")], [blackhole])

    assert made.delete == (blackhole,)
    assert places(made.create) == [("10.1.0.0/24", "n1")]


def test_a_foreign_route_to_a_nodes_range_is_told_and_no_second_one_is_made():
    made = planned([node("n1", "10.1.0.0/24")], [route("10.1.0.0/24", None)])

    assert (made.create, made.delete) == ((), ())
    assert "leads elsewhere" in made.reports[0].problems[0]
    assert "--route-ownership=cluster-cidr" in made.reports[0].problems[0]


def test_a_node_gets_the_route_of_one_that_was_deleted_while_no_manager_ran():
    left_over = route("10.1.0.0/24", "gone")

    made = planned([node("n1", "10.1.0.0/24")], [left_over])

    assert made.delete == (left_over,)
    assert places(made.create) == [("10.1.0.0/24", "n1")]


def test_a_route_to_an_unknown_node_stays_where_the_node_of_its_range_has_its_own():
    listed = [route("10.1.0.0/24", "gone"), route("10.1.0.0/24", "n1")]

    made = planned([node("n1", "10.1.0.0/24")], listed)

    assert (made.create, made.delete) == ((), ())


FOREIGN = replace(RULES, whose=owner_by("fake", lambda ref: ref.name != "other"))


def test_a_node_of_another_cloud_gets_no_route_and_no_word_and_keeps_what_it_has():
    nodes = [node("n1", "10.1.0.0/24"), node("other", "10.2.0.0/24")]
    theirs = [route("10.2.0.0/24", "other"), route("10.3.0.0/24", "other", cluster="blue")]

    empty, full = planned(nodes, [], rules=FOREIGN), planned(nodes, theirs, rules=FOREIGN)

    assert places(empty.create) == places(full.create) == [("10.1.0.0/24", "n1")]
    assert (empty.delete, full.delete) == ((), ())
    assert [each.node.metadata.name for each in full.reports] == ["n1"]


SHARED = "10.1.0.0/24"


@pytest.mark.parametrize("age", [1, 3], ids=["younger", "older"])
@pytest.mark.parametrize(
    ("listed", "deleted", "created"),
    [
        pytest.param([], [], [(SHARED, "n1")], id="no route"),
        pytest.param([route(SHARED, "n1")], [], [], id="ours has its route"),
        pytest.param(
            [route(SHARED, "n1"), route(SHARED, "other")],
            [(SHARED, "other")],
            [],
            id="both have one",
        ),
        pytest.param(
            [route(SHARED, "other")],
            [(SHARED, "other")],
            [(SHARED, "n1")],
            id="only the other cloud's node has one",
        ),
        pytest.param(
            [route(SHARED, "n1", addresses=())],
            [(SHARED, "n1")],
            [(SHARED, "n1")],
            id="ours has an outdated one",
        ),
    ],
)
def test_a_node_of_another_cloud_with_the_same_range_takes_no_route_from_ours(
    listed, deleted, created, age
):
    nodes = [node("n1", SHARED, age=2), node("other", SHARED, age=age)]

    made = planned(nodes, listed, rules=FOREIGN)

    assert (places(made.delete), places(made.create)) == (deleted, created)
    assert not any(each.problems for each in made.reports)


def test_a_route_to_another_clouds_node_by_way_of_a_gateway_node_stays():
    """Clouds are joined like this: one node of this cloud forwards to the pods of the other."""
    nodes = [node("gateway", "10.1.0.0/24"), node("other", "10.2.0.0/24")]

    made = planned(nodes, [route("10.2.0.0/24", "gateway")], rules=FOREIGN)

    assert made.delete == ()
    assert places(made.create) == [("10.1.0.0/24", "gateway")]


def test_a_route_to_the_range_of_another_clouds_node_is_not_taken_for_a_left_over():
    made = planned([node("other", "10.2.0.0/24")], [route("10.2.0.0/24", "gone")], rules=FOREIGN)

    assert (made.create, made.delete) == ((), ())


@pytest.mark.parametrize(
    ("listed", "goes"),
    [
        (route("10.9.0.0/24", None), True),
        (route("10.9.0.0/24", "elsewhere"), True),
        (route("10.9.0.0/24", "n1", blackhole=True), True),
        (route("10.9.0.0/24", "n1", cluster="green"), False),
        (route("10.0.0.0/7", "n1"), True),  # its first address is in the cluster's range
        (route("0.0.0.0/0", "n1"), False),
        (route("192.168.0.0/24", "n1"), False),
    ],
)
def test_the_wide_rule_is_the_go_frameworks(listed, goes):
    made = planned([node("n1", "10.1.0.0/24")], [listed], rules=WIDE)

    assert made.delete == ((listed,) if goes else ())


def test_with_the_wide_rule_a_range_outside_of_the_clusters_gets_its_route():
    made = planned([node("n1", "192.168.7.0/24")], [], rules=WIDE)

    assert places(made.create) == [("192.168.7.0/24", "n1")]


LISTED = tuple(route("10.1.0.0/24", name, cluster="blue") for name in ("odd", "gone", None))


def test_the_routes_of_nodes_that_could_not_be_read_are_kept():
    observed = Observation(nodes=(), routes=LISTED, unreadable=frozenset({"odd"}))

    made = Made(plan(observed, RULES))

    assert places(made.delete) == [("10.1.0.0/24", "gone")]
    assert [each.target for each in made.kept] == ["odd", None]


def test_no_route_is_deleted_if_the_nodes_could_not_be_listed():
    observed = Observation(nodes=(), routes=LISTED, nodes_error=KubeError("no answer"))

    made = Made(plan(observed, RULES))

    assert (made.delete, made.kept) == ((), LISTED)
    assert planned([], LISTED).kept == ()
