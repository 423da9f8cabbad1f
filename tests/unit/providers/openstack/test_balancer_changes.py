"""Changes of load balancers, line by line, on the model of OpenStack."""

from dataclasses import replace

import pytest

from pileus.cloud.balancer import HealthCheck, Listener, Part, Transport
from pileus.cloud.errors import Misconfigured
from pileus.cloud.on_change import changed_options, without_effect
from pileus.cloud.options import CREATE_ONLY
from pileus.providers.openstack.annotations import ANNOTATIONS, INTERNAL, OPTIONS, PREFIX
from pileus.providers.openstack.api import Service
from pileus.providers.openstack.balancer_steps import CreateBalancer
from pileus.providers.openstack.config import LoadBalancer, LoadBalancerClass, OpenStackConfig
from pileus.providers.openstack.draining import GRACE
from pileus_lab.openstack.state import Settings
from tests.unit.providers.openstack.balancer_site import PORTS, Site

LOCAL = HealthCheck(node_port=31000)


async def settled(site: Site) -> None:
    await site.settle(site.wish())
    site.api.calls.clear()


async def test_a_plan_shows_each_part_by_itself() -> None:
    site = Site()
    await settled(site)
    ports = frozenset({*PORTS[:1], Listener(port=8080, node_port=30808, position=3)})
    later = site.spec([site.add_node("new")], listeners=ports, sticky_seconds=10800)

    lines = await site.plan(site.wish(later))

    assert lines == [
        "~ pool of port 80/TCP: session_persistence",
        "~ members of port 80/TCP: 1 added, 2 removed",
        "+ port 8080/TCP",
        "+ pool of port 8080/TCP",
        "~ members of port 8080/TCP: 1 added",
        "- pool of port 53/UDP",
        "- port 53/UDP",
        "- pool of port 443/TCP",
        "- port 443/TCP",
    ]


async def test_a_new_load_balancer_is_one_line() -> None:
    site = Site()
    (line,) = await site.plan(site.wish())
    assert line.startswith("+ load balancer kube_service_kubernetes_default_web: ")
    assert line.endswith("80/TCP, 443/TCP, 53/UDP with 2 members")


@pytest.mark.parametrize("provider", ["ovn", "amphora"])
async def test_fault_1_members_are_not_written_again_without_http_monitors(provider: str) -> None:
    minor = 26 if provider == "ovn" else 15
    site = Site(settings=Settings(octavia_minor=minor), create_monitor=True, lb_provider=provider)
    wish = site.wish(site.spec(health=LOCAL, listeners=frozenset(PORTS[2:])))
    await site.settle(wish, deep=True)
    assert {one["monitor_port"] for one in site.members(53, "UDP").values()} == {None}
    site.api.calls.clear()

    await site.settle(wish, deep=True)

    assert site.writes == []


async def test_fault_2_session_affinity_is_changed_in_place() -> None:
    site = Site()
    await settled(site)
    pool = site.pool(80)["id"]

    await site.settle(site.wish(site.spec(sticky_seconds=10800)))
    assert site.pool(80)["session_persistence"]["type"] == "SOURCE_IP"
    await site.settle(site.wish(site.spec()))

    assert site.pool(80)["session_persistence"] is None
    assert site.pool(80)["id"] == pool


async def test_a_restricted_load_balancer_stays_as_it_is_if_no_client_could_connect() -> None:
    site = Site()
    await site.settle(site.wish(site.spec(source_ranges=frozenset({"192.0.2.0/24"}))))
    site.api.calls.clear()
    closed = site.wish(site.spec(source_ranges=frozenset({"2001:db8::/32"})))

    with pytest.raises(Misconfigured, match="Fix: add a range of IPv4"):
        await site.settle(closed, deep=True)

    assert site.writes == []
    assert {tuple(one["allowed_cidrs"]) for one in site.listeners().values()} == {("192.0.2.0/24",)}


@pytest.mark.parametrize("kept", [["0.0.0.0/0"], ["::/0"]])
async def test_an_open_listener_with_two_families_is_open_to_both(kept: list[str]) -> None:
    """The Go manager narrows it to one family."""
    site = with_ipv6()
    both = site.wish(site.spec(families=("IPv4", "IPv6")))
    await site.settle(both, deep=True)
    listener = site.listeners()[80, "TCP"]
    site.octavia("PUT", f"listeners/{listener['id']}", {"listener": {"allowed_cidrs": kept}})
    site.api.now += 5

    assert await site.plan(both) == ["~ listener of port 80/TCP: allowed_cidrs"]
    await site.settle(both, deep=True)

    assert site.listeners()[80, "TCP"]["allowed_cidrs"] == ["0.0.0.0/0", "::/0"]


