"""How many requests load balancers of OpenStack cost, counted on the model."""

from dataclasses import replace

import pytest

from pileus.cloud.balancer import Listener, Wish
from pileus.providers.openstack.api import Call
from pileus.providers.openstack.balancer_seen import Seen
from pileus.providers.openstack.balancers import ABILITIES, MOST_POOLS
from tests.unit.providers.openstack.balancer_site import Site, owner_of

ONE_PORT = frozenset({Listener(port=80, node_port=30080)})


async def test_three_ports_on_fifty_nodes_are_created_with_at_most_eight_writes() -> None:
    site = Site(nodes=50)

    await site.settle(site.wish())

    assert len(site.listeners()) == 3
    assert len(site.members(443)) == 50
    assert len(site.writes) <= 8


async def test_a_creation_costs_one_write_of_octavia_and_reads_nothing_that_it_wrote() -> None:
    site = Site(nodes=3)

    await site.settle(site.wish())

    assert [one for one in site.writes if "lbaas" in one] == ["POST /v2.0/lbaas/loadbalancers"]
    read = {call.path for call in site.reads}
    assert not {one for one in read if "listeners" in one or "members" in one}


async def test_a_check_after_a_start_costs_what_is_declared_also_with_security_groups() -> None:
    site = Site(manage_security_groups=True, create_monitor=True)
    ports = frozenset(Listener(port=80 + n, node_port=30080 + n) for n in range(MOST_POOLS))
    wish = site.wish(site.spec(listeners=ports))
    await site.settle(wish)
    site.restart()
    site.api.calls.clear()

    await site.seen(wish, deep=True)

    assert ABILITIES.requests is not None
    most = ABILITIES.requests.of_check(balancers=1, read=1, machines=len(site.nodes))
    assert len(site.reads) == most


async def test_what_empty_lists_lack_is_looked_up_once_by_its_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(create_monitor=True)
    ports = frozenset(Listener(port=80 + n, node_port=30080 + n) for n in range(MOST_POOLS))
    wish = site.wish(site.spec(listeners=ports))
    await site.settle(wish)
    sound = site.api.call

    async def without_items(call: Call) -> object:
        answer = await sound(call)
        return {key: [] if isinstance(found, list) else found for key, found in answer.items()}

    monkeypatch.setattr(site.api, "call", without_items)
    site.api.calls.clear()
    await site.seen(wish, deep=True)

    by_id = [call.path for call in site.reads if call.path.count("/") == 4]
    of_parts = [path for path in by_id if "healthmonitors" not in path]
    assert len(set(of_parts)) == len(of_parts) == 1 + 2 * MOST_POOLS, "balancer, listeners, pools"
    assert ABILITIES.requests is not None
    most = ABILITIES.requests.of_check(balancers=1, read=1, machines=len(site.nodes))
    assert most < len(site.reads) <= 2 * most, "as the simulation allows"


async def test_a_load_balancer_that_octavia_works_on_costs_one_read_per_check() -> None:
    site = Site()
    wishes = [site.wish(service="web-1"), site.wish(service="web-2")]
    for wish in wishes:
        await site.settle(wish)
    for one in site.api.records("loadbalancers"):
        site.api.change("loadbalancers", one["id"], {"provisioning_status": "PENDING_UPDATE"})
    for asked in (wishes, wishes[:1], [replace(wishes[0], spec=None)]):
        site.api.calls.clear()
        await site.balancers.observe(asked, deep=False)
        assert [call.path for call in site.reads] == ["/v2.0/lbaas/loadbalancers"]


async def test_a_deletion_reads_no_parts_and_looks_for_nothing_else_afterwards() -> None:
    site = Site()
    published = frozenset({"203.0.113.9"})
    await site.settle(site.wish(published=published))
    site.api.calls.clear()

    await site.delete(site.wish(published=published))

    assert site.api.records("loadbalancers") == []
    read = [call for call in site.reads if "lbaas" in call.path]
    assert {call.path for call in read} == {"/v2.0/lbaas/loadbalancers"}
    assert all("tags" in dict(call.query) for call in read)


async def test_a_node_that_is_added_costs_no_read_of_the_members_that_were_written() -> None:
    site = Site(nodes=2)
    wish = site.wish(site.spec(listeners=ONE_PORT))
    await site.settle(wish)
    spec = site.spec([*site.nodes, site.add_node("new")], listeners=ONE_PORT)
    site.api.calls.clear()

    await site.settle(replace(wish, spec=spec))

    assert len([call for call in site.reads if call.path.endswith("/members")]) == 1
    assert len(site.members(80)) == 3


