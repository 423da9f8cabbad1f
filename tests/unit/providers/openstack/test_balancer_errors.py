"""What users and administrators get wrong, and clouds that fail: reported, and nothing leaks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from pileus.cloud.balancer import BalancerState, Effect, HealthCheck
from pileus.cloud.errors import (
    CloudError,
    Conflict,
    Misconfigured,
    QuotaExceeded,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from pileus.cloud.model import Failure, NodeName
from pileus.providers.openstack.annotations import PREFIX
from pileus.providers.openstack.api import Call, Service
from pileus.providers.openstack.config import LoadBalancer, OpenStackConfig
from pileus.providers.openstack.octavia import Octavia
from pileus_lab.openstack.state import Settings
from tests.unit.providers.openstack.balancer_site import PORTS, Site

UUID = "00000000-0000-4000-8000-000000000001"


def failing(site: Site, error: CloudError, matches: Callable[[Call], bool]) -> None:
    """From now on, matching requests are answered with the error."""
    answer = site.api.call

    async def call(one: Call) -> Any:
        if matches(one):
            site.api.calls.append(one)
            raise error
        return await answer(one)

    site.api.call = call  # type: ignore[method-assign]


def is_write(call: Call) -> bool:
    return call.writes


def leftovers(site: Site) -> list[str]:
    kinds = ("loadbalancers", "listeners", "pools", "members", "floatingips")
    return [one["id"] for kind in kinds for one in site.api.records(kind)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subnet-id": "s-unknown"}, "no subnet s-unknown is visible"),
        ({"network-id": "n-unknown"}, "no network n-unknown"),
        ({"floating-network-id": "f-unknown"}, "f-unknown is not an external network"),
        ({"class": "gold"}, 'unknown class "gold"'),
        ({"lb-method": "FASTEST"}, "ROUND_ROBIN"),
        ({"proxy-protocol": "true", "x-forwarded-for": "true"}, "cannot be combined"),
        ({"default-tls-container-ref": "secret"}, "is not a Barbican reference"),
    ],
    ids=str,
)
async def test_a_mistake_in_an_annotation_is_refused_before_anything_is_created(
    options: dict[str, str], message: str
) -> None:
    site = Site()
    given = {f"{PREFIX}{name}": value for name, value in options.items()}

    with pytest.raises(Misconfigured, match=message):
        await site.settle(site.wish(options=given))

    assert site.writes == []


async def test_of_two_external_networks_the_first_is_used_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()
    other, _ = site.api.add_network("other", "198.51.100.0/24", external=True)
    first = min(site.public, other)
    (router,) = site.api.records("routers")
    site.api.change("routers", router["id"], {"external_gateway_info": {"network_id": first}})
    notices: set[str] = set()
    for service in ("web", "shop"):
        wish = site.wish(service=service)
        for _ in range(20):
            seen = await site.seen(wish)
            notices |= {one.message for one in (seen.balancer.notices if seen.balancer else ())}
            await site.apply(site.balancers.changes(wish, seen), seen)
            site.api.now += 1

    assert {one["floating_network_id"] for one in site.api.records("floatingips")} == {first}
    (notice,) = notices
    assert "is not set: floating IPs are created in that with the first ID. Fix: " in notice
    assert first not in notice
    assert [one.getMessage() for one in caplog.records].count("Network of floating IPs") == 1


async def test_a_second_external_network_with_ipv6_alone_changes_nothing() -> None:
    site = Site()
    site.api.add_network("six", "2001:db8::/64", external=True)

    seen = await site.settle(site.wish())

    assert seen.balancer is not None
    assert seen.balancer.notices == ()
    (floating,) = site.api.records("floatingips")
    assert floating["floating_network_id"] == site.public


async def test_without_an_external_network_the_internal_address_is_published_with_a_warning() -> (
    None
):
    site = Site()
    site.api.change("networks", site.public, {"router:external": False})

    seen = await site.settle(site.wish())

    assert seen.balancer is not None
    assert [one.ip for one in seen.balancer.ingress] == [site.balancer()["vip_address"]]
    assert [one.reason for one in seen.balancer.notices] == ["LoadBalancerForcedInternal"]
    site.api.calls.clear()
    await site.seen(site.wish())
    assert len(site.reads) <= 4


async def test_a_requested_address_is_refused_if_there_is_no_external_network() -> None:
    site = Site()
    site.api.change("networks", site.public, {"router:external": False})
    spec = site.spec(requested_address="203.0.113.99")
    wish = site.wish(spec, may_use_foreign=True)
    with pytest.raises(Misconfigured, match=r"203\.0\.113\.99: there is no external network"):
        await site.settle(wish)
    assert site.writes == []

    await site.settle(site.wish())
    with pytest.raises(Misconfigured, match=r"203\.0\.113\.99: there is no external network"):
        await site.settle(wish)
    assert site.balancer()["provisioning_status"] == "ACTIVE"


async def test_a_floating_ip_of_someone_else_is_not_taken() -> None:
    site = Site()
    port = site.api.port_of(site.nodes[0].provider_id.rpartition("/")[2])
    taken = site.api.add_floating_ip(site.public, port=port["id"])
    spec = site.spec(requested_address=taken["floating_ip_address"])

    with pytest.raises(Misconfigured, match="in use, or not reserved"):
        await site.settle(site.wish(spec))

    assert site.writes == []
    assert site.api.record("floatingips", taken["id"])["port_id"] == port["id"]


@pytest.mark.parametrize("collection", ["loadbalancers", "listeners", "pools"])
async def test_a_quota_of_octavia_is_reported_and_nothing_is_left(collection: str) -> None:
    site = Site(settings=Settings(quotas={collection: 0}))

    with pytest.raises(QuotaExceeded, match="Quota"):
        await site.settle(site.wish())

    assert leftovers(site) == []


async def test_a_quota_of_floating_ips_is_reported_and_the_load_balancer_is_kept() -> None:
    site = Site(settings=Settings(quotas={"floatingips": 0}))
    with pytest.raises(QuotaExceeded, match="openstack quota set --floating-ips"):
        await site.settle(site.wish())
    assert len(site.api.records("loadbalancers")) == 1
    assert site.api.records("floatingips") == []
    await site.delete(site.wish())
    assert leftovers(site) == []


async def test_nodes_join_although_no_floating_ip_is_available() -> None:
    site = Site(settings=Settings(quotas={"floatingips": 0}))
    with pytest.raises(QuotaExceeded):
        await site.settle(site.wish())
    more = site.wish(site.spec([*site.nodes, site.add_node("new")]))

    with pytest.raises(QuotaExceeded):
        await site.settle(more)

    assert set(site.members(53, "UDP")) == {"node-1", "node-2", "new"}


async def test_nodes_join_although_the_external_network_is_unknown() -> None:
    site = Site()
    await site.settle(site.wish())
    (floating,) = site.api.records("floatingips")
    site.api.state = site.api.state.without("floatingips", [floating["id"]])
    site.config = OpenStackConfig(load_balancer=LoadBalancer(floating_network_id="unknown"))
    site.restart()
    more = site.wish(site.spec([*site.nodes, site.add_node("new")]))

    with pytest.raises(Misconfigured, match="unknown is not an external network"):
        await site.settle(more)

    assert set(site.members(53, "UDP")) == {"node-1", "node-2", "new"}


@pytest.mark.parametrize(
    "error",
    [
        Unauthorized("POST /v2.0/lbaas/loadbalancers: 403 (request req-1)"),
        QuotaExceeded("POST /v2.0/lbaas/loadbalancers: 403 Quota (request req-1)"),
        Throttled("429 (request req-1)", retry_after=30),
        Unavailable("503 (request req-1)"),
        Rejected("400 (request req-1)"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_errors_of_the_cloud_are_passed_on_with_their_request(error: CloudError) -> None:
    site = Site()
    failing(site, error, is_write)
    with pytest.raises(type(error), match="req-1"):
        await site.settle(site.wish())
    assert leftovers(site) == []


async def test_a_failed_list_is_never_an_absent_load_balancer() -> None:
    site = Site()
    await site.settle(site.wish())
    failing(site, Unavailable("503"), lambda call: call.path.endswith("/loadbalancers"))
    with pytest.raises(Unavailable):
        await site.balancers.observe([site.wish()], deep=False)


async def test_what_fails_for_one_service_does_not_affect_others() -> None:
    site = Site()
    wishes = [site.wish(service=name) for name in ("web", "api")]
    for wish in wishes:
        await site.settle(wish)
    broken = site.balancer()["pools"][0]["id"]
    failing(site, Unavailable("503"), lambda call: call.path.endswith(f"/{broken}/members"))

    found = await site.balancers.observe(wishes, deep=True)

    assert isinstance(found[wishes[0].owner], Failure)
    assert not isinstance(found[wishes[1].owner], Failure)


async def test_a_busy_load_balancer_is_a_conflict_and_the_change_is_made_later() -> None:
    site = Site(settings=Settings(pending_seconds=5))
    await site.settle(site.wish())
    later = site.wish(site.spec(site.nodes[:1]))
    seen = await site.seen(later)
    changes = site.balancers.changes(later, seen)
    await site.balancers.apply(changes[0], seen)

    with pytest.raises(Conflict):
        await site.balancers.apply(changes[1], seen)

    await site.settle(later)
    assert set(site.members(443)) == {"node-1"}


async def test_a_pending_load_balancer_is_not_changed() -> None:
    site = Site()
    await site.settle(site.wish())
    stuck = {"provisioning_status": "PENDING_UPDATE"}
    site.api.change("loadbalancers", site.balancer()["id"], stuck)
    for wish in (site.wish(site.spec(site.nodes[:1])), replace(site.wish(), spec=None)):
        seen = await site.seen(wish, deep=True)
        assert site.balancers.changes(wish, seen) == ()
        assert seen.balancer is not None
        assert seen.balancer.state is BalancerState.PENDING
        assert "openstack loadbalancer status show" in seen.balancer.problem


@pytest.mark.parametrize("status", ["DEGRADED", "OFFLINE", "ERROR", "NO_MONITOR"])
async def test_operating_states_are_about_members_and_do_not_matter(status: str) -> None:
    site = Site()
    await site.settle(site.wish(), deep=True)
    site.api.change("loadbalancers", site.balancer()["id"], {"operating_status": status})

    seen = await site.seen(site.wish(), deep=True)

    assert seen.balancer is not None
    assert seen.balancer.state is BalancerState.READY
    assert site.balancers.changes(site.wish(), seen) == ()


@pytest.mark.parametrize("down", [(), ("node-1",), ("node-1", "node-2")])
@pytest.mark.parametrize("is_local", [False, True])
async def test_members_that_fail_their_health_check_are_reported(
    down: tuple[str, ...], is_local: bool
) -> None:
    site = Site(nodes=2, create_monitor=True)
    health = HealthCheck(node_port=31000) if is_local else None
    wish = site.wish(site.spec(listeners=frozenset(PORTS[:1]), health=health))
    await site.settle(wish)
    for name in down:
        member = site.members(80)[name]["id"]
        site.api.change("members", member, {"operating_status": "ERROR"})

    seen = await site.seen(wish, deep=True)

    assert seen.balancer is not None
    texts = [one.message for one in seen.balancer.notices if one.is_warning]
    is_reported = len(down) == 2 if is_local else bool(down)
    assert [", ".join(down) in text for text in texts] == [True] * is_reported
    assert {one.reason for one in seen.balancer.notices} == (
        {"LoadBalancerMembersDown"} if is_reported else set()
    )
    assert site.balancers.changes(wish, seen)[1:] == ()


async def test_one_that_fails_while_it_is_created_is_deleted_and_created_again() -> None:
    site = Site()
    site.api.doom = "no valid host was found"
    seen = await site.seen(site.wish())
    await site.apply(site.balancers.changes(site.wish(), seen), seen)
    site.api.doom = ""
    first = site.balancer()["id"]

    seen = await site.seen(site.wish())
    assert seen.balancer is not None
    assert seen.balancer.state is BalancerState.FAILED
    (change,) = site.balancers.changes(site.wish(), seen)
    assert change.effect is Effect.REPLACE
    await site.settle(site.wish())

    assert site.balancer()["id"] != first
    assert len(site.api.records("floatingips")) == 1


async def test_after_a_failover_everything_that_changed_meanwhile_is_applied() -> None:
    site = Site()
    await site.settle(site.wish())
    found = site.balancer()["id"]
    site.api.change("loadbalancers", found, {"provisioning_status": "ERROR"})
    more = site.wish(site.spec([*site.nodes, site.add_node("new")]))
    assert await site.changes(more) == ()
    site.api.change("loadbalancers", found, {"provisioning_status": "ACTIVE"})

    await site.settle(more)
    assert "new" in site.members(80)


async def test_one_that_fails_later_keeps_its_address_and_needs_a_failover() -> None:
    site = Site()
    await site.settle(site.wish())
    found = site.balancer()["id"]
    site.api.change("loadbalancers", found, {"provisioning_status": "ERROR"})
    later = site.wish(site.spec(sticky_seconds=10800))

    seen = await site.seen(later, deep=True)

    assert site.balancers.changes(later, seen) == ()
    assert seen.balancer is not None
    assert seen.balancer.state is BalancerState.FAILED
    assert f"openstack loadbalancer failover {found}" in seen.balancer.problem


@pytest.mark.parametrize("is_published", [True, False])
async def test_one_without_floating_ip_is_known_by_its_published_address(
    is_published: bool,
) -> None:
    site = Site(internal_lb=True)
    await site.settle(site.wish())
    found = site.balancer()
    assert not [tag for tag in found["tags"] if "/spec" in tag]
    site.api.change("loadbalancers", found["id"], {"provisioning_status": "ERROR"})
    published = frozenset({found["vip_address"]} if is_published else ())

    changes = await site.changes(site.wish(published=published), deep=True)

    assert [one.effect for one in changes] == ([] if is_published else [Effect.REPLACE])


async def test_one_that_fails_while_it_is_changed_in_place_is_not_deleted() -> None:
    site = Site()
    await site.settle(site.wish())
    found = site.balancer()["id"]
    later = site.wish(site.spec(sticky_seconds=10800))
    seen = await site.seen(later)
    await site.apply(site.balancers.changes(later, seen), seen)
    site.api.finish(found)
    site.api.change("loadbalancers", found, {"provisioning_status": "ERROR"})

    assert await site.changes(later, deep=True) == ()


@pytest.mark.parametrize("cascade_delete", [True, False])
async def test_one_in_error_is_deleted_with_its_service(cascade_delete: bool) -> None:
    """Octavia refuses to delete parts of one in ERROR, each alone."""
    site = Site(cascade_delete=cascade_delete)
    await site.settle(site.wish())
    site.api.change("loadbalancers", site.balancer()["id"], {"provisioning_status": "ERROR"})
    await site.delete(site.wish())
    assert leftovers(site) == []


async def test_an_octavia_without_tags_is_refused() -> None:
    site = Site(settings=Settings(octavia_minor=4))
    with pytest.raises(Unsupported, match="upgrade Octavia"):
        await site.settle(site.wish())
    assert site.writes == []


async def test_two_families_without_a_second_subnet_are_unsupported() -> None:
    site = Site()
    with pytest.raises(Unsupported, match="no IPv6 subnet"):
        await site.settle(site.wish(site.spec(families=("IPv4", "IPv6"))))
    assert site.writes == []


async def test_a_missing_certificate_is_refused() -> None:
    site = Site()
    missing = f"https://barbican.example/v1/containers/{uuid4()}"
    failing(site, Rejected("x"), lambda call: call.writes)
    given = {f"{PREFIX}default-tls-container-ref": missing}
    wish = site.wish(options=given)

    seen = (await site.balancers.observe([wish], deep=False))[wish.owner]

    assert any(call.service is Service.KEY_MANAGER for call in site.api.calls)
    assert isinstance(seen, Failure) or seen.problem


async def test_a_load_balancer_that_two_processes_created_at_once_is_deleted() -> None:
    site = Site()
    wish = site.wish()
    await site.settle(wish, deep=True)
    first = site.balancer()
    copy = {
        **first,
        "id": "twin",
        "created_at": "2099-01-01T00:00:00",
        "vip_port_id": "port-of-twin",
        "listeners": [],
        "pools": [],
    }
    site.api.state = site.api.state.put("loadbalancers", copy)

    lines = await site.plan(wish)
    assert lines == ["- load balancer twin: created twice"]
    await site.settle(wish)

    assert [one["id"] for one in site.api.records("loadbalancers")] == [first["id"]]


async def test_a_service_without_members_keeps_its_load_balancer() -> None:
    site = Site()
    await site.settle(site.wish())
    await site.settle(site.wish(site.spec([])))
    assert site.members(80) == {}
    assert len(site.api.records("loadbalancers")) == 1


async def test_deleting_a_service_that_never_had_a_load_balancer_changes_nothing() -> None:
    site = Site()
    await site.delete(site.wish())
    assert site.writes == []


async def test_a_kept_floating_ip_survives_the_service() -> None:
    site = Site()
    kept = site.wish(options={f"{PREFIX}keep-floatingip": "true"})
    await site.settle(kept)
    await site.delete(kept)
    assert len(site.api.records("floatingips")) == 1
    assert site.api.records("loadbalancers") == []
    assert await site.balancers.owners("cluster-1") == frozenset()


def ports(site: Site) -> list[str]:
    return [one["id"] for one in site.api.records("ports") if one["device_owner"] == "Octavia"]


def port_of_octavia(site: Site, **other: str) -> str:
    """Returns a port like those that Octavia creates, of a load balancer that does not exist."""
    given = {
        "network_id": site.network,
        "name": f"octavia-lb-{UUID}",
        "device_id": f"lb-{UUID}",
        "device_owner": "Octavia",
        **other,
    }
    made = site.api.must(Service.NETWORK, "POST", "/v2.0/ports", {"port": given})
    return str(made["port"]["id"])


async def test_two_nodes_with_one_address_are_one_member() -> None:
    site = Site()
    twin = replace(site.nodes[0], name=NodeName("node-9"), provider_id="openstack:///other")
    wish = site.wish(site.spec([*site.nodes, twin]))

    await site.settle(wish, deep=True)

    assert sorted(site.members(80)) == ["node-1", "node-2"]
    await site.settle(site.wish(site.spec([site.nodes[1], twin])))
    assert sorted(site.members(80)) == ["node-2", "node-9"]


async def test_the_port_of_a_failed_creation_is_deleted() -> None:
    site = Site(settings=Settings(quotas={"listeners": 2}))
    wish = site.wish()
    earlier = port_of_octavia(site)
    site.api.now += 60
    others = [port_of_octavia(site, device_id="db-1"), port_of_octavia(site, name="db")]

    for _ in range(3):
        with pytest.raises(QuotaExceeded):
            await site.settle(wish)
        site.api.now += 40
    assert len(ports(site)) == 3 + 2, "a port for each attempt of the last 75 seconds"
    site.api.now += 80
    await site.delete(wish)

    assert ports(site) == [earlier, *others]


@pytest.mark.parametrize("is_listed", [True, False])
async def test_the_port_of_a_load_balancer_that_another_client_creates_stays(
    is_listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(settings=Settings(quotas={"listeners": 2}))
    wish = site.wish()
    other = site.octavia(
        "POST", "loadbalancers", {"loadbalancer": {"name": "db", "vip_subnet_id": site.subnet}}
    )
    with pytest.raises(QuotaExceeded):
        await site.settle(wish)
    site.api.now += 100
    if not is_listed:
        monkeypatch.setattr(Octavia, "balancers", no_balancers)

    await site.delete(wish)

    assert ports(site) == [other["loadbalancer"]["vip_port_id"]]


async def no_balancers(*_: object, **__: object) -> tuple[object, ...]:
    return ()


async def test_ports_of_load_balancers_that_exist_cost_one_list() -> None:
    """Each load balancer was read by its ID, in every pass until a minute was over."""
    site = Site()
    for name in ("api", "db", "shop"):
        await site.settle(site.wish(service=name))
    failing(site, Rejected("400"), lambda call: call.method == "POST")
    with pytest.raises(Rejected):
        await site.settle(site.wish())
    site.api.now += 100
    site.api.calls.clear()

    await site.delete(site.wish())

    paths = [call.path for call in site.reads if "/loadbalancers" in call.path]
    assert {path.rpartition("/")[2] for path in paths} == {"loadbalancers"}
    assert len(site.api.records("loadbalancers")) == 3


async def test_a_deleted_service_waits_until_the_port_of_its_failed_creation_is_identified() -> (
    None
):
    site = Site(settings=Settings(quotas={"listeners": 2}))
    wish = site.wish()
    with pytest.raises(QuotaExceeded):
        await site.settle(wish)
    gone = replace(wish, spec=None)

    answer = (await site.balancers.observe([gone], deep=True))[gone.owner]

    assert isinstance(answer, Failure)
    assert isinstance(answer.error, Conflict)
    assert len(ports(site)) == 1


async def test_a_creation_that_octavia_calls_a_conflict_is_reported_as_refused() -> None:
    site = Site()
    failing(site, Conflict("Already an entity with that specified id."), is_write)
    with pytest.raises(Rejected, match="refuses to create the load balancer: Already an entity"):
        await site.settle(site.wish())
