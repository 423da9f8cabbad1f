"""Allocations: reservations are kept, nothing leaks, no range is assigned twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.controllers.ipam.allocator import Allocator
from pileus.controllers.ipam.settings import sizes
from pileus.kube.model.core_v1 import Node, NodeSpec
from pileus.kube.model.meta import ObjectMeta
from tests.unit.controllers.ipam.asked import asked_for


def node(name: str, *ranges: str, uid: str = "") -> Node:
    return Node(
        metadata=ObjectMeta(name=name, uid=uid or f"uid-{name}", resource_version="7"),
        spec=NodeSpec(pod_cidr=ranges[0], pod_cidrs=ranges) if ranges else None,
    )


def allocator(cluster: str, services: str = "") -> Allocator:
    return Allocator(sizes(asked_for(cluster, service_range=services)))


def promised(of: Allocator, name: str, uid: str = "") -> list[str] | None:
    ranges = of.reserve(node(name, uid=uid))
    return None if ranges is None else [str(each) for each in ranges]


def test_a_node_gets_one_range_of_each_family_in_the_clusters_order():
    of = allocator("fd00::/48,10.0.0.0/16")

    assert promised(of, "n1") == ["fd00::/64", "10.0.0.0/24"]
    assert promised(of, "n2") == ["fd00:0:0:1::/64", "10.0.1.0/24"]


def test_a_node_that_is_tried_again_gets_what_it_was_promised():
    of = allocator("10.0.0.0/16")

    assert promised(of, "n1") == promised(of, "n1") == ["10.0.0.0/24"]
    assert promised(of, "n2") == ["10.0.1.0/24"]


def test_a_node_that_was_registered_anew_gets_a_new_range():
    of = allocator("10.0.0.0/23")
    assert promised(of, "n1", "old") == ["10.0.0.0/24"]

    assert promised(of, "n1", "new") == ["10.0.1.0/24"]
    assert promised(of, "n2") == ["10.0.0.0/24"], "what the old one held is free"


def test_defect_19_a_family_that_is_full_takes_nothing_from_the_other():
    of = allocator("10.0.0.0/21,fd00::/63")
    assert all(promised(of, name) for name in ("n1", "n2"))

    for _ in range(100):
        assert promised(of, "n3") is None, "IPv6 has two ranges"
    of.release("n1")

    assert promised(of, "n3") is not None
    left = allocator("10.0.0.0/21")
    assert sum(promised(left, f"n{number}") is not None for number in range(20)) == 8
    of.release("n2")
    of.release("n3")
    names = [f"m{number}" for number in range(20)]
    assert sum(promised(of, name) is not None for name in names) == 2
    for name in names:
        of.release(name)
    assert promised(of, "again") is not None


def test_what_nodes_and_services_have_is_given_to_nobody():
    of = allocator("10.0.0.0/22", "10.0.0.0/24")
    assert of.record(node("old", "10.0.1.0/24")) == ()

    assert promised(of, "n1") == ["10.0.2.0/24"]
    assert promised(of, "n2") == ["10.0.3.0/24"]
    assert promised(of, "n3") is None


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        (("192.168.0.0/24",), "192.168.0.0/24 is not in --cluster-cidr"),
        (("fd00::/64",), "fd00::/64 is not in --cluster-cidr"),
        (("nonsense",), '"nonsense" is not a CIDR'),
        (("10.0.1.0/24",), "10.0.1.0/24 overlaps that of node first"),
        (("10.0.0.0/16",), "overlaps that of node first, the services"),
        (("10.0.0.128/25",), "overlaps that of the services"),
    ],
)
def test_a_range_that_is_odd_is_told_and_the_others_are_served(ranges, told):
    of = allocator("10.0.0.0/16", "10.0.0.0/24")
    of.record(node("first", "10.0.1.0/24"))

    (problem,) = of.record(node("odd", *ranges))

    assert told in problem


def test_a_node_that_got_other_ranges_meanwhile_gives_its_promise_back():
    of = allocator("10.0.0.0/23")
    promised(of, "n1")

    assert of.record(node("n1", "10.0.1.0/24")) == ()

    assert promised(of, "n2") == ["10.0.0.0/24"]
    assert promised(of, "n3") is None


STEPS = st.lists(
    st.tuples(st.sampled_from(("promise", "know", "forget")), st.integers(0, 5), st.integers(0, 3)),
    max_size=40,
)


@given(STEPS)
def test_no_range_is_promised_while_anybody_else_holds_it(steps):
    of = allocator("10.0.0.0/22,fd00::/62")
    held: dict[str, tuple[str, ...]] = {}

    for act, number, place in steps:
        name = f"n{number}"
        if act == "promise":
            ranges = promised(of, name)
            taken = {each for other, mine in held.items() if other != name for each in mine}
            if ranges is None:
                assert name not in held
                assert (
                    len(taken & {f"10.0.{at}.0/24" for at in range(4)}) == 4
                    or len(
                        taken & {f"fd00:0:0:{at}::/64" if at else "fd00::/64" for at in range(4)}
                    )
                    == 4
                )
            else:
                assert name in held or not taken & set(ranges)
                held[name] = tuple(ranges)
        elif act == "know":
            held[name] = (f"10.0.{place}.0/24",)
            of.record(node(name, *held[name]))
        else:
            held.pop(name, None)
            of.release(name)
