"""Members that leave keep their connections for a while, if the configuration says so."""

from pileus.providers.openstack.draining import TAG
from pileus_lab.openstack.state import Record
from tests.unit.providers.openstack.balancer_site import Site

DRAIN = 300.0


def weights(members: dict[str, Record]) -> dict[str, int]:
    return {name: int(one["weight"]) for name, one in members.items()}


async def draining() -> Site:
    """A load balancer with two members, of which the second one has left."""
    site = Site(member_drain_time=DRAIN)
    await site.settle(site.wish())
    await site.settle(site.wish(site.spec(site.nodes[:1])))
    return site


async def test_by_default_members_are_removed_at_once() -> None:
    site = Site()
    await site.settle(site.wish())
    await site.settle(site.wish(site.spec(site.nodes[:1])))
    assert set(site.members(80)) == {"node-1"}


async def test_a_member_that_leaves_gets_no_new_connections_and_is_removed_later() -> None:
    site = await draining()
    assert weights(site.members(80)) == {"node-1": 1, "node-2": 0}
    wish = site.wish(site.spec(site.nodes[:1]))

    seen = await site.seen(wish)
    assert seen.balancer is not None
    assert seen.balancer.check_again_in is not None
    assert 0 < seen.balancer.check_again_in <= DRAIN
    assert site.balancers.changes(wish, seen) == ()

    site.api.now += DRAIN
    seen = await site.settle(wish)
    assert weights(site.members(80)) == {"node-1": 1}
    assert weights(site.members(53, "UDP")) == {"node-1": 1}
    assert seen.balancer is not None
    assert seen.balancer.check_again_in is None


async def test_a_new_process_goes_on_draining() -> None:
    site = await draining()
    wish = site.wish(site.spec(site.nodes[:1]))
    site.restart()
    assert await site.changes(wish) == ()
    site.api.now += DRAIN
    await site.settle(wish)
    assert set(site.members(80)) == {"node-1"}


async def test_a_node_that_comes_back_gets_connections_again() -> None:
    site = await draining()
    before = site.members(80)["node-2"]["id"]

    await site.settle(site.wish())

    member = site.members(80)["node-2"]
    assert (member["id"], member["weight"], member["tags"]) == (before, 1, [])


async def test_a_member_that_fails_its_health_check_is_removed_at_once() -> None:
    """Such as that of a deleted machine."""
    site = Site(member_drain_time=DRAIN, create_monitor=True)
    await site.settle(site.wish())
    for port, protocol in ((80, "TCP"), (443, "TCP"), (53, "UDP")):
        member = site.members(port, protocol)["node-2"]
        site.api.change("members", member["id"], {"operating_status": "ERROR"})

    await site.settle(site.wish(site.spec(site.nodes[:1])))

    assert set(site.members(80)) == {"node-1"}


async def test_a_weight_that_an_administrator_set_stays() -> None:
    site = Site(member_drain_time=DRAIN)
    await site.settle(site.wish())
    site.api.change("members", site.members(80)["node-1"]["id"], {"weight": 0})

    await site.settle(site.wish(site.spec([*site.nodes, site.add_node("new")])), deep=True)

    member = site.members(80)["node-1"]
    assert (member["weight"], TAG in member["tags"]) == (0, False)


async def test_members_that_join_while_others_drain_are_added() -> None:
    site = await draining()
    new = site.add_node("new")
    await site.settle(site.wish(site.spec([site.nodes[0], new])))
    assert weights(site.members(80)) == {"node-1": 1, "node-2": 0, "new": 1}
