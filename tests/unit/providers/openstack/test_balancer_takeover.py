"""Load balancers that the Go program created are taken over by proof alone, and handed back."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pileus.cloud.balancer import BalancerSpec, Listener, Owner, Part, Transport, Wish
from pileus.cloud.errors import Misconfigured, Unsupported
from pileus.cloud.model import Address, NodeName, NodeRef
from pileus.cloud.selectors import EVERY_NODE, parse_selector
from pileus.providers.openstack.annotations import INTERNAL, PROXY_PROTOCOL, X_FORWARDED_FOR
from pileus.providers.openstack.config import LoadBalancer, OpenStackConfig
from pileus_lab.openstack.state import Record, Settings
from tests.unit.providers.openstack.balancer_site import Site

CREATED = json.loads((Path(__file__).parent / "go_created.json").read_text())["loadbalancers"]
"""What the Go cloud-controller-manager 1.36 created for the Services `plain` and `multi`."""
MULTI = "c1674e41-8626-4cac-99f1-7188beccdc84"
NODES = frozenset(
    NodeRef(
        name=NodeName(f"ref-node-{n}"),
        provider_id=f"openstack:///server-{n}",
        addresses=(Address("InternalIP", f"10.9.0.1{n}"),),
    )
    for n in (1, 2)
)
SPEC = BalancerSpec(
    listeners=frozenset({
        Listener(port=80, node_port=30352, position=0),
        Listener(port=443, node_port=30409, position=1),
        Listener(port=53, node_port=32062, transport=Transport.UDP, position=2),
    }),
    members=NODES,
    source_ranges=frozenset({"10.0.0.0/8", "192.168.0.0/16"}),
)
WISH = Wish(
    owner=Owner("cluster-1", "8b6cfa41-6763-4cc5-9806-7a868097f3fe"),
    spec=SPEC,
    namespace="default",
    service="multi",
)
PUBLISHED = replace(WISH, published=frozenset({"198.51.100.211"}))
HOST_NAME = frozenset({"multi.example.com"})
"""In the status of a Service with the annotation `hostname`, instead of the address."""
NAMED = replace(WISH, adopts=MULTI, may_use_foreign=True, published=HOST_NAME)
FOR = "pileus.dev/for=cluster-1/default/multi"
KINDS = ("loadbalancers", "listeners", "pools", "members", "healthmonitors", "floatingips")
VOLATILE = {"tags", "updated_at", "revision_number", "provisioning_status", "operating_status"}


def site() -> Site:
    """A project in which the Go program was at work."""
    made = Site(nodes=0, cluster_name="ref", create_monitor=True)
    for one in CREATED:
        _put(made, "loadbalancers", one["loadbalancer"])
        _put(made, "ports", one["vip_port"])
        for listener in one["listeners"]:
            _put(made, "listeners", listener)
        for floating in one["floatingips"]:
            _put(made, "floatingips", floating)
        for pool in one["pools"]:
            _put_pool(made, pool)
    return made


def _put(made: Site, kind: str, record: Record) -> None:
    made.api.state = made.api.state.put(kind, dict(record))


def _put_pool(made: Site, pool: dict[str, Any]) -> None:
    _put(made, "pools", {key: value for key, value in pool.items() if key[0] != "_"})
    _put(made, "healthmonitors", pool["_healthmonitor"])
    for member in pool["_members"]:
        _put(made, "members", member)


def objects(made: Site) -> dict[str, dict[str, Any]]:
    """Everything but tags."""
    return {
        one["id"]: {key: value for key, value in one.items() if key not in VOLATILE}
        for kind in KINDS
        for one in made.api.records(kind)
    }


def tags(made: Site) -> dict[str, list[str]]:
    kinds = (*KINDS[:3], "floatingips")
    return {one["id"]: sorted(one["tags"]) for kind in kinds for one in made.api.records(kind)}


@pytest.mark.parametrize(
    "wish", [NAMED, PUBLISHED], ids=["annotation in a trusted namespace", "published address"]
)
async def test_it_is_taken_over_and_only_marks_are_added(wish: Wish) -> None:
    made = site()
    before = objects(made)

    lines = await made.plan(wish)
    assert lines[0] == f"~ tags of load balancer {MULTI}: mark of this Service"
    assert len(lines) == 8
    assert all(" tags of " in line for line in lines)
    seen = await made.settle(wish, deep=True)

    assert objects(made) == before
    assert seen.balancer is not None
    assert (seen.balancer.id, seen.balancer.ingress[0].ip) == (MULTI, "198.51.100.211")
    mark = {f"pileus.dev/cluster={WISH.owner.cluster}", f"pileus.dev/service={WISH.owner.uid}"}
    parts = [one for kind in ("listeners", "pools") for one in made.api.records(kind)]
    ours = [made.balancer("kube_service_ref_default_multi"), *filter(_is_of_multi, parts)]
    assert len(ours) == 7
    assert all(mark <= set(one["tags"]) for one in ours)


def _is_of_multi(record: Record) -> bool:
    return bool(record["loadbalancers"][0]["id"] == MULTI)


async def test_every_line_of_the_plan_is_about_tags() -> None:
    made = site()
    for _ in range(20):
        seen = await made.seen(NAMED, deep=True)
        changes = made.balancers.changes(NAMED, seen)
        assert all("tags of" in one.summary for one in changes), changes
        await made.apply(changes, seen)
    assert await made.changes(NAMED, deep=True) == ()


async def test_what_is_left_is_found_by_the_go_program() -> None:
    """It finds load balancers by name, and listeners by protocol, port and its tag."""
    made = site()
    before = tags(made)

    await made.settle(NAMED, deep=True)

    after = tags(made)
    assert all(set(before[id_]) <= set(after[id_]) for id_ in before)


async def test_a_name_alone_is_no_proof_and_no_second_one_is_created() -> None:
    made = site()
    before = objects(made), tags(made)

    with pytest.raises(Misconfigured, match=rf"nothing proves.*set --tag {FOR} ID") as refusal:
        await made.settle(WISH)

    assert MULTI not in str(refusal.value)

    assert (objects(made), tags(made)) == before


MEMBERS = ("the same", "others", "none", "selected by the Service", "selected by cloud.conf")


def with_members(made: Site, which: str) -> Wish:
    """Returns the wish of the Service; all nodes of before were exchanged, but for the first."""
    new = replace(made.add_node("new"), labels={"pool": "new"})
    if which == "selected by cloud.conf":
        made.config = OpenStackConfig(
            load_balancer=LoadBalancer(node_selector="pool=new", create_monitor=True)
        )
        made.restart()
    members = {"the same": NODES, "none": frozenset[NodeRef]()}.get(which, frozenset({new}))
    selects = which == "selected by the Service"
    selector = parse_selector("pool=new") if selects else EVERY_NODE
    return replace(WISH, spec=replace(SPEC, members=members), selector=selector)


@pytest.mark.parametrize("which", MEMBERS)
async def test_whose_a_load_balancer_is_does_not_depend_on_its_members(which: str) -> None:
    """Without proof nothing is changed or created; with any, it is taken over."""
    made = site()
    wish = with_members(made, which)
    before = objects(made), tags(made)

    with pytest.raises(Misconfigured, match="nothing proves"):
        await made.settle(wish)
    copied = replace(wish, adopts=MULTI, may_use_foreign=True)
    with pytest.raises(Misconfigured, match="nothing proves that it is this one"):
        await made.settle(copied)
    assert (objects(made), tags(made)) == before

    for proof in (
        replace(wish, published=PUBLISHED.published),
        replace(copied, published=HOST_NAME),
    ):
        assert (await made.plan(proof))[
            0
        ] == f"~ tags of load balancer {MULTI}: mark of this Service"
    made.api.change("loadbalancers", MULTI, {"tags": [FOR, "kube_service_ref_default_multi"]})
    assert (await made.plan(wish))[0] == f"~ tags of load balancer {MULTI}: mark of this Service"


@pytest.mark.parametrize("published", [frozenset[str](), frozenset({"198.51.100.7"})])
async def test_a_copied_annotation_takes_nothing_from_another_cluster(
    published: frozenset[str],
) -> None:
    """The Service was copied into a cluster of the same name that trusts its namespace, too."""
    made = site()
    before = objects(made), tags(made)

    with pytest.raises(Misconfigured, match=f"set --tag {FOR} {MULTI}"):
        await made.settle(replace(NAMED, published=published))

    assert (objects(made), tags(made)) == before


async def test_an_operator_says_that_one_of_the_same_name_is_of_another_cluster() -> None:
    made = site()
    made.nodes = [made.add_node("node-1")]
    wish = replace(WISH, spec=replace(SPEC, members=frozenset(made.nodes)))
    with pytest.raises(Misconfigured, match=r"is of another cluster.*pileus\.dev/cluster="):
        await made.settle(wish)
    known = made.api.record("loadbalancers", MULTI)["tags"]
    made.api.change("loadbalancers", MULTI, {"tags": [*known, "pileus.dev/cluster=cluster-2"]})
    before = objects(made), tags(made)

    seen = await made.settle(wish)

    assert seen.balancer is not None
    assert seen.balancer.id != MULTI
    kept = {id_: one for id_, one in objects(made).items() if id_ in before[0]}
    assert kept == before[0]
    assert {id_: one for id_, one in tags(made).items() if id_ in before[1]} == before[1]


async def test_two_clusters_of_one_name_do_not_touch_each_others_load_balancers() -> None:
    made = Site(nodes=2)
    ours = made.wish()
    theirs = replace(ours, owner=Owner("cluster-2", ours.owner.uid))
    await made.settle(ours, deep=True)
    before = {one["id"] for one in made.api.records("loadbalancers")}

    await made.settle(theirs)
    assert len(made.api.records("loadbalancers")) == 2
    await made.delete(theirs)

    assert {one["id"] for one in made.api.records("loadbalancers")} == before
    assert await made.changes(ours, deep=True) == ()


async def test_a_legacy_name_is_taken_over() -> None:
    made = site()
    legacy = "a" + WISH.owner.uid.replace("-", "")[:31]
    made.api.change("loadbalancers", MULTI, {"name": legacy, "tags": []})

    await made.settle(PUBLISHED, deep=True)

    balancer = made.api.record("loadbalancers", MULTI)
    assert f"pileus.dev/service={WISH.owner.uid}" in balancer["tags"]
    assert len(made.api.records("loadbalancers")) == 2


async def test_one_that_was_taken_over_is_deleted_with_its_service() -> None:
    made = site()
    await made.settle(NAMED, deep=True)

    await made.settle(replace(NAMED, spec=None, adopts=""))

    assert [one["name"] for one in made.api.records("loadbalancers")] == [
        "kube_service_ref_default_plain"
    ]
    assert [one["floating_ip_address"] for one in made.api.records("floatingips")] == [
        "198.51.100.188"
    ]


async def test_one_in_error_that_was_taken_over_is_not_deleted() -> None:
    made = site()
    seen = await made.seen(NAMED)
    await made.apply(made.balancers.changes(NAMED, seen)[:1], seen)
    made.api.finish(MULTI)
    made.api.change("loadbalancers", MULTI, {"provisioning_status": "ERROR"})

    seen = await made.seen(NAMED, deep=True)

    assert made.balancers.changes(NAMED, seen) == ()
    assert seen.balancer is not None
    assert f"openstack loadbalancer failover {MULTI}" in seen.balancer.problem


async def test_one_that_is_open_despite_source_ranges_is_kept_as_it_is() -> None:
    """The Go manager ignores ranges that Octavia before 2.12 cannot apply, with a warning."""
    made = Site(nodes=2, settings=Settings(octavia_minor=11))
    seen = await made.settle(made.wish(), deep=True)
    assert seen.balancer is not None
    as_of_the_go_manager(made)
    before = objects(made), tags(made)
    ranges = made.spec(source_ranges=frozenset({"192.0.2.0/24"}))
    published = frozenset(one.ip for one in seen.balancer.ingress)
    wish = made.wish(ranges, published=published)

    with pytest.raises(Unsupported, match=r"is not changed. Fix: remove the ranges"):
        await made.settle(wish, deep=True)

    assert (objects(made), tags(made)) == before
    kept = (await made.seen(wish, deep=True)).balancer
    assert kept is not None
    assert (kept.id, kept.ingress) == (seen.balancer.id, seen.balancer.ingress)


async def test_one_whose_service_is_deleted_before_the_take_over_is_reported_and_kept() -> None:
    made = site()
    before = objects(made)

    with pytest.raises(Misconfigured, match=f"openstack loadbalancer delete --cascade {MULTI}"):
        await made.settle(replace(PUBLISHED, spec=None))

    assert objects(made) == before


async def test_deletion_ends_once_the_unmarked_one_was_deleted() -> None:
    made = site()
    made.api.state = made.api.state.without("loadbalancers", [MULTI])

    await made.settle(replace(PUBLISHED, spec=None))


Asked: TypeAlias = tuple[frozenset[int], int, bool, bool]
"""Ports, number of nodes, session affinity, source ranges."""
SPECS = st.builds(
    lambda ports, nodes, sticky, ranges: (ports, nodes, sticky, ranges),
    st.frozensets(st.sampled_from([80, 443, 8080]), min_size=1),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)


OPTIONS = st.sampled_from([
    {},
    {INTERNAL.name: "true"},
    {PROXY_PROTOCOL.name: "v2"},
    {X_FORWARDED_FOR.name: "true"},
])
CONFIGS = st.fixed_dictionaries(
    dict.fromkeys(
        ("create_monitor", "manage_security_groups", "provider_requires_serial_api_calls"),
        st.booleans(),
    )
)


@settings(max_examples=50, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(SPECS, SPECS, OPTIONS, OPTIONS, CONFIGS)
def test_a_take_over_does_what_its_plan_shows_and_nothing_else(
    before: Asked,
    after: Asked,
    was: dict[str, str],
    now: dict[str, str],
    config: dict[str, Any],
) -> None:
    asyncio.run(_taken_over_as_planned(Site(nodes=3, **config), (before, after), was, now))


async def _taken_over_as_planned(
    made: Site, specs: tuple[Asked, Asked], was: dict[str, str], now: dict[str, str]
) -> None:
    """The Service is changed while the Go manager is stopped."""
    before, after = specs
    seen = await made.settle(made.wish(asked(made, before), options=was))
    assert seen.balancer is not None
    published = frozenset(one.ip for one in seen.balancer.ingress)
    as_of_the_go_manager(made)
    wish = made.wish(asked(made, after), options=now, published=published)

    shown = await made.plan(wish)
    made_by_us = await performed(made, wish)

    assert made_by_us == {*shown}, "the plan of the take-over shows something else"


def as_of_the_go_manager(made: Site) -> None:
    """Removes every mark of ours."""
    for kind in (*KINDS[:3], "floatingips"):
        for one in made.api.records(kind):
            kept = [tag for tag in one["tags"] if tag.startswith("kube_service_")]
            made.api.change(kind, one["id"], {"tags": kept})


def asked(made: Site, one: Asked) -> BalancerSpec:
    ports, nodes, is_sticky, is_restricted = one
    return made.spec(
        made.nodes[:nodes],
        listeners=frozenset(Listener(port=port, node_port=30000 + port) for port in ports),
        sticky_seconds=10800 if is_sticky else None,
        source_ranges=frozenset({"192.0.2.0/24"} if is_restricted else ()),
    )


async def performed(made: Site, wish: Wish) -> set[str]:
    """Returns the lines of all changes until nothing is left to change, without records."""
    lines: set[str] = set()
    for _ in range(60):
        seen = await made.seen(wish, deep=True)
        changes = made.balancers.changes(wish, seen)
        if not changes and not seen.is_busy:
            return lines
        for change in changes:
            if change.part is not Part.RECORD:
                lines.add(f"{change.effect} {change.summary}")
            seen = await made.balancers.apply(change, seen)
            if seen.is_busy:
                break
        made.api.now += 1
    raise AssertionError("not reached")