async def test_after_a_start_a_quick_check_finds_what_the_go_manager_narrowed() -> None:
    """The stamp is still there: it tells which parts there are, not how they are configured."""
    site = with_ipv6()
    both = site.wish(site.spec(families=("IPv4", "IPv6")))
    await site.settle(both, deep=True)
    for one in site.api.records("listeners"):
        narrowed = {"listener": {"allowed_cidrs": ["0.0.0.0/0"]}}
        site.octavia("PUT", f"listeners/{one['id']}", narrowed)
        site.api.now += 5
    site.restart()

    assert await site.plan(both, deep=False) == [
        f"~ listener of port {port}: allowed_cidrs" for port in ("80/TCP", "443/TCP", "53/UDP")
    ]
    await site.settle(both)

    ranges = {tuple(one["allowed_cidrs"]) for one in site.api.records("listeners")}
    assert ranges == {("0.0.0.0/0", "::/0")}


async def test_a_second_family_that_the_load_balancer_lacks_gets_no_ranges() -> None:
    """Octavia refuses them: the load balancer is older than the second family of the Service."""
    site = with_ipv6()
    await site.settle(site.wish(), deep=True)
    ports = frozenset({*PORTS, Listener(port=8080, node_port=30808, position=3)})
    both = site.wish(site.spec(listeners=ports, families=("IPv4", "IPv6")))
    await site.settle(both, deep=True)

    assert site.listeners()[8080, "TCP"]["allowed_cidrs"] == ["0.0.0.0/0"]
    assert await site.plan(both) == []


async def test_ranges_of_a_second_family_that_the_load_balancer_lacks_do_not_open_it() -> None:
    site = with_ipv6()
    await site.settle(site.wish(site.spec(source_ranges=frozenset({"192.0.2.0/24"}))))
    only_six = frozenset({"2001:db8::/32"})

    with pytest.raises(Misconfigured, match="has IPv4 only, and no allowed source range is IPv4"):
        await site.settle(
            site.wish(site.spec(families=("IPv4", "IPv6"), source_ranges=only_six)), deep=True
        )

    assert {tuple(one["allowed_cidrs"]) for one in site.listeners().values()} == {("192.0.2.0/24",)}


async def test_an_open_listener_without_ranges_is_not_written_again() -> None:
    site = Site()
    await site.settle(site.wish(), deep=True)
    listener = site.listeners()[80, "TCP"]["id"]
    site.octavia("PUT", f"listeners/{listener}", {"listener": {"allowed_cidrs": None}})
    site.api.now += 5

    assert await site.plan(site.wish()) == []


async def test_fault_3_a_node_that_leaves_loses_the_security_group() -> None:
    site = Site(manage_security_groups=True)
    await settled(site)
    (group,) = [
        one["id"] for one in site.api.records("security-groups") if one["name"].startswith("lb-sg")
    ]

    await site.settle(site.wish(site.spec(site.nodes[:1])))

    servers = [node.provider_id.rpartition("/")[2] for node in site.nodes]
    assert [group in site.api.port_of(one)["security_groups"] for one in servers] == [True, False]


async def test_fault_4_a_rule_that_is_gone_does_not_keep_nodes_from_the_security_group() -> None:
    site = Site(manage_security_groups=True)
    await settled(site)
    later = site.wish(
        site.spec([*site.nodes, site.add_node("new")], listeners=frozenset(PORTS[:1]))
    )
    seen = await site.seen(later)
    for rule in site.api.records("security-group-rules"):
        if rule["port_range_min"] == 30443:
            path = f"/v2.0/security-group-rules/{rule['id']}"
            site.api.must(Service.NETWORK, "DELETE", path)

    await site.apply(site.balancers.changes(later, seen), seen)
    await site.settle(later)

    (group,) = [
        one["id"] for one in site.api.records("security-groups") if one["name"].startswith("lb-sg")
    ]
    new = site.api.server_named("new")["id"]
    assert group in site.api.port_of(new)["security_groups"]


async def test_fault_8_members_of_a_pool_are_one_request_whatever_their_number() -> None:
    site = Site(nodes=1)
    await settled(site)
    more = [site.add_node(f"new-{n}") for n in range(30)]

    await site.settle(site.wish(site.spec([*site.nodes, *more])))

    assert len(site.writes) == 3
    assert all(one.endswith("/members") for one in site.writes)


