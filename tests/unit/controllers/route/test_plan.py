"""The decisions about routes: what is created, what is deleted, and above all what is not."""

import asyncio
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields

from pileus.cloud.model import Route
from pileus.controllers.route.plan import (
    CONDITION,
    CreateRoutes,
    DeleteRoutes,
    ReportNode,
    Step,
    condition,
    is_available,
    is_worth_a_round,
)
from pileus.controllers.route.record import PATIENCE, Recorded, RouteRecord
from pileus.kube.model.core_v1 import Node, NodeCondition, Taint
from pileus.objects.nodes import UNINITIALIZED
from pileus.objects.ranges import parse_range
from tests.unit.controllers.route.objects import (
    RULES,
    START,
    WIDE,
    deleted,
    internal,
    node,
    places,
    planned,
    route,
)


def test_a_node_without_a_route_gets_one_for_each_of_its_ranges():
    made = planned([node("n1", "10.1.0.0/24", "fd00:1::/64")], [])

    assert places(made.create) == [("10.1.0.0/24", "n1"), ("fd00:1::/64", "n1")]
    assert {each.name for each in made.create} == {"uid-n1"}
    assert {each.addresses for each in made.create} == {(internal("192.168.0.1"),)}
    assert made.delete == ()


def test_steps_carry_what_one_call_to_the_cloud_carries_and_deletions_come_first():
    many = [node(f"n{number}", f"10.1.{number}.0/24") for number in range(120)]
    unwanted = [route(f"10.2.{number}.0/24", "gone", cluster="blue") for number in range(101)]

    steps = planned(many, unwanted).steps

    calls = [each for each in steps if isinstance(each, DeleteRoutes | CreateRoutes)]
    assert [(type(each), len(each.routes)) for each in calls] == [
        (DeleteRoutes, 100),
        (DeleteRoutes, 1),
        (CreateRoutes, 100),
        (CreateRoutes, 20),
    ]
    assert tuple(calls[:3]) == steps[:3]


def test_nodes_are_reported_as_soon_as_their_own_routes_are_created():
    many = [
        node(f"n{number}", f"10.1.{number}.0/24", f"fd00:{number}::/64") for number in range(75)
    ]

    steps = planned(many, []).steps

    kinds = [type(each) for each in steps]
    assert kinds == [CreateRoutes, *[ReportNode] * 50, CreateRoutes, *[ReportNode] * 25]
    for position, step in enumerate(steps):
        created = {route for each in steps[:position] for route in _created(each)}
        assert not isinstance(step, ReportNode) or created.issuperset(step.create)


def _created(step: Step) -> tuple[Route, ...]:
    return step.routes if isinstance(step, CreateRoutes) else ()


def test_a_plan_is_empty_if_routes_and_conditions_match():
    one = node("n1", "10.1.0.0/24", conditions=[saying("False", "RouteCreated")])

    assert planned([one], [route("10.1.0.0/24", "n1")]).steps == ()


def test_trap_8_a_route_in_another_spelling_is_the_same_route():
    nodes = [node("n1", "10.1.0.7/24", "FD00:0001:0::/64")]
    listed = [route("10.1.0.0/24", "n1"), route("fd00:1:0:0::/64", "n1")]

    assert planned(nodes, listed).delete == planned(nodes, listed).create == ()


def test_a_route_that_was_created_a_moment_ago_is_believed_although_it_is_not_listed():
    recorded = Recorded(created=frozenset({("n1", parse_range("10.1.0.0/24"))}))

    assert planned([node("n1", "10.1.0.0/24")], [], recorded).create == ()


def test_a_route_that_carries_other_addresses_than_the_node_is_made_anew():
    listed = [route("10.1.0.0/24", "n1", addresses=(internal("192.168.0.9"),))]
    current = [route("10.1.0.0/24", "n1", addresses=(internal("192.168.0.1"),))]
    nodes = [node("n1", "10.1.0.0/24")]

    made = planned(nodes, listed)

    assert made.delete == tuple(listed)
    assert places(made.create) == [("10.1.0.0/24", "n1")]
    assert planned(nodes, current).create == ()


def test_a_route_that_is_missing_in_some_tables_is_completed_and_not_deleted():
    nodes = [node("n1", "10.1.0.0/24")]
    partial = route("10.1.0.0/24", "n1", missing_in=frozenset({"rtb-2"}))
    whole = route("10.1.0.0/24", "n1")

    made = planned(nodes, [partial])

    assert places(made.create) == [("10.1.0.0/24", "n1")]
    assert made.delete == ()
    assert planned(nodes, [whole]).create == ()


