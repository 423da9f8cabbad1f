"""Several Services on one load balancer, and load balancers that the user created."""

from dataclasses import replace
from typing import Any

import pytest

from pileus.cloud.balancer import Listener, Part, Transport, Wish
from pileus.cloud.errors import Misconfigured
from pileus.providers.openstack.annotations import INTERNAL, PREFIX
from tests.unit.providers.openstack.balancer_site import Site, owner_of

FIRST = "kube_service_kubernetes_default_web"
SECOND = "kube_service_kubernetes_default_api"


def on(port: int, transport: Transport = Transport.TCP) -> frozenset[Listener]:
    return frozenset({Listener(port=port, node_port=30000 + port, transport=transport)})


async def shared(site: Site, ports: frozenset[Listener] | None = None) -> Wish:
    """Returns the wish of a second Service that names the load balancer of the first."""
    await site.settle(site.wish())
    spec = site.spec(listeners=ports or on(8080))
    return site.wish(spec, service="api", adopts=site.balancer()["id"])


def without(wish: Wish) -> Wish:
    return replace(wish, spec=None, adopts="")


async def test_a_second_service_adds_its_ports_and_both_are_up_to_date() -> None:
    site = Site()
    second = await shared(site)

    seen = await site.settle(second, deep=True)

    assert seen.balancer is not None
    assert seen.balancer.id == site.balancer()["id"]
    assert set(site.listeners()) == {(80, "TCP"), (443, "TCP"), (53, "UDP"), (8080, "TCP")}
    assert {FIRST, SECOND} <= set(site.balancer()["tags"])
    await site.settle(site.wish(), deep=True)
    assert await site.changes(second, deep=True) == ()
    assert len(site.api.records("loadbalancers")) == 1


async def test_services_that_share_a_load_balancer_have_one_lock() -> None:
    site = Site()
    second = await shared(site)
    await site.settle(second)
    assert site.balancers.lock_key(second) == site.balancers.lock_key(site.wish())


async def test_both_have_the_address_of_the_first() -> None:
    site = Site()
    second = await site.settle(await shared(site))
    first = await site.seen(site.wish())
    assert first.balancer is not None
    assert second.balancer is not None
    assert first.balancer.ingress == second.balancer.ingress


async def test_fault_5_all_listeners_of_a_second_service_are_deleted_with_it() -> None:
    """Also one whose port the Service no longer has."""
    site = Site()
    second = await shared(site, on(8080) | on(9090))
    await site.settle(second)

    shrunk = replace(second, spec=site.spec(listeners=on(8080)))
    await site.settle(without(shrunk))

    assert set(site.listeners()) == {(80, "TCP"), (443, "TCP"), (53, "UDP")}
    assert len(site.api.records("pools")) == 3
    tags = site.balancer()["tags"]
    assert SECOND not in tags
    assert FIRST in tags
    left = await site.changes(site.wish(), deep=True)
    assert [one.part for one in left] == [Part.RECORD]


async def test_a_second_service_that_is_only_known_by_its_uid_is_removed() -> None:
    site = Site()
    second = await shared(site)
    await site.settle(second)

    await site.settle(Wish(owner=second.owner, spec=None))

    assert set(site.listeners()) == {(80, "TCP"), (443, "TCP"), (53, "UDP")}
    assert SECOND not in site.balancer()["tags"]
    assert await site.balancers.owners("cluster-1") == {owner_of("web")}


async def test_the_load_balancer_stays_until_its_last_service_is_deleted() -> None:
    site = Site()
    second = await shared(site)
    await site.settle(second)

    await site.settle(without(site.wish()))
    assert set(site.listeners()) == {(8080, "TCP")}
    assert len(site.api.records("floatingips")) == 1
    assert await site.balancers.owners("cluster-1") == {owner_of("api")}
    assert await site.plan(second, deep=False) == []

    await site.settle(without(second))
    assert site.api.records("loadbalancers") == []


STRANGER = "kube_service_elsewhere_default_shop"
"""The tag of a Service of another cluster, whose Go manager uses the load balancer, too."""


def let_in(site: Site, balancer: Any) -> None:
    tags = [*balancer["tags"], STRANGER]
    site.octavia("PUT", f"loadbalancers/{balancer['id']}", {"loadbalancer": {"tags": tags}})
    site.api.now += 5


