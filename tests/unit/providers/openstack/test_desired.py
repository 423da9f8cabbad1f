"""The load balancer that a Service asks for: names and values as the Go program gives them."""

from dataclasses import replace
from typing import Any

import pytest

from pileus.cloud.balancer import BalancerSpec, HealthCheck, Listener, Owner, Transport, Wish
from pileus.cloud.errors import Misconfigured, Unsupported
from pileus.cloud.model import Address, NodeName, NodeRef
from pileus.cloud.selectors import parse_selector
from pileus.providers.openstack.annotations import INTERNAL, NODE_SELECTOR, PREFIX
from pileus.providers.openstack.config import LoadBalancer, OpenStackConfig
from pileus.providers.openstack.desired import (
    Desired,
    Setup,
    balancer_name,
    desire,
    legacy_name,
)
from pileus.providers.openstack.features import OctaviaFeatures
from pileus.providers.openstack.networks import Chosen

OWNER = Owner("cluster-1", "7c1e6f52-8a2e-4a2b-9a53-0c8b5e0d6f01")
NAME = "kube_service_ref_default_multi"
MARK = ["pileus.dev/cluster=cluster-1", f"pileus.dev/service={OWNER.uid}"]
NODES = frozenset(
    NodeRef(
        name=NodeName(f"ref-node-{n}"),
        provider_id=f"openstack:///server-{n}",
        addresses=(
            Address("InternalIP", f"10.9.0.1{n}"),
            Address("InternalIP", f"fd00::1{n}"),
            Address("ExternalIP", f"198.51.100.{n}"),
        ),
        labels={"pool": "web" if n == 1 else "db"},
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
    source_ranges=frozenset({"192.168.0.0/16", "10.0.0.0/8"}),
)
MONITORED = LoadBalancer(create_monitor=True)
OPEN = replace(SPEC, source_ranges=frozenset())
LOCAL = replace(SPEC, health=HealthCheck(node_port=31000))


def setup(config: LoadBalancer = MONITORED, **features: Any) -> Setup:
    given: dict[str, Any] = {"version": (2, 26), "provider": config.lb_provider, **features}
    known = OctaviaFeatures(**given)
    return Setup(OpenStackConfig(load_balancer=config), known, "ref")


def wish(spec: BalancerSpec = SPEC, **options: str) -> Wish:
    named = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in options.items()}
    return Wish(owner=OWNER, spec=spec, namespace="default", service="multi", options=named)


def tree(
    spec: BalancerSpec = SPEC, config: LoadBalancer = MONITORED, **options: str
) -> dict[str, Any]:
    """The request that creates the load balancer."""
    desired = desire(wish(spec, **options), spec, setup(config))
    return desired.body(Chosen(vip_subnet_id="s", member_subnet_id="m"), (), whole=True)


def desired_with(features: dict[str, Any], spec: BalancerSpec = SPEC, **options: str) -> Desired:
    config = replace(MONITORED, lb_provider=features.get("provider", "amphora"))
    return desire(wish(spec, **options), spec, setup(config, **features))


def test_names_descriptions_and_tags_are_those_of_the_go_program() -> None:
    body = tree()

    assert body["name"] == NAME
    assert body["description"] == "Kubernetes external service default/multi from cluster ref"
    assert body["tags"] == [NAME, *MARK, f"pileus.dev/created-for={MARK[1].partition('=')[2]}"]
    listeners = body["listeners"]
    assert [one["name"] for one in listeners] == [f"listener_{n}_{NAME}" for n in range(3)]
    assert [one["tags"] for one in listeners] == [[NAME, *MARK]] * 3
    pools = [one["default_pool"] for one in listeners]
    assert [one["name"] for one in pools] == [f"pool_{n}_{NAME}" for n in range(3)]
    monitors = [one["healthmonitor"] for one in pools]
    assert [one["name"] for one in monitors] == [f"monitor_{n}_{NAME}" for n in range(3)]
    assert [one["type"] for one in monitors] == ["TCP", "TCP", "UDP-CONNECT"]