async def test_members_that_stay_keep_their_ids_and_the_weight_of_an_administrator() -> None:
    site = Site()
    await settled(site)
    before = site.members(80)["node-1"]
    site.api.change("members", before["id"], {"weight": 7})

    await site.settle(site.wish(site.spec([*site.nodes, site.add_node("new")])))

    after = site.members(80)["node-1"]
    assert (after["id"], after["weight"]) == (before["id"], 7)


async def test_members_are_changed_as_part_of_their_own() -> None:
    site = Site()
    await settled(site)
    later = site.wish(site.spec(site.nodes[:1]))
    assert {one.part for one in await site.changes(later)} == {Part.MEMBERS}


async def test_a_health_check_is_followed() -> None:
    site = Site(create_monitor=True)
    await settled(site)
    assert {one["type"] for one in site.api.records("healthmonitors")} == {"TCP", "UDP-CONNECT"}

    await site.settle(site.wish(site.spec(health=LOCAL)))
    assert {one["type"] for one in site.api.records("healthmonitors")} == {"HTTP"}
    assert {one["monitor_port"] for one in site.members(80).values()} == {31000}

    off = replace(site.wish(), options={f"{PREFIX}enable-health-monitor": "false"})
    await site.settle(off)
    assert site.api.records("healthmonitors") == []


async def test_settings_of_monitors_are_changed_in_place() -> None:
    site = Site(create_monitor=True)
    await settled(site)
    before = {one["id"] for one in site.api.records("healthmonitors")}

    slow = replace(site.wish(), options={f"{PREFIX}health-monitor-delay": "30"})
    await site.settle(slow)

    assert {one["id"] for one in site.api.records("healthmonitors")} == before
    assert {one["delay"] for one in site.api.records("healthmonitors")} == {30}


async def test_timeouts_and_limits_are_changed_in_place() -> None:
    site = Site()
    await settled(site)
    options = {f"{PREFIX}timeout-client-data": "1000", f"{PREFIX}connection-limit": "5"}

    await site.settle(replace(site.wish(), options=options))

    listener = site.listeners()[80, "TCP"]
    assert (listener["timeout_client_data"], listener["connection_limit"]) == (1000, 5)


async def test_proxy_protocol_replaces_pools_and_keeps_listeners() -> None:
    site = Site()
    await settled(site)
    before = site.listeners()[80, "TCP"]["id"]
    proxied = replace(site.wish(), options={f"{PREFIX}proxy-protocol": "v2"})
    assert "± pool of port 80/TCP: protocol TCP to PROXYV2" in await site.plan(proxied)

    seen = await site.settle(proxied)

    assert site.listeners()[80, "TCP"]["id"] == before
    assert site.pool(80)["protocol"] == "PROXYV2"
    assert set(site.members(80)) == {"node-1", "node-2"}
    assert seen.balancer is not None
    assert all(one.proxied for one in seen.balancer.ingress)


async def test_x_forwarded_for_replaces_listeners() -> None:
    site = Site()
    await settled(site)
    http = replace(site.wish(), options={f"{PREFIX}x-forwarded-for": "true"})
    assert "± port 80/TCP: listener protocol TCP to HTTP" in await site.plan(http)

    await site.settle(http)

    assert set(site.listeners()) == {(80, "HTTP"), (443, "HTTP"), (53, "UDP")}
    assert site.listeners()[80, "HTTP"]["insert_headers"] == {"X-Forwarded-For": "true"}


async def test_sctp_ports_have_sctp_pools() -> None:
    site = Site()
    ports = frozenset({Listener(port=5060, node_port=30560, transport=Transport.SCTP)})
    await site.settle(site.wish(site.spec(listeners=ports)))
    assert site.pool(5060, "SCTP")["protocol"] == "SCTP"


async def test_an_external_service_becomes_internal_and_back() -> None:
    site = Site()
    first = await site.settle(site.wish())
    internal = await site.settle(replace(site.wish(), options={INTERNAL.name: "true"}))

    assert first.balancer is not None
    assert internal.balancer is not None
    assert site.api.records("floatingips") == []
    vip = site.balancer()["vip_address"]
    assert [one.ip for one in internal.balancer.ingress] == [vip]
    assert internal.balancer.annotations[f"{PREFIX}load-balancer-address"] == vip

    await site.settle(site.wish())
    assert len(site.api.records("floatingips")) == 1