async def test_a_load_balancer_that_another_cluster_uses_is_left_to_it() -> None:
    site = Site()
    await site.settle(site.wish())
    let_in(site, site.balancer())
    deleted = without(site.wish())
    await site.settle(deleted)

    assert site.listeners() == {}
    assert [tag for tag in site.balancer()["tags"] if "created-for" not in tag] == [STRANGER]
    assert [one["tags"] for one in site.api.records("floatingips")] == [[]]
    assert await site.plan(deleted) == []
    assert (await site.seen(deleted, deep=True)).balancer is None


async def test_a_second_load_balancer_that_another_cluster_uses_is_not_deleted_as_a_twin() -> None:
    site = Site()
    await site.settle(site.wish())
    first = site.balancer()
    fields = {"name": "twin", "vip_subnet_id": site.subnet, "tags": first["tags"]}
    made = site.octavia("POST", "loadbalancers", {"loadbalancer": fields})["loadbalancer"]
    site.api.now += 5
    assert f"- load balancer {made['id']}: created twice" in await site.plan(site.wish())

    let_in(site, made)
    assert not any(made["id"] in line for line in await site.plan(site.wish()))


@pytest.mark.parametrize(
    ("created", "more", "is_deleted"),
    [
        pytest.param(True, (), True, id="created twice"),
        pytest.param(True, ("pileus.dev/service=uid-of-api",), False, id="another Service uses it"),
        pytest.param(False, (), False, id="the user created it"),
    ],
)
async def test_only_a_load_balancer_that_was_created_twice_and_that_nobody_shares_is_a_twin(
    created: bool, more: tuple[str, ...], is_deleted: bool
) -> None:
    site = Site()
    await site.settle(site.wish())
    tags = [one for one in site.balancer()["tags"] if created or "created-for" not in one]
    fields = {"name": "second", "vip_subnet_id": site.subnet, "tags": [*tags, *more]}
    site.api.now += 5
    made = site.octavia("POST", "loadbalancers", {"loadbalancer": fields})["loadbalancer"]
    site.api.now += 5

    await site.settle(site.wish(), deep=True)
    left = {one["id"] for one in site.api.records("loadbalancers")}
    assert (made["id"] not in left) == is_deleted
    await site.settle(without(site.wish()), deep=True)

    left = {one["id"] for one in site.api.records("loadbalancers")}
    assert (made["id"] not in left) == is_deleted


async def test_only_pools_with_the_mark_of_the_service_are_deleted_when_no_listener_uses_them() -> (
    None
):
    site = Site()
    await site.settle(site.wish())
    balancer, (marks, *_) = site.balancer(), (one["tags"] for one in site.api.records("pools"))
    others = ["pileus.dev/cluster=cluster-1", "pileus.dev/service=uid-of-api"]
    for name, tags in (("of-nobody", []), ("of-another", others), ("ours", marks)):
        pool = {"name": name, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "tags": tags}
        fields = {**pool, "loadbalancer_id": balancer["id"]}
        site.octavia("POST", "pools", {"pool": fields})
        site.api.now += 5

    await site.settle(site.wish(), deep=True)

    left = {one["name"] for one in site.api.records("pools") if not one["listeners"]}
    assert left == {"of-nobody", "of-another"}


async def test_a_failed_load_balancer_that_another_cluster_uses_is_not_created_again() -> None:
    site = Site()
    (creation,) = await site.changes(site.wish())
    await site.balancers.apply(creation, await site.seen(site.wish()))
    site.api.now += 5
    found = site.balancer()
    site.api.change("loadbalancers", found["id"], {"provisioning_status": "ERROR"})
    assert [line[0] for line in await site.plan(site.wish())] == ["±"]

    site.api.change("loadbalancers", found["id"], {"tags": [*found["tags"], STRANGER]})
    assert await site.plan(site.wish()) == []


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        pytest.param({}, on(80), id="TCP"),
        pytest.param({f"{PREFIX}x-forwarded-for": "true"}, on(80), id="HTTP"),
        pytest.param(
            {f"{PREFIX}default-tls-container-ref": "https://b.example/v1/secrets/s"},
            on(443),
            id="TERMINATED_HTTPS",
        ),
        pytest.param({}, on(53, Transport.UDP), id="UDP"),
    ],
)
async def test_fault_6_a_port_of_another_service_is_refused_whatever_its_protocol(
    options: dict[str, str], wanted: frozenset[Listener]
) -> None:
    site = Site(container_store="external")
    second = replace(await shared(site, wanted), options=options)
    before = site.listeners()

    with pytest.raises(Misconfigured, match="is already used on the load balancer"):
        await site.settle(second)

    assert site.listeners() == before
    assert SECOND not in site.balancer()["tags"]