def test_listeners_pools_and_members_have_the_values_of_the_go_program() -> None:
    first, *_ = tree()["listeners"]

    assert first["protocol"] == "TCP"
    assert first["allowed_cidrs"] == ["10.0.0.0/8", "192.168.0.0/16"]
    assert (first["connection_limit"], first["timeout_client_data"]) == (-1, 50000)
    assert first["default_pool"]["lb_algorithm"] == "ROUND_ROBIN"
    assert first["default_pool"]["members"] == [
        {
            "name": f"ref-node-{n}",
            "address": f"10.9.0.1{n}",
            "protocol_port": 30352,
            "subnet_id": "m",
        }
        for n in (1, 2)
    ]


def test_long_names_are_cut_to_255_bytes() -> None:
    long = replace(wish(), service="ü" * 200)
    assert len(balancer_name(long, "ref").encode()) <= 255


def test_the_legacy_name_is_the_uid() -> None:
    assert legacy_name(OWNER) == "a7c1e6f528a2e4a2b9a530c8b5e0d6f0"
    assert len(legacy_name(OWNER)) == 32


def test_without_source_ranges_listeners_are_open() -> None:
    assert {tuple(one["allowed_cidrs"]) for one in tree(OPEN)["listeners"]} == {("0.0.0.0/0",)}


def test_proxy_protocol_is_the_protocol_of_tcp_pools_alone() -> None:
    pools = [one["default_pool"]["protocol"] for one in tree(proxy_protocol="v2")["listeners"]]
    assert pools == ["PROXYV2", "PROXYV2", "UDP"]


def test_x_forwarded_for_is_a_header_of_http_listeners() -> None:
    first, *_ = tree(x_forwarded_for="true")["listeners"]
    assert (first["protocol"], first["default_pool"]["protocol"]) == ("HTTP", "HTTP")
    assert first["insert_headers"] == {"X-Forwarded-For": "true"}


def test_a_certificate_makes_listeners_terminate_tls() -> None:
    reference = "https://barbican.example/v1/containers/c"
    first, _, third = tree(default_tls_container_ref=reference)["listeners"]
    assert (first["protocol"], first["default_pool"]["protocol"]) == ("TERMINATED_HTTPS", "HTTP")
    assert first["default_tls_container_ref"] == reference
    assert third["protocol"] == "UDP"


def test_members_are_checked_at_the_health_check_node_port() -> None:
    first, *_ = tree(LOCAL)["listeners"]
    monitor = first["default_pool"]["healthmonitor"]
    assert (monitor["type"], monitor["url_path"]) == ("HTTP", "/healthz")
    assert {one["monitor_port"] for one in first["default_pool"]["members"]} == {31000}


def test_fault_1_without_http_monitors_members_have_no_monitor_port() -> None:
    for features in ({"provider": "ovn"}, {"version": (2, 15)}):
        udp = desired_with(features, replace(OPEN, health=LOCAL.health)).by_port[53, "UDP"]
        assert udp.monitor is not None
        assert udp.monitor.type == "UDP-CONNECT"
        assert {one.monitor_port for one in udp.members} == {None}


def test_without_monitors_the_health_check_node_port_is_not_used() -> None:
    first, *_ = tree(LOCAL, LoadBalancer())["listeners"]
    assert "healthmonitor" not in first["default_pool"]
    assert all("monitor_port" not in one for one in first["default_pool"]["members"])


def test_fault_2_session_affinity_is_the_persistence_of_pools() -> None:
    sticky = replace(SPEC, sticky_seconds=10800)
    pool = tree(sticky)["listeners"][0]["default_pool"]
    assert pool["session_persistence"] == {"type": "SOURCE_IP"}