async def test_a_host_name_is_published_instead_of_the_address() -> None:
    site = Site(enable_ingress_hostname=True)
    named = replace(site.wish(), options={f"{PREFIX}hostname": "web.example.com"})
    seen = await site.settle(named)
    assert seen.balancer is not None
    assert [one.hostname for one in seen.balancer.ingress] == ["web.example.com"]

    seen = await site.settle(replace(site.wish(), options={f"{PREFIX}proxy-protocol": "true"}))
    (floating,) = site.api.records("floatingips")
    assert seen.balancer is not None
    assert [one.hostname for one in seen.balancer.ingress] == [
        f"{floating['floating_ip_address']}.nip.io"
    ]


async def test_serial_providers_get_one_part_after_the_other() -> None:
    site = Site(provider_requires_serial_api_calls=True, create_monitor=True)

    await site.settle(site.wish())

    assert set(site.members(443)) == {"node-1", "node-2"}
    assert len(site.api.records("healthmonitors")) == 3
    assert not [one for one in site.writes if one.startswith("PUT") and one.endswith("/members")]
    await site.settle(site.wish(site.spec(site.nodes[:1])))
    assert set(site.members(443)) == {"node-1"}


async def test_without_cascade_parts_are_deleted_first() -> None:
    site = Site(cascade_delete=False)
    await settled(site)
    await site.delete(site.wish())
    assert site.api.records("loadbalancers") == []
    deletions = [one for one in site.api.calls if one.method == "DELETE"]
    assert all(("cascade", "true") not in one.query for one in deletions)


async def test_immutable_annotations_that_change_are_reported() -> None:
    site = Site()
    created = replace(site.wish(), options={f"{PREFIX}subnet-id": site.subnet})
    await site.settle(created)
    _, other = site.api.add_network("other", "10.5.0.0/24")
    moved = replace(created, options={f"{PREFIX}subnet-id": other})

    seen = await site.settle(moved)

    assert seen.balancer is not None
    assert seen.balancer.options == {f"{PREFIX}subnet-id": site.subnet}
    assert site.balancer()["vip_subnet_id"] == site.subnet


@pytest.mark.parametrize("name", [one.name for one in OPTIONS if one.on_change is CREATE_ONLY])
async def test_every_annotation_that_is_only_used_at_creation_is_reported_when_it_changes(
    name: str,
) -> None:
    site = Site()
    (first,) = [one for one in site.api.records("subnets") if one["network_id"] == site.public]
    body = {"network_id": site.public, "cidr": "198.51.100.0/24", "ip_version": 4, "name": "second"}
    made = site.api.must(Service.NETWORK, "POST", "/v2.0/subnets", {"subnet": body})["subnet"]
    for one, tag in ((first, "fast"), (made, "slow")):
        site.api.change("subnets", one["id"], {"tags": [tag]})
    site.api.add_network("outside", "192.0.2.0/24", external=True)
    _, other = site.api.add_network("other", "10.5.0.0/24")
    classes = {
        "first": LoadBalancerClass(floating_network_id=site.public, floating_subnet=first["name"]),
        "second": LoadBalancerClass(floating_network_id=site.public, floating_subnet="second"),
    }
    site.config = OpenStackConfig(
        load_balancer=LoadBalancer(floating_network_id=site.public), classes=classes
    )
    site.restart()
    before, after = {
        "floating-network-id": (site.public, "outside"),
        "floating-subnet": (first["name"], "second"),
        "floating-subnet-id": (first["id"], made["id"]),
        "floating-subnet-tags": ("fast", "slow"),
        "class": ("first", "second"),
        "subnet-id": (site.subnet, other),
        "network-id": (site.network, "other"),
        "port-id": ("", "another-port"),
        "flavor-id": ("", "large"),
        "availability-zone": ("", "west"),
    }[name.removeprefix(PREFIX)]
    created = replace(site.wish(), options={name: before})
    moved = replace(site.wish(), options={name: after})

    same = await site.settle(created, deep=True)
    seen = await site.settle(moved)

    assert changed_options(ANNOTATIONS, created, same.balancer) == ()
    changed = changed_options(ANNOTATIONS, moved, seen.balancer)
    assert [one.name for one in changed] == [name]
    assert "has no effect" in without_effect(changed)[0]


def with_ipv6() -> Site:
    site = Site()
    body = {"network_id": site.network, "cidr": "fd00:5::/64", "ip_version": 6, "name": "six"}
    site.api.must(Service.NETWORK, "POST", "/v2.0/subnets", {"subnet": body})
    return site