async def test_a_tcp_and_a_udp_port_of_one_number_do_not_conflict() -> None:
    site = Site()
    second = await shared(site, on(80, Transport.UDP))
    await site.settle(second)
    assert (80, "UDP") in site.listeners()


async def test_fault_9_tags_of_others_on_listeners_and_load_balancers_are_kept() -> None:
    site = Site()
    wish = site.wish()
    await site.settle(wish)
    balancer, listener = site.balancer(), site.listeners()[80, "TCP"]
    site.api.change("loadbalancers", balancer["id"], {"tags": [*balancer["tags"], "team=a"]})
    site.api.change("listeners", listener["id"], {"tags": ["billing=b"]})

    await site.settle(replace(wish, spec=site.spec(sticky_seconds=10800)), deep=True)

    assert "team=a" in site.balancer()["tags"]
    tags = site.listeners()[80, "TCP"]["tags"]
    assert {"billing=b", FIRST, f"pileus.dev/service={wish.owner.uid}"} <= set(tags)


async def test_no_more_services_share_it_than_configured() -> None:
    site = Site(max_shared_lb=2)
    await site.settle(await shared(site))
    spec = site.spec(listeners=on(9090))
    third = site.wish(spec, service="third", adopts=site.balancer()["id"])

    with pytest.raises(Misconfigured, match="as many Services as allowed.*max-shared-lb"):
        await site.settle(third)


async def test_an_internal_service_does_not_share() -> None:
    site = Site()
    second = replace(await shared(site), options={INTERNAL.name: "true"})
    with pytest.raises(Misconfigured, match="internal"):
        await site.settle(second)


async def test_a_second_service_does_not_give_the_load_balancer_a_floating_ip() -> None:
    site = Site()
    internal = replace(site.wish(), options={INTERNAL.name: "true"})
    await site.settle(internal)
    second = site.wish(site.spec(listeners=on(8080)), service="api", adopts=site.balancer()["id"])

    with pytest.raises(Misconfigured, match="belongs to another Service"):
        await site.settle(second)

    assert site.api.records("floatingips") == []


def by_hand(site: Site, *ports: int) -> str:
    """Returns the ID of a load balancer that a user created, with a floating IP."""
    pool = {"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}
    listeners = [
        {"protocol": "TCP", "protocol_port": one, "default_pool": {"name": f"p{one}", **pool}}
        for one in ports
    ]
    made = site.api.add_balancer(name="mine", vip_subnet_id=site.subnet, listeners=listeners)
    site.api.add_floating_ip(
        site.public, port=site.api.record("loadbalancers", made)["vip_port_id"]
    )
    return made


async def test_a_load_balancer_of_the_user_keeps_its_own_ports_and_is_never_deleted() -> None:
    site = Site()
    made = by_hand(site, 22)
    wish = site.wish(site.spec(listeners=on(80)), adopts=made, may_use_foreign=True)

    await site.settle(wish, deep=True)
    assert set(site.listeners()) == {(22, "TCP"), (80, "TCP")}
    await site.settle(without(wish))

    assert set(site.listeners()) == {(22, "TCP")}
    assert site.api.record("loadbalancers", made)["tags"] == []
    assert len(site.api.records("floatingips")) == 1


async def test_a_port_that_the_user_configured_is_not_taken() -> None:
    site = Site()
    made = by_hand(site, 22, 80)
    wish = site.wish(site.spec(listeners=on(80)), adopts=made, may_use_foreign=True)
    with pytest.raises(Misconfigured, match="already used on the load balancer"):
        await site.settle(wish)
    assert site.api.record("loadbalancers", made)["tags"] == []


async def test_an_unknown_id_is_refused_and_nothing_is_created() -> None:
    site = Site()
    with pytest.raises(Misconfigured, match="or does not exist"):
        await site.settle(site.wish(adopts="lb-7"))
    assert site.writes == []


async def test_a_service_with_a_load_balancer_of_its_own_does_not_move_to_another() -> None:
    site = Site()
    await site.settle(site.wish())
    other = by_hand(site)

    seen = await site.settle(site.wish(adopts=other))

    assert seen.balancer is not None
    assert seen.balancer.id != other
    assert [one.reason for one in seen.balancer.notices] == ["LoadBalancerIDIgnored"]
