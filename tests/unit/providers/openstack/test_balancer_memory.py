"""Lists of OpenStack may lack objects for a moment: what the process knows of them by their IDs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pileus.cloud.balancer import Listener, Wish
from pileus.cloud.errors import Conflict, NotFound
from pileus.cloud.model import Failure
from pileus.providers.openstack.api import Call, Client
from pileus.providers.openstack.octavia import Octavia
from pileus.providers.openstack.recent import UNLISTED
from tests.unit.providers.openstack.balancer_site import Site

LISTS = ("loadbalancers", "security-groups")


class Hidden:
    """Some lists are empty; perhaps single objects are not found, either."""

    def __init__(
        self, site: Site, lists: Sequence[str] = LISTS, *, even_by_id: bool = False
    ) -> None:
        self._answer = site.api.call
        self._even_by_id = even_by_id
        self._lists = lists
        site.api.call = self.call
        self._site = site

    async def call(self, call: Call) -> Any:
        is_single = any(f"/{kind}/" in call.path for kind in self._lists) and call.method == "GET"
        if is_single and self._even_by_id:
            self._site.api.calls.append(call)
            raise NotFound(f"GET {call.path}: 404")
        answer = await self._answer(call)
        kind = call.path.rpartition("/")[2]
        if call.method == "GET" and kind in self._lists:
            return {kind.replace("-", "_"): []}
        return answer

    def end(self) -> None:
        self._site.api.call = self._answer


def groups_of(site: Site) -> list[str]:
    found = (str(one["name"]) for one in site.api.records("security-groups"))
    return [name for name in found if name.startswith("lb-sg-")]


async def created(site: Site) -> Wish:
    wish = site.wish()
    changes = await site.changes(wish)
    await site.apply(changes, await site.seen(wish))
    assert len(site.api.records("loadbalancers")) == 1
    return wish


async def once(site: Site, wish: Wish) -> None:
    """One pass of the service controller."""
    seen = (await site.balancers.observe([wish], deep=False))[wish.owner]
    if not isinstance(seen, Failure):
        await site.apply(site.balancers.changes(wish, seen), seen)


async def test_a_balancer_that_lists_lack_is_found_by_its_id_and_not_created_again() -> None:
    site = Site()
    wish = await created(site)
    Hidden(site)
    for _ in range(10):
        await once(site, wish)
        site.api.now += 20
    assert len(site.api.records("loadbalancers")) == 1
    assert (await site.seen(wish)).found is not None


async def test_with_many_services_only_the_missing_one_is_asked_for_by_its_id() -> None:
    site = Site()
    wishes = [site.wish(service=f"web-{n}") for n in range(3)]
    for wish in wishes:
        await site.settle(wish)
    site.api.calls.clear()
    await site.balancers.observe(wishes, deep=False)
    assert not [one for one in site.reads if "/loadbalancers/" in one.path]

    Hidden(site)
    site.api.calls.clear()
    found = await site.balancers.observe(wishes, deep=False)

    assert all(not isinstance(one, Failure) and one.found for one in found.values())
    assert len([one for one in site.reads if "/loadbalancers/" in one.path]) == len(wishes)


async def test_a_new_balancer_that_is_not_found_at_all_is_waited_for_but_not_forever() -> None:
    site = Site()
    wish = await created(site)
    other = site.wish(service="other")
    hidden = Hidden(site, even_by_id=True)
    found = await site.balancers.observe([wish, other], deep=False)
    failure = found[wish.owner]
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, Conflict)
    assert not isinstance(found[other.owner], Failure)

    site.api.now += UNLISTED + 1
    seen = await site.seen(wish)
    hidden.end()

    assert seen.found is None


async def test_a_balancer_that_others_deleted_is_created_again() -> None:
    site = Site()
    wish = site.wish()
    await site.settle(wish)
    site.api.now += UNLISTED + 1
    before = site.balancer()["id"]
    await Octavia(Client(site.api)).delete_balancer(before)
    site.api.now += 60
    await site.settle(wish)
    assert site.balancer()["id"] != before


async def test_a_deleted_service_is_not_done_while_an_empty_list_hides_its_balancer() -> None:
    site = Site()
    wish = site.wish()
    await site.settle(wish)
    hidden = Hidden(site)
    seen = await site.seen(replace(wish, spec=None))
    hidden.end()
    assert seen.found is not None

    await site.delete(wish)
    assert site.api.records("loadbalancers") == []
    assert (await site.seen(replace(wish, spec=None))).found is None


async def test_a_process_that_is_new_knows_nothing_and_asks_for_no_id() -> None:
    site = Site()
    wish = await created(site)
    site.restart()
    Hidden(site)
    assert (await site.seen(wish)).found is None
    assert not [one for one in site.reads if "/loadbalancers/" in one.path]


async def test_a_security_group_that_is_not_listed_yet_is_found_by_its_id() -> None:
    site = Site(manage_security_groups=True)
    wish = site.wish()
    while not groups_of(site):
        await once(site, wish)
        site.api.now += 1
    hidden = Hidden(site)
    seen = await site.seen(wish, deep=True)
    hidden.end()
    assert seen.groups is not None
    assert [one.name for one in seen.groups.groups] == groups_of(site)

    await site.settle(wish)
    assert len(groups_of(site)) == 1


async def test_a_new_security_group_that_is_not_found_at_all_is_not_created_again() -> None:
    site = Site(manage_security_groups=True)
    wish, other = site.wish(), site.wish(service="other")
    await site.settle(other)
    while len(groups_of(site)) == 1:
        await once(site, wish)
        site.api.now += 1
    hidden = Hidden(site, ("security-groups",), even_by_id=True)
    site.api.now += UNLISTED / 2
    found = await site.balancers.observe([wish, other], deep=True)
    failure = found[wish.owner]
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, Conflict)
    assert not isinstance(found[other.owner], Failure)

    hidden.end()
    await site.settle(wish)
    assert len(groups_of(site)) == 2


async def test_a_deleted_service_is_not_done_while_an_empty_list_hides_its_security_group() -> None:
    site = Site(manage_security_groups=True)
    wish = site.wish()
    await site.settle(wish)
    gone = replace(wish, spec=None)
    while site.api.records("loadbalancers"):
        await once(site, gone)
        site.api.now += 1
    assert len(groups_of(site)) == 1

    hidden = Hidden(site, ("security-groups",))
    left = await site.plan(gone)
    await once(site, gone)
    hidden.end()

    assert [line.partition(" ")[0] for line in left] == ["~", "-"]
    assert groups_of(site) == []
    site.api.calls.clear()
    assert await site.plan(gone) == []
    assert not [one for one in site.reads if "/security-groups/" in one.path]


async def test_what_is_deleted_with_a_service_is_planned_before_its_load_balancer_is() -> None:
    site = Site(manage_security_groups=True)
    wish = site.wish()
    await site.settle(wish)
    site.restart()
    lines = await site.plan(replace(wish, spec=None))
    starts = ("- floating IP", "- load balancer", "~ remove security group", "- security group")
    assert len(lines) == len(starts)
    assert all(map(str.startswith, lines, starts)), lines


async def test_a_floating_ip_that_lists_lack_is_neither_created_again_nor_left() -> None:
    site = Site()
    wish = site.wish()
    await site.settle(wish)
    (before,) = site.api.records("floatingips")
    site.api.calls.clear()
    hidden = Hidden(site, ("floatingips",))
    seen = await site.seen(wish)
    assert site.balancers.changes(wish, seen) == ()
    assert seen.balancer is not None
    assert [one.ip for one in seen.balancer.ingress] == [before["floating_ip_address"]]

    await site.delete(wish)
    hidden.end()
    assert site.api.records("floatingips") == []


async def test_a_floating_ip_that_its_owner_lost_is_not_asked_for_again_and_again() -> None:
    site = Site()
    wish = site.wish()
    await site.settle(wish)
    (mine,) = site.api.records("floatingips")
    site.api.state = site.api.state.without("floatingips", [mine["id"]])
    site.api.calls.clear()
    await site.settle(wish)
    await site.settle(wish)
    asked = [one for one in site.reads if one.path.endswith(mine["id"])]
    assert len(asked) == 1
    assert len(site.api.records("floatingips")) == 1


@pytest.mark.parametrize("is_new", [False, True], ids=["same-process", "new-process"])
@pytest.mark.parametrize("hides", [("listeners",), ("pools",), ("listeners", "pools")])
async def test_a_service_leaves_a_shared_balancer_with_all_its_parts_although_lists_lack_them(
    hides: Sequence[str], *, is_new: bool
) -> None:
    site = Site(max_shared_lb=2)
    first = site.wish()
    await site.settle(first)
    balancer = site.balancer()["id"]
    port = Listener(port=8080, node_port=30880, position=0)
    second = site.wish(site.spec(listeners=frozenset({port})), service="second", adopts=balancer)
    await site.settle(second)
    parts = len(site.api.records("listeners")), len(site.api.records("pools"))
    if is_new:
        site.restart()
    hidden = Hidden(site, hides)
    await site.delete(second)
    hidden.end()

    assert (len(site.api.records("listeners")) + 1, len(site.api.records("pools")) + 1) == parts
    assert 8080 not in {one["protocol_port"] for one in site.api.records("listeners")}
    assert await site.plan(first, deep=False) == []