async def test_a_family_that_is_asked_for_later_is_reported_and_the_address_kept() -> None:
    site = Site()
    before = await site.settle(site.wish())
    both = site.wish(site.spec(families=("IPv4", "IPv6")))

    seen = await site.settle(both)

    assert before.balancer is not None
    assert seen.balancer is not None
    assert seen.balancer.ingress == before.balancer.ingress
    (notice,) = seen.balancer.notices
    assert notice.reason == "LoadBalancerIPFamilyIgnored"
    expected = f"asks for IPv6, but load balancer {seen.balancer.id} was created with IPv4 only"
    assert expected in notice.message


async def test_two_families_have_an_additional_vip() -> None:
    site = with_ipv6()
    seen = await site.settle(site.wish(site.spec(families=("IPv4", "IPv6"))))
    assert seen.balancer is not None
    (floating,) = site.api.records("floatingips")
    first, second = (one.ip for one in seen.balancer.ingress)
    assert first == floating["floating_ip_address"]
    assert ":" in second
    assert seen.balancer.notices == ()


async def test_flavor_and_zone_are_used_at_creation() -> None:
    site = Site()
    flavor = "6f0c2b61-0000-4000-8000-000000000001"
    options = {f"{PREFIX}flavor-id": flavor, f"{PREFIX}availability-zone": "az1"}
    (change,) = await site.changes(replace(site.wish(), options=options))
    assert isinstance(change.step, CreateBalancer)
    assert change.step.body["flavor_id"] == flavor
    assert change.step.body["availability_zone"] == "az1"


async def test_members_stay_while_their_nodes_have_no_address() -> None:
    """All nodes may register again at once: until they are initialized, they have no addresses."""
    site = Site()
    await settled(site)
    bare = [replace(node, addresses=()) for node in site.nodes]

    await site.settle(site.wish(site.spec(bare)), deep=True)
    assert site.members(80).keys() == {"node-1", "node-2"}
    assert not [one for one in site.writes if one.endswith("/members")]

    await site.settle(site.wish(site.spec(bare[:1])), deep=True)
    assert site.members(80).keys() == {"node-1"}


async def test_members_that_leave_stay_until_one_that_joins_has_an_address() -> None:
    """Else a pool has no member while its only new node is not initialized yet."""
    site = Site()
    await settled(site)
    new = site.add_node("new")

    await site.settle(site.wish(site.spec([replace(new, addresses=())])), deep=True)
    assert site.members(80).keys() == {"node-1", "node-2"}

    await site.settle(site.wish(site.spec([new])), deep=True)
    assert site.members(80).keys() == {"new"}

    await site.settle(site.wish(site.spec([])), deep=True)
    assert not site.members(80)


async def test_members_that_leave_do_not_stay_forever_if_one_that_joins_gets_no_address() -> None:
    """Their addresses may get other machines."""
    site = Site()
    await settled(site)
    wish = site.wish(site.spec([replace(site.add_node("new"), addresses=())]))

    seen = await site.settle(wish)
    assert seen.balancer is not None
    assert seen.balancer.check_again_in == GRACE
    assert "changing" not in str(seen.stamps)
    assert site.members(80).keys() == {"node-1", "node-2"}
    site.api.now += GRACE - 10
    await site.settle(wish)
    assert site.members(80).keys() == {"node-1", "node-2"}

    site.api.now += 10
    await site.settle(wish)
    assert not site.members(80)
    seen = await site.settle(wish, deep=True)
    assert seen.balancer is not None
    assert seen.balancer.check_again_in is None
    assert not await site.changes(wish, deep=True)


async def test_members_without_an_address_follow_a_new_node_port() -> None:
    site = Site()
    await settled(site)
    bare = [replace(node, addresses=()) for node in site.nodes]
    moved = frozenset({replace(PORTS[0], node_port=31111), *PORTS[1:]})

    await site.settle(site.wish(site.spec(bare, listeners=moved)), deep=True)

    assert {one["protocol_port"] for one in site.members(80).values()} == {31111}
    assert site.members(80).keys() == {"node-1", "node-2"}


async def test_without_cascade_a_second_one_is_deleted_with_its_parts_too() -> None:
    site = Site(cascade_delete=False)
    await settled(site)
    first = site.balancer()
    pool = {"name": "p", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}
    listener = {"protocol": "TCP", "protocol_port": 80, "default_pool": pool}
    site.api.add_balancer(
        name=first["name"],
        vip_subnet_id=site.subnet,
        listeners=[listener],
        tags=[tag for tag in first["tags"] if "/spec" not in tag],
    )

    await site.delete(site.wish())

    assert site.api.records("loadbalancers") == []
