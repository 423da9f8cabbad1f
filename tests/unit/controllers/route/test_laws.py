"""What holds for every cluster, every route table and every record. Property-based."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from pileus.cloud.model import Route
from pileus.controllers.route.ownership import readable_ranges
from pileus.controllers.route.plan import (
    route_to,
)
from pileus.controllers.route.record import NOTHING, Recorded
from pileus.kube.model.core_v1 import Node
from pileus.objects.ownership import owner_by
from pileus.objects.ranges import Range, is_within, parse_range
from tests.unit.controllers.route.objects import (
    RULES,
    WIDE,
    Made,
    deleted,
    internal,
    node,
    planned,
    route,
)

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
records = st.builds(
    Recorded,
    st.frozensets(
        st.builds(deleted, st.sampled_from((*NAMES, "gone")), st.sampled_from(RANGES[:6]))
    ),
    created=st.frozensets(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(RANGES[:6]).map(parse_range))
    ),
)
FOREIGN = replace(RULES, whose=owner_by("fake", lambda ref: ref.name != "n3"))
"""Node n3 is one of another cloud."""
rules = st.sampled_from((RULES, WIDE, FOREIGN))


def ranges_of(nodes: Sequence[Node]) -> set[Range]:
    """The ranges of all nodes of this cloud."""
    ours = (each for each in nodes if each.metadata.name != "n3")
    return {found for each in ours for found in readable_ranges(each)}


def performed(made: Made, listed: Sequence[Route]) -> list[Route]:
    return [*(each for each in listed if each not in made.delete), *made.create]


@given(clusters, tables, records, rules)
def test_after_a_plan_was_performed_nothing_is_left_to_do(nodes, listed, recorded, by):
    after = performed(planned(nodes, listed, recorded, by), listed)

    again = planned(nodes, after, recorded, by)

    assert (again.create, again.delete) == ((), ())


def is_replaced(gone: Route, made: Made) -> bool:
    """Whether it leads to no node, and a node that has exactly its range gets a route instead."""
    created = {parse_range(each.destination) for each in made.create}
    return bool(gone.target) and gone.cluster is None and parse_range(gone.destination) in created


@given(clusters, tables, records, st.sampled_from((RULES, FOREIGN)))
def test_what_is_deleted_was_ours_by_mark_or_record_or_is_replaced(nodes, listed, recorded, by):
    known = {each.metadata.name for each in nodes} | {each.node for each in recorded.deleted}
    uids = {each.metadata.uid for each in nodes} | {each.uid for each in recorded.deleted}

    made = planned(nodes, listed, recorded, by)
    for gone in made.delete:
        assert is_within(parse_range(gone.destination), RULES.ranges)
        assert gone.cluster in {None, "blue"}
        assert gone.cluster == "blue" or (
            gone.target in known
            or gone.blackhole
            or any(uid in gone.name for uid in uids)
            or is_replaced(gone, made)
        )


@given(clusters, tables, records)
def test_a_node_of_another_cloud_gets_no_route_and_no_condition(nodes, listed, recorded):
    made = planned(nodes, listed, recorded, FOREIGN)

    assert "n3" not in {each.target for each in made.create}
    assert "n3" not in {each.node.metadata.name for each in made.reports}
    wanted = {parse_range(each.destination) for each in made.create}
    for gone in made.delete:
        assert (
            gone.target != "n3"
            or "n3" not in {each.metadata.name for each in nodes}
            or (parse_range(gone.destination) in wanted | ranges_of(nodes))
        )


@given(clusters, tables, records)
def test_a_node_of_another_cloud_to_which_no_route_leads_changes_nothing(nodes, listed, recorded):
    others = [each for each in listed if each.target != "n3"]
    ours = [each for each in nodes if each.metadata.name != "n3"]

    assert planned(nodes, others, recorded, FOREIGN) == planned(ours, others, recorded, FOREIGN)


@given(clusters, tables, records, rules)
def test_no_two_nodes_get_routes_to_one_address(nodes, listed, recorded, by):
    created = planned(nodes, listed, recorded, by).create

    for one in created:
        for other in created:
            if one.target != other.target:
                assert not parse_range(one.destination).overlaps(parse_range(other.destination))


SHARED = "10.1.0.0/24"


@example([node("n1", SHARED), node("n3", SHARED)], [route(SHARED, "n3")], NOTHING, FOREIGN)
@example(
    [node("n1", SHARED), node("n2", SHARED, age=1)],
    [route(SHARED, "n2", blackhole=True)],
    Recorded(created=frozenset({("n1", parse_range(SHARED))})),
    RULES,
)
@given(clusters, tables, records, rules)
def test_a_nodes_route_to_its_own_range_goes_only_if_a_new_one_takes_its_place(
    nodes, listed, recorded, by
):
    made = planned(nodes, listed, recorded, by)
    ours = [each for each in nodes if by.is_managed(each)]
    own = {(each.metadata.name, one) for each in ours for one in readable_ranges(each)}
    created = {(each.target, parse_range(each.destination)) for each in made.create}

    deleted = {(each.target, parse_range(each.destination)) for each in made.delete}

    assert deleted & own <= created


@given(tables)
def test_who_knows_nothing_deletes_nothing_unmarked(listed):
    assert {each.cluster for each in planned([], listed).delete} <= {"blue"}


@given(clusters, tables, records, rules)
def test_what_is_as_it_should_be_is_not_touched(nodes, listed, recorded, by):
    right = [route_to(each, parse_range(text)) for each in nodes for text in ("10.77.0.0/24",)][:1]
    nodes = [
        replace_ranges(each, "10.77.0.0/24") if i == 0 else each for i, each in enumerate(nodes)
    ]

    made = planned(nodes, [*right, *listed], recorded, by)

    assert not set(right) & {*made.create, *made.delete}


def replace_ranges(before: Node, text: str) -> Node:
    return node(before.metadata.name, text)