def test_a_route_by_provider_id_alone_is_that_of_its_node():
    nodes = [with_id(node("n1", "10.1.0.0/24"), "acme://1")]
    listed = [route("10.1.0.0/24", None, provider_id="acme://1")]

    made = planned(nodes, listed)

    assert (made.create, made.delete) == ((), ())
    assert [each.provider_id for each in planned(nodes, []).create] == ["acme://1"]


def test_a_route_to_a_former_machine_of_the_same_name_is_replaced():
    nodes = [with_id(node("n1", "10.1.0.0/24"), "acme://2")]
    listed = [route("10.1.0.0/24", "n1", provider_id="acme://1")]

    made = planned(nodes, listed)

    assert made.delete == tuple(listed)
    assert places(made.create) == [("10.1.0.0/24", "n1")]


def with_id(node: Node, provider_id: str) -> Node:
    assert node.spec is not None
    return replace_fields(node, spec=replace_fields(node.spec, provider_id=provider_id))


def test_a_route_that_leads_to_another_of_our_nodes_makes_room():
    nodes = [node("n1", "10.1.0.0/24"), node("n2", "10.2.0.0/24")]

    made = planned(nodes, [route("10.1.0.0/24", "n2")])

    assert places(made.delete) == [("10.1.0.0/24", "n2")]
    assert ("10.1.0.0/24", "n1") in places(made.create)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonsense", '"nonsense" is not a CIDR'),
        ("10.1.0.0", '"10.1.0.0" is not a CIDR'),
        ("10.1.0.0/255.255.255.0", "is not a CIDR"),
        ("10.1.0.0/33", "is not a CIDR"),
        ("", '"" is not a CIDR'),
        ("192.168.0.0/24", "192.168.0.0/24 is not in --cluster-cidr"),
        ("0.0.0.0/0", "0.0.0.0/0 is not in --cluster-cidr"),
        ("8.0.0.0/6", "8.0.0.0/6 is not in --cluster-cidr"),
    ],
)
def test_a_range_that_cannot_have_a_route_is_told_and_the_others_are_served(text, told):
    made = planned([node("odd", text, "fd00:1::/64"), node("n1", "10.1.0.0/24")], [])

    odd, good = made.reports
    assert told in odd.problems[0]
    assert places(odd.create) == [("fd00:1::/64", "odd")], "its other family"
    assert places(good.create) == [("10.1.0.0/24", "n1")]
    assert is_available(odd, frozenset(), frozenset()) is False
    assert is_available(good, frozenset(), frozenset()) is True


@pytest.mark.parametrize("overlapping", ["10.1.0.0/24", "10.1.0.0/25", "10.0.0.0/12"])
def test_of_two_nodes_whose_ranges_overlap_the_older_one_is_served(overlapping):
    young, old = node("a", overlapping, age=1), node("b", "10.1.0.0/24", age=2)

    made = planned([young, old, node("c", "10.200.0.0/24")], [])

    assert places(made.create) == [("10.1.0.0/24", "b"), ("10.200.0.0/24", "c")]
    assert "overlaps 10.1.0.0/24 of node b" in made.reports[0].problems[0]


def test_of_two_nodes_with_one_range_the_one_that_has_the_route_keeps_it():
    young, old = node("a", "10.1.0.0/24", age=1), node("b", "10.1.0.0/24", age=2)

    made = planned([young, old], [route("10.1.0.0/24", "a")])

    assert (made.create, made.delete) == ((), ())
    assert "of node a" in made.reports[1].problems[0]


def test_of_two_nodes_with_one_range_the_one_whose_route_is_not_listed_yet_keeps_it():
    young, old = node("a", "10.1.0.0/24", age=1), node("b", "10.1.0.0/24", age=2)
    recorded = Recorded(created=frozenset({("a", parse_range("10.1.0.0/24"))}))

    made = planned([young, old], [], recorded)

    assert (made.create, made.delete) == ((), ())
    assert "of node a" in made.reports[-1].problems[0]


def test_of_two_nodes_whose_ranges_overlap_neither_loses_a_route_that_is_there():
    nodes = [node("a", "10.1.0.0/24", age=1), node("b", "10.0.0.0/12", age=2)]

    made = planned(nodes, [route("10.1.0.0/24", "a"), route("10.0.0.0/12", "b")])

    assert (made.create, made.delete) == ((), ())
    assert "overlaps 10.0.0.0/12 of node b" in made.reports[0].problems[0]


def test_a_route_that_should_be_made_anew_stays_while_somebody_elses_is_in_the_way():
    outdated = route("10.1.0.0/24", "n1", addresses=())

    made = planned([node("n1", "10.1.0.0/24")], [outdated, route("10.1.0.0/24", None)])

    assert (made.create, made.delete) == ((), ())
    assert "leads elsewhere" in made.reports[0].problems[0]