async def test_what_another_client_changed_meanwhile_is_noticed() -> None:
    site = Site(nodes=2)
    wish = site.wish(site.spec(listeners=ONE_PORT))
    seen = await site.seen(wish)
    await site.apply(site.balancers.changes(wish, seen), seen)
    site.api.now += 30
    pool = site.pool(80)["id"]
    site.octavia("PUT", f"pools/{pool}/members", {"members": []})
    site.api.now += 30

    await site.settle(wish)

    assert len(site.members(80)) == 2


async def test_an_unchanged_load_balancer_costs_no_write_and_at_most_four_reads() -> None:
    """And another one after a start: another program may have changed its listeners."""
    site = Site(nodes=50)
    wish = site.wish()
    await site.settle(wish, deep=True)

    for is_new_process in (False, True):
        if is_new_process:
            site.restart()
        site.api.calls.clear()
        assert await site.changes(wish) == ()
        assert site.writes == []
        assert len(site.reads) <= 4 + is_new_process


async def test_a_node_that_is_added_costs_one_write_per_pool() -> None:
    site = Site(nodes=3)
    wishes = [site.wish(service=f"web-{n}") for n in range(100)]
    for wish in wishes:
        await site.settle(wish)
    site.api.calls.clear()
    spec = site.spec([*site.nodes, site.add_node("new")])

    for wish in wishes:
        await site.settle(replace(wish, spec=spec))

    assert len(site.writes) <= len(site.api.records("pools")) == 300
    assert all(len(pool["members"]) == 4 for pool in site.api.records("pools"))


async def test_after_a_node_was_added_a_check_costs_no_write_and_at_most_four_reads() -> None:
    site = Site(nodes=2)
    await site.settle(site.wish())
    more = site.wish(site.spec([*site.nodes, site.add_node("new")]))
    await site.settle(more)
    site.api.calls.clear()

    assert await site.changes(more) == ()

    assert site.writes == []
    assert len(site.reads) <= 4


async def test_a_restart_reads_each_list_once() -> None:
    site = Site(nodes=1, internal_lb=True)
    spec = site.spec(listeners=ONE_PORT)
    wishes = [site.wish(spec, service=f"web-{n}") for n in range(300)]
    await _settle_all(site, wishes)
    site.restart()

    observed = await site.balancers.observe(wishes, deep=False)

    assert all(
        isinstance(seen := observed[wish.owner], Seen)
        and seen.balancer is not None
        and not site.balancers.changes(wish, seen)
        for wish in wishes
    )
    assert site.writes == []
    assert sorted(call.path for call in site.reads) == [
        "/",
        "/v2.0/floatingips",
        "/v2.0/lbaas/listeners",
        "/v2.0/lbaas/loadbalancers",
        "/v2.0/lbaas/pools",
    ]


async def _settle_all(site: Site, wishes: list[Wish]) -> None:
    """Each has had its first full check."""
    for wish in wishes:
        await site.settle(wish, deep=True)


async def test_many_services_are_checked_by_lists_and_not_one_by_one() -> None:
    site = Site()
    wishes = [site.wish(service=f"web-{n}") for n in range(5)]
    await _settle_all(site, wishes)
    site.api.calls.clear()

    await site.balancers.observe(wishes, deep=False)

    assert {call.path for call in site.reads} == {
        "/v2.0/lbaas/loadbalancers",
        "/v2.0/lbaas/pools",
        "/v2.0/floatingips",
    }
    assert len(site.reads) == 3


async def test_the_listeners_of_many_load_balancers_are_one_list() -> None:
    site = Site()
    wishes = [site.wish(service=f"web-{n}") for n in range(5)]
    await _settle_all(site, wishes)
    site.restart()

    observed = await site.balancers.observe(wishes, deep=True)

    assert len([call for call in site.reads if call.path.endswith("/listeners")]) == 1
    for wish in wishes:
        seen = observed[wish.owner]
        assert isinstance(seen, Seen)
        assert site.balancers.changes(wish, seen) == ()


async def test_a_pending_load_balancer_is_not_read_in_detail() -> None:
    site = Site()
    wish = site.wish()
    await site.settle(wish)
    site.api.change(
        "loadbalancers", site.balancer()["id"], {"provisioning_status": "PENDING_UPDATE"}
    )
    site.api.calls.clear()

    seen = await site.seen(wish, deep=True)

    assert seen.is_busy
    assert len(site.reads) <= 4


async def test_owners_are_found_by_lists() -> None:
    site = Site()
    await _settle_all(site, [site.wish(service=f"web-{n}") for n in range(5)])
    site.api.calls.clear()

    found = await site.balancers.owners("cluster-1")

    assert found == {owner_of(f"web-{n}") for n in range(5)}
    assert len(site.reads) <= 4