def test_ovn_gets_nothing_that_it_refuses() -> None:
    desired = desired_with({"provider": "ovn"}, OPEN, flavor_id="f", availability_zone="az1")
    body = desired.body(Chosen(), (), whole=True)

    assert not {"flavor_id", "availability_zone"} & body.keys()
    assert all(
        one.settings.keys() == {"connection_limit"} and one.algorithm == "SOURCE_IP_PORT"
        for one in desired.ports
    )
    assert [one.reason for one in desired.notices] == ["LoadBalancerAvailabilityZonesIgnored"]


@pytest.mark.parametrize(
    ("features", "why"),
    [
        ({"provider": "ovn"}, "provider ovn has no access lists.*manage-security-groups"),
        ({"version": (2, 11)}, r"Octavia API 2\.11 has no access lists.*upgrade Octavia to 2\.12"),
    ],
)
def test_source_ranges_that_the_cloud_cannot_apply_are_refused(
    features: dict[str, Any], why: str
) -> None:
    with pytest.raises(Unsupported, match=why):
        desired_with(features)


@pytest.mark.parametrize(
    ("families", "ranges"),
    [
        (("IPv4",), {"0.0.0.0/0"}),
        (("IPv4",), {"0.0.0.0/0", "10.0.0.0/8", "fd00::/8"}),
        (("IPv6",), {"0::/0"}),
    ],
)
def test_ranges_that_admit_every_client_restrict_nothing(
    families: tuple[str, ...], ranges: set[str]
) -> None:
    spec = replace(OPEN, families=families, source_ranges=frozenset(ranges))
    assert "allowed_cidrs" not in desired_with({"provider": "ovn"}, spec).ports[0].settings


def test_ranges_that_admit_every_client_of_one_of_two_families_restrict() -> None:
    closed = replace(OPEN, families=("IPv4", "IPv6"), source_ranges=frozenset({"0.0.0.0/0"}))
    with pytest.raises(Unsupported, match="cannot restrict client addresses"):
        desired_with({"provider": "ovn", "version": (2, 26)}, closed)


def test_security_groups_restrict_the_clients_of_ovn_alone() -> None:
    """With other providers, members see the address of the load balancer."""
    ovn = LoadBalancer(lb_provider="ovn", manage_security_groups=True)
    amphora = LoadBalancer(manage_security_groups=True)

    assert desire(wish(), SPEC, setup(ovn)).notices == ()
    with pytest.raises(Unsupported, match="cannot restrict client addresses"):
        desire(wish(), SPEC, setup(amphora, version=(2, 11)))


def test_a_method_that_the_provider_refuses_is_refused() -> None:
    with pytest.raises(Misconfigured, match="SOURCE_IP_PORT"):
        desired_with({"provider": "ovn"}, OPEN, lb_method="ROUND_ROBIN")


def test_an_octavia_without_tags_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"2\.5"):
        desired_with({"version": (2, 4)})


def test_two_families_need_additional_vips() -> None:
    both = replace(SPEC, families=("IPv4", "IPv6"), source_ranges=frozenset())
    with pytest.raises(Unsupported, match=r"2\.26"):
        desired_with({"version": (2, 25)}, both)
    desired = desired_with({"version": (2, 26)}, both)
    assert desired.body(Chosen(), ("v6",), whole=True)["additional_vips"] == [{"subnet_id": "v6"}]
    assert desired.ports[0].settings["allowed_cidrs"] == ["0.0.0.0/0", "::/0"]


def test_ranges_of_a_family_that_the_load_balancer_does_not_have_are_left_out() -> None:
    mixed = replace(SPEC, source_ranges=frozenset({"10.0.0.0/8", "fd00::/8"}))
    assert tree(mixed)["listeners"][0]["allowed_cidrs"] == ["10.0.0.0/8"]


def test_all_ports_share_their_source_ranges() -> None:
    found = desired_with({}, replace(SPEC, source_ranges=frozenset({"10.0.0.0/8"})))

    first, *others = (one.settings["allowed_cidrs"] for one in found.ports)

    assert others
    assert all(one is first for one in others)