def test_a_range_that_a_node_names_twice_is_one_route():
    made = planned([node("n1", "10.1.0.0/24", "10.1.0.0/24")], [])

    assert places(made.create) == [("10.1.0.0/24", "n1")]
    assert made.reports[0].problems == ()


def saying(status: str, reason: str) -> NodeCondition:
    return NodeCondition(type=CONDITION, status=status, reason=reason)


@pytest.mark.parametrize(
    ("before", "available", "written"),
    [
        (None, True, "False"),
        (None, False, "True"),
        (saying("False", "RouteCreated"), True, None),
        (saying("True", "NoRouteCreated"), False, None),
        (saying("False", "CalicoIsUp"), True, "False"),
        (saying("True", "NoRouteCreated"), True, "False"),
    ],
)
def test_the_condition_is_written_only_if_status_or_reason_differ(before, available, written):
    said = condition(
        node("n1", conditions=[before] if before else []), available=available, now=START
    )

    assert (said and said.status) == written
    if said:
        assert said.last_heartbeat_time == said.last_transition_time == START


@pytest.mark.parametrize(
    ("listed", "rules"),
    [
        pytest.param(route("10.1.0.0/24", "n1", cluster="blue"), RULES, id="by its mark"),
        pytest.param(route("10.1.0.0/24", "n1"), WIDE, id="by the Go framework's rule"),
    ],
)
def test_a_node_with_a_route_of_ours_and_without_a_range_is_not_available(listed, rules):
    (report,) = planned([node("n1")], [listed], rules=rules).reports

    assert is_available(report, frozenset(), frozenset()) is False


@pytest.mark.parametrize(
    ("listed", "rules"),
    [
        pytest.param(route("0.0.0.0/0", "n1"), RULES, id="a gateway's"),
        pytest.param(route("192.168.0.0/24", "n1"), RULES, id="one to elsewhere"),
        pytest.param(route("10.1.0.0/25", "n1"), RULES, id="nobody knows whose"),
        pytest.param(route("10.1.0.0/25", "n1", cluster="green"), RULES, id="another cluster's"),
        pytest.param(route("10.1.0.0/25", "n1", cluster="green"), WIDE, id="also by the wide rule"),
    ],
)
def test_a_node_without_a_range_is_left_alone_whatever_else_leads_to_it(listed, rules):
    assert planned([node("n1")], [listed], rules=rules).reports == ()


def test_a_node_whose_routes_were_not_tried_yet_is_neither_available_nor_not():
    (report,) = planned([node("n1", "10.1.0.0/24", "fd00:1::/64")], []).reports
    one, other = report.create

    assert is_available(report, frozenset(), {one}) is None
    assert is_available(report, {other}, {one}) is False
    assert is_available(report, frozenset(), frozenset()) is True


def test_heartbeats_and_nodes_without_ranges_cause_no_round():
    one = node("n1", "10.1.0.0/24")
    ready = NodeCondition(type="Ready", status="True")

    assert not is_worth_a_round(one, node("n1", "10.1.0.0/24", conditions=[ready]))
    assert not is_worth_a_round(None, node("n1"))
    assert not is_worth_a_round(node("n1"), node("n1", addresses=["192.168.0.7"]))
    assert is_worth_a_round(one, node("n1", "10.1.0.0/24", addresses=["192.168.0.7"]))
    assert is_worth_a_round(node("n1"), one)
    assert is_worth_a_round(one, None)


FORMS = frozenset({"acme:///i-1", "acme://east/i-1"})


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_route_belongs_to_its_node_in_whatever_form_the_node_has_its_provider_id(
    form: str,
) -> None:
    listed = route("10.1.0.0/24", None, provider_id="acme:///i-1", aliases=FORMS)

    made = planned([node("n1", "10.1.0.0/24", provider_id=form)], [listed])

    assert (made.create, made.delete) == ((), ())
    assert not made.reports[0].problems


def test_the_route_of_a_deleted_node_is_deleted_although_its_machine_still_runs() -> None:
    listed = route("10.1.0.0/24", None, provider_id="acme:///i-1", aliases=FORMS)
    gone = deleted("n1", "10.1.0.0/24", "acme://east/i-1")

    made = planned([], [listed], Recorded(deleted=frozenset({gone})))

    assert places(made.delete) == [("10.1.0.0/24", "n1")]


async def test_the_record_of_a_deleted_node_has_its_machine() -> None:
    record = RouteRecord()

    record.node_deleted(node("n1", "10.1.0.0/24", provider_id="acme:///i-1"))

    assert record.now().deleted == {deleted("n1", "10.1.0.0/24", "acme:///i-1")}


