"""What providers declare of their clouds, and what is refused of it."""

from dataclasses import replace
from math import inf
from typing import Any, cast

import pytest

from pileus.cloud.abilities import (
    DEFAULT_AFFINITY_SECONDS,
    Abilities,
    Affinity,
    Batches,
    Deadlines,
    Limits,
    PagedList,
    Requests,
    problems,
)
from pileus.cloud.connection import verify
from pileus.cloud.errors import Misconfigured, Throttled
from pileus.cloud.interface import Cloud
from pileus.cloud.members import given_members, with_known_id
from pileus.cloud.model import NodeName, NodeRef
from pileus.providers.openstack import balancers as openstack
from pileus.providers.openstack.config import LoadBalancer, OpenStackConfig
from pileus.runtime.failure import hint
from pileus_lab.local.connect import ABILITIES as LOCAL
from tests.unit.cloud.fakes import FakeBalancers, FakeRoutes


def node(name: str, **parts: Any) -> NodeRef:
    return NodeRef(name=NodeName(name), **parts)


def test_defaults_are_valid_and_describe_a_cloud_that_can_do_everything():
    assert problems(Abilities()) == ()
    assert Abilities().affinity is Affinity.SECONDS
    assert Abilities().source_ranges
    assert Abilities().requests == Requests(lists=1, page_size=None, per_balancer=0)


def test_each_list_is_counted_with_its_own_pages():
    """One page size for all lists allowed many times the requests that were needed."""
    balancers = PagedList(page_size=400, per_balancer=1)
    tags = PagedList(page_size=20, per_balancer=1)
    groups = PagedList(page_size=400, per_balancer=5)
    machines = PagedList(page_size=1000, per_machine=1)
    tables = PagedList(page_size=100, per_route=1)
    named = Requests(lists=(balancers, tags, groups, machines, tables))
    coarse = Requests(lists=4, page_size=20, items_per_balancer=5)

    assert named.of_lists(balancers=800, machines=1000) == 2 + 40 + 10 + 1
    assert coarse.of_lists(balancers=800, machines=1000) == 4 * 200
    assert named.of_routes(routes=1000, machines=1000) == 10 + 1
    assert Requests().of_lists(800, 1000) == 1


@pytest.mark.parametrize("declared", [openstack.ABILITIES, LOCAL], ids=["openstack", "local"])
def test_shipped_providers_declare_what_a_change_costs(declared: Abilities):
    assert declared.requests
    assert declared.requests.per_change is not None


def test_openstack_declares_no_bound_for_changes_of_security_groups():
    config = OpenStackConfig(load_balancer=LoadBalancer(manage_security_groups=True))
    requests = openstack.abilities_of(config).requests

    assert requests
    assert requests.per_change is None