def test_a_port_without_a_node_port_is_refused() -> None:
    """It got a listener and a pool without members, and the Service was reported as ready."""
    bare = frozenset(replace(one, node_port=0) for one in SPEC.listeners)
    with pytest.raises(Misconfigured, match="allocateLoadBalancerNodePorts of the Service to true"):
        desired_with({}, replace(SPEC, listeners=bare))


def test_ranges_that_are_all_of_another_family_are_refused() -> None:
    closed = replace(SPEC, source_ranges=frozenset({"fd00::/8"}))
    with pytest.raises(Misconfigured, match="no allowed source range is IPv4: fd00::/8"):
        tree(closed)


def test_an_ipv6_load_balancer_has_ipv6_members_and_no_floating_ip() -> None:
    spec = replace(SPEC, families=("IPv6",), source_ranges=frozenset())
    desired = desire(wish(spec), spec, setup())
    assert not desired.has_floating_ip
    assert {one.address for one in desired.ports[0].members} == {"fd00::11", "fd00::12"}
    assert [one.reason for one in desired.notices] == ["LoadBalancerFloatingIPSkipped"]


def test_the_requested_address_is_the_vip_of_internal_services_alone() -> None:
    spec = replace(SPEC, requested_address="10.9.0.200")
    external = desire(wish(spec), spec, setup())
    internal = desire(replace(wish(spec), options={INTERNAL.name: "true"}), spec, setup())
    assert (external.vip_address, internal.vip_address) == ("", "10.9.0.200")


def test_internal_lb_of_the_configuration_cannot_be_overridden() -> None:
    config = LoadBalancer(internal_lb=True)
    asked = replace(wish(), options={INTERNAL.name: "false"})
    assert desire(asked, SPEC, setup(config)).is_internal


def test_a_selector_of_the_service_replaces_the_one_of_the_configuration() -> None:
    config = LoadBalancer(node_selector="pool=web")
    default = desire(wish(), SPEC, setup(config))
    chosen = desire(replace(wish(), selector=parse_selector("pool")), SPEC, setup(config))
    assert [one.name for one in default.ports[0].members] == ["ref-node-1"]
    assert [one.name for one in chosen.ports[0].members] == ["ref-node-1", "ref-node-2"]


@pytest.mark.parametrize("text", ["", " ", ",", "pool=", "pool"])
def test_an_empty_selector_and_an_empty_value_mean_what_they_mean_in_go(text: str) -> None:
    """An empty annotation replaces the configuration; `k=` is any value of the label."""
    config = LoadBalancer(node_selector="pool=web")
    given = NODE_SELECTOR.kind.parse(text)
    chosen = desire(replace(wish(), selector=given), SPEC, setup(config))
    by_default = desire(wish(), SPEC, setup(LoadBalancer(node_selector=text)))

    for one in (chosen, by_default):
        assert [each.name for each in one.ports[0].members] == ["ref-node-1", "ref-node-2"]
    assert setup(config).fingerprint(wish()) != setup(config).fingerprint(
        replace(wish(), selector=given)
    )


@pytest.mark.parametrize(
    "options",
    [
        {f"{PREFIX}x-forwarded-for": "maybe"},
        {f"{PREFIX}x-forwarded-for": "true", f"{PREFIX}proxy-protocol": "true"},
    ],
)
def test_a_printed_fix_names_the_service_and_its_namespace(options: dict[str, str]) -> None:
    asked = replace(wish(), options=options)
    try:
        text = desire(asked, SPEC, setup()).notices[0].message
    except Misconfigured as error:
        text = str(error)

    command = f"kubectl annotate service {asked.service} --namespace={asked.namespace}"
    assert asked.service
    assert text.endswith(f"Fix: {command} {PREFIX}x-forwarded-for-")


def test_the_configuration_is_part_of_the_fingerprint() -> None:
    one, other = setup(LoadBalancer()), setup(LoadBalancer(lb_method="SOURCE_IP"))
    assert one.fingerprint(wish()) == one.fingerprint(wish())
    assert one.fingerprint(wish()) != other.fingerprint(wish())
