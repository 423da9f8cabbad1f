"""The decisions about routes: what is created, what is deleted, and above all what is not."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_fields

from pileus.cloud.model import Route
from pileus.controllers.route.ownership import readable_ranges
from pileus.controllers.route.plan import (
    CONDITION,
    Memory,
    Plan,
    condition,
    is_available,
    is_worth_a_round,
    route_to,
)
from pileus.kube.model.core_v1 import Node, NodeCondition
from pileus.objects.ownership import owner_by
from pileus.objects.ranges import Range, is_within, parse_range
from tests.unit.controllers.route.objects import (
    RULES,
    START,
    WIDE,
    departed,
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


def test_trap_8_a_route_in_another_spelling_is_the_same_route():
    nodes = [node("n1", "10.1.0.7/24", "FD00:0001:0::/64")]
    listed = [route("10.1.0.0/24", "n1"), route("fd00:1:0:0::/64", "n1")]

    assert planned(nodes, listed) == Plan((), planned(nodes, listed).standings)
    assert planned(nodes, listed).create == ()


def test_a_route_that_was_created_a_moment_ago_is_believed_although_it_is_not_listed():
    memory = Memory(created=frozenset({("n1", parse_range("10.1.0.0/24"))}))

    assert planned([node("n1", "10.1.0.0/24")], [], memory).create == ()


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
        ("nonsense", '"nonsense" is no CIDR'),
        ("10.1.0.0", '"10.1.0.0" is no CIDR'),
        ("10.1.0.0/255.255.255.0", "is no CIDR"),
        ("10.1.0.0/33", "is no CIDR"),
        ("", '"" is no CIDR'),
        ("192.168.0.0/24", "192.168.0.0/24 is not in --cluster-cidr"),
        ("0.0.0.0/0", "0.0.0.0/0 is not in --cluster-cidr"),
        ("8.0.0.0/6", "8.0.0.0/6 is not in --cluster-cidr"),
    ],
)
def test_a_range_that_cannot_have_a_route_is_told_and_the_others_are_served(text, told):
    made = planned([node("odd", text, "fd00:1::/64"), node("n1", "10.1.0.0/24")], [])

    odd, good = made.standings
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
    assert "overlaps 10.1.0.0/24 of node b" in made.standings[0].problems[0]


def test_of_two_nodes_with_one_range_the_one_that_has_the_route_keeps_it():
    young, old = node("a", "10.1.0.0/24", age=1), node("b", "10.1.0.0/24", age=2)

    made = planned([young, old], [route("10.1.0.0/24", "a")])

    assert (made.create, made.delete) == ((), ())
    assert "of node a" in made.standings[1].problems[0]


def test_of_two_nodes_whose_ranges_overlap_neither_loses_a_route_that_is_there():
    nodes = [node("a", "10.1.0.0/24", age=1), node("b", "10.0.0.0/12", age=2)]

    made = planned(nodes, [route("10.1.0.0/24", "a"), route("10.0.0.0/12", "b")])

    assert (made.create, made.delete) == ((), ())
    assert "overlaps 10.0.0.0/12 of node b" in made.standings[0].problems[0]


def test_a_route_that_should_be_made_anew_stays_while_somebody_elses_is_in_the_way():
    outdated = route("10.1.0.0/24", "n1", addresses=())

    made = planned([node("n1", "10.1.0.0/24")], [outdated, route("10.1.0.0/24", None)])

    assert (made.create, made.delete) == ((), ())
    assert "leads elsewhere" in made.standings[0].problems[0]


def test_a_range_that_a_node_names_twice_is_one_route():
    made = planned([node("n1", "10.1.0.0/24", "10.1.0.0/24")], [])

    assert places(made.create) == [("10.1.0.0/24", "n1")]
    assert made.standings[0].problems == ()


NAMES = ("n1", "n2", "n3")
RANGES = (
    *("10.1.0.0/24", "10.2.0.0/24", "10.1.0.0/25", "10.1.0.9/24", "10.0.0.0/8", "0.0.0.0/0"),
    *("fd00:1::/64", "fd00:0001::/64", "fe80::/64", "nonsense", "10.1.0.0"),
)
clusters = st.builds(
    lambda found: [node(name, *ranges, age=age) for name, (ranges, age) in found.items()],
    st.dictionaries(
        st.sampled_from(NAMES),
        st.tuples(st.lists(st.sampled_from(RANGES), max_size=2), st.integers(0, 2)),
    ),
)
tables = st.lists(
    st.builds(
        route,
        st.sampled_from(RANGES),
        st.sampled_from((*NAMES, "elsewhere", None)),
        name=st.sampled_from(("", "uid-n1", "x-uid-n2", "uid-elsewhere")),
        blackhole=st.booleans(),
        cluster=st.sampled_from((None, "", "blue", "green")),
        addresses=st.sampled_from((None, (), (internal("192.168.0.1"),))),
    ),
    max_size=6,
)
memories = st.builds(
    Memory,
    st.frozensets(
        st.builds(departed, st.sampled_from((*NAMES, "gone")), st.sampled_from(RANGES[:6]))
    ),
)
FOREIGN = replace(RULES, whose=owner_by("fake", lambda ref: ref.name != "n3"))
"""Node n3 is one of another cloud."""
rules = st.sampled_from((RULES, WIDE, FOREIGN))


def ranges_of(nodes: Sequence[Node]) -> set[Range]:
    """The ranges of all nodes of this cloud."""
    ours = (each for each in nodes if each.metadata.name != "n3")
    return {found for each in ours for found in readable_ranges(each)}


def performed(made: Plan, listed: Sequence[Route]) -> list[Route]:
    return [*(each for each in listed if each not in made.delete), *made.create]


@given(clusters, tables, memories, rules)
def test_after_a_plan_was_performed_nothing_is_left_to_do(nodes, listed, memory, by):
    after = performed(planned(nodes, listed, memory, by), listed)

    again = planned(nodes, after, memory, by)

    assert (again.create, again.delete) == ((), ())


def is_replaced(gone: Route, made: Plan) -> bool:
    """Whether it leads to no node, and a node that has exactly its range gets a route instead."""
    created = {parse_range(each.destination) for each in made.create}
    return bool(gone.target) and gone.cluster is None and parse_range(gone.destination) in created


@given(clusters, tables, memories, st.sampled_from((RULES, FOREIGN)))
def test_what_is_deleted_was_ours_by_mark_or_record_or_is_replaced(nodes, listed, memory, by):
    known = {each.metadata.name for each in nodes} | {each.node for each in memory.departed}
    uids = {each.metadata.uid for each in nodes} | {each.uid for each in memory.departed}

    made = planned(nodes, listed, memory, by)
    for gone in made.delete:
        assert is_within(parse_range(gone.destination), RULES.ranges)
        assert gone.cluster in {None, "blue"}
        assert gone.cluster == "blue" or (
            gone.target in known
            or gone.blackhole
            or any(uid in gone.name for uid in uids)
            or is_replaced(gone, made)
        )


@given(clusters, tables, memories)
def test_a_node_of_another_cloud_gets_no_route_and_no_condition(nodes, listed, memory):
    made = planned(nodes, listed, memory, FOREIGN)

    assert "n3" not in {each.target for each in made.create}
    assert "n3" not in {each.node.metadata.name for each in made.standings}
    wanted = {parse_range(each.destination) for each in made.create}
    for gone in made.delete:
        assert (
            gone.target != "n3"
            or "n3" not in {each.metadata.name for each in nodes}
            or (parse_range(gone.destination) in wanted | ranges_of(nodes))
        )


@given(clusters, tables, memories, rules)
def test_no_two_nodes_get_routes_to_one_address(nodes, listed, memory, by):
    created = planned(nodes, listed, memory, by).create

    for one in created:
        for other in created:
            if one.target != other.target:
                assert not parse_range(one.destination).overlaps(parse_range(other.destination))


@given(clusters, tables, memories, rules)
def test_a_nodes_route_to_its_own_range_goes_only_if_a_new_one_takes_its_place(
    nodes, listed, memory, by
):
    made = planned(nodes, listed, memory, by)
    own = {(each.metadata.name, one) for each in nodes for one in readable_ranges(each)}
    created = {(each.target, parse_range(each.destination)) for each in made.create}

    deleted = {(each.target, parse_range(each.destination)) for each in made.delete}

    assert deleted & own <= created


@given(tables)
def test_who_knows_nothing_deletes_nothing_unmarked(listed):
    assert {each.cluster for each in planned([], listed).delete} <= {"blue"}


@given(clusters, tables, memories, rules)
def test_what_is_as_it_should_be_is_not_touched(nodes, listed, memory, by):
    right = [route_to(each, parse_range(text)) for each in nodes for text in ("10.77.0.0/24",)][:1]
    nodes = [
        replace_ranges(each, "10.77.0.0/24") if i == 0 else each for i, each in enumerate(nodes)
    ]

    made = planned(nodes, [*right, *listed], memory, by)

    assert not set(right) & {*made.create, *made.delete}


def replace_ranges(before: Node, text: str) -> Node:
    return node(before.metadata.name, text)


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
    (standing,) = planned([node("n1")], [listed], rules=rules).standings

    assert is_available(standing, frozenset(), frozenset()) is False


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
    assert planned([node("n1")], [listed], rules=rules).standings == ()


def test_a_node_whose_routes_were_not_tried_yet_is_neither_available_nor_not():
    (standing,) = planned([node("n1", "10.1.0.0/24", "fd00:1::/64")], []).standings
    one, other = standing.create

    assert is_available(standing, frozenset(), {one}) is None
    assert is_available(standing, {other}, {one}) is False
    assert is_available(standing, frozenset(), frozenset()) is True


def test_heartbeats_and_nodes_without_ranges_cause_no_round():
    one = node("n1", "10.1.0.0/24")
    ready = NodeCondition(type="Ready", status="True")

    assert not is_worth_a_round(one, node("n1", "10.1.0.0/24", conditions=[ready]))
    assert not is_worth_a_round(None, node("n1"))
    assert not is_worth_a_round(node("n1"), node("n1", addresses=["192.168.0.7"]))
    assert is_worth_a_round(one, node("n1", "10.1.0.0/24", addresses=["192.168.0.7"]))
    assert is_worth_a_round(node("n1"), one)
    assert is_worth_a_round(one, None)