def test_a_change_may_cost_more_for_each_member():
    assert Requests().of_change(7) is None
    assert Requests(per_change=2, per_member_change=3).of_change(7) == 23


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (None, "abilities must be an Abilities, not NoneType"),
        (Abilities(affinity=cast("Any", "sometimes")), "abilities.affinity must be an Affinity"),
        (Abilities(marks_routes=cast("Any", 1)), "abilities.marks_routes must be True or False"),
        (Abilities(limits=Limits(per_second=0)), "abilities.limits.per_second must be 0.001"),
        (Abilities(limits=Limits(burst=0)), "abilities.limits.burst must be 1 or more"),
        (Abilities(batches=Batches(size=0)), "abilities.batches.size must be 1 or more"),
        (Abilities(deadlines=Deadlines(read=inf)), "abilities.deadlines.read"),
        (Abilities(requests=Requests(page_size=0)), "abilities.requests.page_size must be 1"),
        (Abilities(requests=Requests(per_change=0)), "abilities.requests.per_change must be 1"),
        (Abilities(requests=Requests(lists=())), "lists must be a number, or name at least one"),
        (
            Abilities(requests=Requests(lists=(PagedList(page_size=0),))),
            "abilities.requests.lists[0].page_size must be 1 or more",
        ),
        (
            Abilities(requests=Requests(lists=(PagedList(per_balancer=-1),))),
            "abilities.requests.lists[0] must not have negative numbers",
        ),
        (
            Abilities(requests=Requests(lists=(PagedList(per_balancer=1),))),
            "abilities.requests.lists names no list of routes, but the cloud has routes",
        ),
        (Abilities(families=frozenset()), "abilities.families must be a frozenset of IPv4, IPv6"),
        (Abilities(families=frozenset({"IPv5"})), "abilities.families must be a frozenset"),
        (Abilities(deadlines=Deadlines(read=230)), "more than the 240 s that controllers wait"),
        (Abilities(batches=Batches(size=5000)), "abilities.batches.size=5000 items may take"),
    ],
)
def test_a_contradictory_declaration_is_refused_with_the_provider_and_the_ability(
    wrong: Any, named: str
):
    cloud = Cloud(name="acme", balancers=FakeBalancers(), routes=FakeRoutes(), abilities=wrong)

    with pytest.raises(Misconfigured, match='cloud provider "acme"') as refused:
        verify("acme", cloud)

    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("abilities", "lacks"),
    [
        (Abilities(marks_routes=True), "routes"),
        (Abilities(members_by_provider_id=True), "balancers"),
        (Abilities(changes_while_provisioning=True), "balancers"),
        (Abilities(member_labels=frozenset({"zone"})), "balancers"),
    ],
)
def test_a_promise_about_what_the_cloud_does_not_have_is_refused(abilities: Abilities, lacks: str):
    whole = Cloud(name="acme", balancers=FakeBalancers(), routes=FakeRoutes(), abilities=abilities)
    verify("acme", whole)

    with pytest.raises(Misconfigured, match=f"the cloud has no {lacks}"):
        verify("acme", replace(whole, **{lacks: None}))


def test_affinity_is_given_as_the_cloud_can_do_it():
    def given(affinity: Affinity, seconds: int | None) -> int | None:
        return Abilities(affinity=affinity).stickiness(seconds)

    assert given(Affinity.SECONDS, 60) == 60
    assert given(Affinity.ON_OFF, 60) == DEFAULT_AFFINITY_SECONDS
    assert given(Affinity.NONE, 60) is None
    assert {given(each, None) for each in Affinity} == {None}


def test_requests_of_an_observation_count_pages_and_parts():
    assert Requests().of_check(1000, 1000) == 1
    assert Requests(lists=2, page_size=100).of_check(0, 0) == 2
    assert Requests(lists=2, page_size=100).of_check(101, 0) == 4
    assert Requests(lists=2, page_size=100, per_balancer=3).of_check(101, 10) == 34


def test_members_carry_what_the_provider_declared_and_nothing_else():
    labelled = node("a", labels={"zone": "x", "other": "y"}, annotations={"seen": "now"})
    members = frozenset({labelled, node("b", provider_id="acme://1")})

    (plain,) = [one for one in given_members(members, Abilities()) if one.name == "a"]
    assert dict(plain.labels) == dict(plain.annotations) == {}
    wants_zone = Abilities(member_labels=frozenset({"zone", "rack"}))
    (given,) = [one for one in given_members(members, wants_zone) if one.name == "a"]
    assert dict(given.labels) == {"zone": "x"}
    by_id = Abilities(members_by_provider_id=True)
    assert {one.name for one in given_members(members, by_id)} == {"b"}


def test_a_node_that_registers_again_keeps_the_provider_id_of_the_same_machine():
    before = node("a", provider_id="acme://1", system_uuid="U-1")

    again = with_known_id(node("a", system_uuid="U-1"), before)
    assert again.provider_id == "acme://1"
    assert with_known_id(node("a", system_uuid="U-2"), before).provider_id == ""
    assert with_known_id(node("a"), node("a", provider_id="acme://1")).provider_id == ""
    own = node("a", provider_id="acme://2", system_uuid="U-1")
    assert with_known_id(own, before) == own


def test_throttled_without_a_time_is_retried_with_back_off():
    assert Throttled("slow down").retry_after is None
    assert hint(Throttled("slow down")) is None
    assert hint(Throttled("slow down", retry_after=7)) == 7