def test_a_route_to_a_machine_that_is_another_node_now_is_that_nodes() -> None:
    listed = route("10.1.0.0/24", None, provider_id="acme:///i-1")
    gone = deleted("old", "10.1.0.0/24", "acme:///i-1")

    made = planned(
        [node("new", "10.1.0.0/24", provider_id="acme:///i-1")],
        [listed],
        Recorded(deleted=frozenset({gone})),
    )

    assert (made.create, made.delete) == ((), ())


def test_a_node_that_is_not_initialized_waits_for_its_addresses_without_a_report() -> None:
    taint = Taint(key=UNINITIALIZED, value="true", effect="NoSchedule")
    waiting = node("n1", "10.1.0.0/24", addresses=(), taints=[taint])

    made = planned([waiting], [route("10.1.0.0/24", "n1")])

    assert made.steps == ()
    assert planned([waiting], []).steps == ()
    without_taint = node("n1", "10.1.0.0/24", addresses=())
    old = node("n1", "10.1.0.0/24", addresses=(), taints=[taint], age=90)
    for each in (without_taint, old):
        assert places(planned([each], []).create) == [("10.1.0.0/24", "n1")]


@pytest.mark.parametrize("age", [-3600, -90, 0, 30])
def test_a_node_that_is_known_for_a_while_is_not_new_whatever_the_clock_says(age: int) -> None:
    taint = Taint(key=UNINITIALIZED, value="true", effect="NoSchedule")
    waiting = node("n1", "10.1.0.0/24", addresses=(), taints=[taint], age=age)
    assert planned([waiting], []).steps == ()
    known = Recorded(known_for={waiting.metadata.uid: PATIENCE - 1})
    assert planned([waiting], [], known).steps == ()
    known = Recorded(known_for={waiting.metadata.uid: PATIENCE})
    assert places(planned([waiting], [], known).create) == [("10.1.0.0/24", "n1")]


@pytest.mark.parametrize("age", [-3600, 0, 3600])
def test_a_node_that_was_created_while_the_process_watched_is_new_whatever_the_clock_says(
    age: int,
) -> None:
    taint = Taint(key=UNINITIALIZED, value="true", effect="NoSchedule")
    waiting = node("n1", "10.1.0.0/24", addresses=(), taints=[taint], age=age)
    uid = waiting.metadata.uid
    known = Recorded(known_for={uid: PATIENCE - 1}, appeared=frozenset({uid}))
    assert planned([waiting], [], known).steps == ()
    known = Recorded(known_for={uid: PATIENCE}, appeared=frozenset({uid}))
    assert places(planned([waiting], [], known).create) == [("10.1.0.0/24", "n1")]


async def test_the_record_says_which_nodes_were_created_while_the_process_watched() -> None:
    record, first, second = RouteRecord(), node("n1"), node("n2")
    record.nodes_seen([first])
    record.node_added(first)
    record.node_added(second)
    assert record.now().appeared == {second.metadata.uid}
    await asyncio.sleep(5)
    record.nodes_seen([first, second])
    assert record.now().known_for == {first.metadata.uid: 5, second.metadata.uid: 5}
    record.nodes_seen([first])
    assert record.now().appeared == frozenset()


async def test_the_record_says_for_how_long_each_existing_node_is_known() -> None:
    record, first, second = RouteRecord(), node("n1"), node("n2")
    record.nodes_seen([first])
    await asyncio.sleep(5)
    record.nodes_seen([first, second])
    assert record.now().known_for == {first.metadata.uid: 5, second.metadata.uid: 0}
    await asyncio.sleep(1)
    record.nodes_seen([second])
    assert record.now().known_for == {second.metadata.uid: 1}


def test_a_node_whose_provider_id_was_not_checked_gets_no_route_and_keeps_its_own():
    taint = Taint(key=UNINITIALIZED)
    claiming = node("n1", "10.1.0.0/24", provider_id="fake://db", taints=(taint,))
    unknown = node("n2", "10.2.0.0/24", taints=(taint,))

    assert places(planned([claiming, unknown], []).create) == [("10.2.0.0/24", "n2")]
    assert planned([claiming], [route("10.1.0.0/24", "n1")]).delete == ()


def test_a_node_gets_its_route_where_provider_ids_are_not_checked():
    claiming = node(
        "n1", "10.1.0.0/24", provider_id="fake://db", taints=(Taint(key=UNINITIALIZED),)
    )
    rules = replace(RULES, checks_claims=False)

    assert places(planned([claiming], [], rules=rules).create) == [("10.1.0.0/24", "n1")]
