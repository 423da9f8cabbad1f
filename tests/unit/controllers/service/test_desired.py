"""The load balancer that a Service asks for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.balancer import BalancerSpec, HealthCheck, Listener, Owner, Transport, Wish
from pileus.cloud.model import NodeName, NodeRef
from pileus.controllers.service.annotations import Mode
from pileus.controllers.service.desired import (
    Desires,
    InvalidService,
    desired,
    differ_in_members,
    narrowed,
)
from pileus.kube.model.core_v1 import (
    ClientIpConfig,
    Service,
    ServicePort,
    ServiceSpec,
    SessionAffinityConfig,
)
from pileus.kube.model.meta import ObjectMeta
from pileus.objects.ranges import SOURCE_RANGES
from pileus_lab.local.options import ANNOTATIONS

MEMBERS = frozenset({NodeRef(name=NodeName("a"))})
PORT = ServicePort(port=80, node_port=30080)


def service(annotations: dict[str, str] | None = None, **spec: Any) -> Service:
    metadata = ObjectMeta(name="web", namespace="shop", uid="u1", annotations=annotations)
    given: dict[str, Any] = {"type": "LoadBalancer", "ports": (PORT,), **spec}
    return Service(metadata=metadata, spec=ServiceSpec(**given))


def spec_of(**spec: Any) -> BalancerSpec:
    found = desired(service(**spec), MEMBERS)
    assert isinstance(found, BalancerSpec), found
    return found


def test_a_plain_service():
    assert spec_of() == BalancerSpec(
        listeners=frozenset({Listener(port=80, node_port=30080)}), members=MEMBERS
    )


def test_ports_of_several_protocols_with_names_and_application_protocols():
    ports = (
        ServicePort(port=53, node_port=30053, name="dns"),
        ServicePort(port=53, node_port=30054, name="dns-udp", protocol="UDP"),
        ServicePort(port=443, node_port=30443, name="web", app_protocol="kubernetes.io/h2c"),
    )

    assert spec_of(ports=ports).listeners == {
        Listener(port=53, node_port=30053, name="dns"),
        Listener(port=53, node_port=30054, name="dns-udp", transport=Transport.UDP),
        Listener(port=443, node_port=30443, name="web", application_protocol="kubernetes.io/h2c"),
    }


def test_listeners_have_the_positions_of_their_ports_which_make_no_difference():
    ports = (
        ServicePort(port=443, node_port=30443, name="tls"),
        ServicePort(port=80, node_port=30080, name="plain"),
    )

    found, reversed_ = spec_of(ports=ports), spec_of(ports=ports[::-1])

    assert {one.port: one.position for one in found.listeners} == {443: 0, 80: 1}
    assert {one.port: one.position for one in reversed_.listeners} == {443: 1, 80: 0}
    assert found == reversed_


def test_a_service_without_node_ports():
    ports = (ServicePort(port=80),)

    found = spec_of(ports=ports, allocate_load_balancer_node_ports=False)

    assert found.listeners == {Listener(port=80, node_port=0)}


@pytest.mark.parametrize(
    ("given", "families", "ranges"),
    [
        (("10.1.2.3/8",), ("IPv4",), {"10.0.0.0/8"}),
        ((" 10.0.0.0/8 ",), ("IPv4",), {"10.0.0.0/8"}),
        (("0.0.0.0/0",), ("IPv4",), set[str]()),
        (("0.0.0.0/0", "10.0.0.0/8"), ("IPv4",), set[str]()),
        (("0.0.0.0/0",), ("IPv4", "IPv6"), {"0.0.0.0/0"}),
        (("0.0.0.0/0", "::/0"), ("IPv4", "IPv6"), set[str]()),
        (("2001:DB8::/32",), ("IPv6",), {"2001:db8::/32"}),
        ((), ("IPv4",), set[str]()),
    ],
)
def test_who_may_connect(given: tuple[str, ...], families: tuple[str, ...], ranges: set[str]):
    found = spec_of(load_balancer_source_ranges=given, ip_families=families)

    assert found.source_ranges == ranges


def test_ranges_come_from_the_annotation_where_the_spec_has_none():
    annotations = {SOURCE_RANGES: " 10.0.0.0/8 ,192.0.2.0/24"}

    from_annotation = desired(service(annotations), MEMBERS)
    from_spec = desired(
        service(annotations, load_balancer_source_ranges=("198.51.100.0/24",)), MEMBERS
    )

    assert isinstance(from_annotation, BalancerSpec)
    assert isinstance(from_spec, BalancerSpec)
    assert from_annotation.source_ranges == {"10.0.0.0/8", "192.0.2.0/24"}
    assert from_spec.source_ranges == {"198.51.100.0/24"}


def test_affinity_lasts_as_long_as_it_says():
    config = SessionAffinityConfig(client_ip=ClientIpConfig(timeout_seconds=60))

    assert spec_of().sticky_seconds is None
    assert spec_of(session_affinity="ClientIP").sticky_seconds == 10800
    asked = spec_of(session_affinity="ClientIP", session_affinity_config=config)
    assert asked.sticky_seconds == 60


def test_local_traffic_is_checked_at_its_own_port():
    local = spec_of(external_traffic_policy="Local", health_check_node_port=31234)

    assert local.health == HealthCheck(node_port=31234, path="/healthz")
    assert spec_of(external_traffic_policy="Cluster", health_check_node_port=31234).health is None


def test_families_are_those_of_the_service_in_its_order():
    assert spec_of(ip_families=("IPv6", "IPv4")).families == ("IPv6", "IPv4")
    assert spec_of(cluster_ips=("2001:db8::1",)).families == ("IPv6",)
    assert spec_of(cluster_ips=("None",)).families == ("IPv4",)


def test_a_requested_address_is_spelled_as_usual():
    asked = spec_of(load_balancer_ip="2001:DB8:0::7", ip_families=("IPv6",))

    assert asked.requested_address == "2001:db8::7"


@pytest.mark.parametrize("text", ["reserved-address-7", "::1", "10.0.0.300", "a b"])
def test_whatever_address_is_requested_is_the_providers_to_judge(text: str):
    assert spec_of(load_balancer_ip=text, ip_families=("IPv4",)).requested_address == text


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.0/8,10.0.0.1", "fd00::1"])
def test_a_source_range_without_a_mask_is_refused_in_the_annotation_with_the_fix(text: str):
    found = desired(service({SOURCE_RANGES: text}), MEMBERS)

    assert isinstance(found, InvalidService)
    host = text.rsplit(",", maxsplit=1)[-1]
    assert f"annotation {SOURCE_RANGES}" in str(found)
    assert f"write {host}/{128 if ':' in host else 32} for this one address" in str(found)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"ports": ()}, "spec.ports is empty"),
        ({"ports": (ServicePort(port=80, node_port=1, protocol="QUIC"),)}, "80/QUIC"),
        ({"ports": (ServicePort(port=70000, node_port=1),)}, "from 1 to 65535"),
        ({"ports": (ServicePort(port=80),)}, "no node port yet"),
        ({"load_balancer_source_ranges": ("10/8x",)}, '"10/8x" is not a CIDR'),
        ({"load_balancer_source_ranges": ("10.0.0.1",)}, "write 10.0.0.1/32"),
        ({"load_balancer_source_ranges": ("10.0.0.0/8", "FD00::1")}, "write fd00::1/128"),
        ({"load_balancer_source_ranges": ("10.0.0.0/255.0.0.0",)}, "is not a CIDR"),
        ({"load_balancer_source_ranges": ("",)}, "is not a CIDR"),
        ({"load_balancer_source_ranges": ("fd00::/8",)}, "no allowed source range is IPv4"),
        ({"load_balancer_source_ranges": ("::/0",)}, "no allowed source range is IPv4"),
        (
            {"load_balancer_source_ranges": ("10.0.0.0/8",), "ip_families": ("IPv6",)},
            "no allowed source range is IPv6",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(spec: dict[str, Any], words: str):
    found = desired(service(**spec), MEMBERS)

    assert isinstance(found, InvalidService)
    assert words in str(found)


def test_all_that_is_wrong_is_said_at_once():
    bad = service(load_balancer_ip="x", load_balancer_source_ranges=("y", "z"), ports=())

    found = desired(bad, MEMBERS)

    assert isinstance(found, InvalidService)
    assert len(found.problems) == 3


def test_a_service_that_says_nothing_at_all_is_refused_and_no_crash():
    assert isinstance(desired(Service(), MEMBERS), InvalidService)


def test_the_wish_carries_what_the_provider_declared_and_the_users_word():
    annotations = {
        "local.pileus/drain-seconds": "7",
        "local.pileus/drain-second": "8",
        "other.example/size": "big",
        "pileus.dev/adopt": " lb-7 ",
    }
    desires = Desires(cluster="c", annotations=ANNOTATIONS)

    wish = desires.wish(service(annotations), MEMBERS)

    assert isinstance(wish, Wish)
    assert (wish.owner, wish.name, wish.adopts) == (Owner("c", "u1"), "shop-web", "lb-7")
    assert wish.options == {"local.pileus/drain-seconds": "7"}
    assert desires.none(service(annotations)).spec is None
    assert desires.none(service(annotations)).adopts == ""


def test_what_goes_with_a_service_depends_on_its_mode():
    desires = Desires(cluster="c")
    full = desires.afterwards(service(), Mode.FULL)
    members = desires.afterwards(service(), Mode.MEMBERS)

    assert full is not None
    assert full.spec is None
    assert members is not None
    assert members.spec is not None
    assert members.spec.members == frozenset()
    assert desires.afterwards(service(ports=()), Mode.MEMBERS) is None
    assert desires.afterwards(service(), Mode.OBSERVE) is None
    assert desires.afterwards(service(), Mode.NONE) is None


@pytest.mark.parametrize(
    ("policy", "families", "left"),
    [
        ("PreferDualStack", ("IPv6", "IPv4"), ("IPv6",)),
        ("PreferDualStack", ("IPv4",), None),
        ("RequireDualStack", ("IPv4", "IPv6"), None),
        (None, ("IPv4", "IPv6"), None),
    ],
)
def test_only_who_prefers_two_families_does_with_one(
    policy: str | None, families: tuple[str, ...], left: tuple[str, ...] | None
):
    asked = service(ip_family_policy=policy, ip_families=families)
    wish = Desires(cluster="c").wish(asked, MEMBERS)
    assert isinstance(wish, Wish)

    narrower = narrowed(asked, wish)

    assert (narrower and narrower.spec and narrower.spec.families) == left


def test_source_ranges_are_not_lost_with_the_second_family():
    """The fallback would be open to every client."""
    asked = service(
        ip_family_policy="PreferDualStack",
        ip_families=("IPv4", "IPv6"),
        load_balancer_source_ranges=("2001:db8::/32",),
    )
    wish = Desires(cluster="c").wish(asked, MEMBERS)
    assert isinstance(wish, Wish)

    assert narrowed(asked, wish) is None


def test_wishes_that_differ_in_members_alone():
    desires, more = Desires(cluster="c"), frozenset({NodeRef(name=NodeName("b"))})
    one, other = desires.wish(service(), MEMBERS), desires.wish(service(), more)
    third = desires.wish(service(session_affinity="ClientIP"), more)
    assert isinstance(one, Wish)
    assert isinstance(other, Wish)
    assert isinstance(third, Wish)

    assert differ_in_members(one, other)
    assert not differ_in_members(one, third)
    assert not differ_in_members(None, one)


@given(
    st.lists(
        st.builds(
            ServicePort,
            port=st.integers(-1, 70000),
            node_port=st.integers(0, 40000),
            protocol=st.sampled_from(["TCP", "UDP", "SCTP", "", "tcp"]),
            name=st.text(max_size=3),
        ),
        max_size=4,
    ),
    st.lists(st.text(alphabet="0123456789./:abcf ", max_size=20), max_size=3),
    st.text(alphabet="0123456789.:abcf% ", max_size=20),
    st.lists(st.sampled_from(["IPv4", "IPv6", "odd"]), max_size=2),
)
def test_any_service_gives_a_wish_or_a_refusal_with_words(
    ports: list[ServicePort], ranges: list[str], address: str, families: list[str]
):
    asked = service(
        ports=tuple(ports),
        load_balancer_source_ranges=tuple(ranges),
        load_balancer_ip=address,
        ip_families=tuple(families),
    )

    found = desired(asked, MEMBERS)

    if isinstance(found, InvalidService):
        assert all(found.problems)
    else:
        assert found.listeners
        assert found == desired(asked, MEMBERS)


def test_more_ports_or_ranges_than_a_pass_can_afford_are_refused():
    ports = tuple(ServicePort(port=n, node_port=n, protocol="TCP") for n in range(1, 1002))
    ranges = tuple(f"10.{n >> 8}.{n & 255}.0/24" for n in range(2001))

    found = desired(service({}, ports=ports, load_balancer_source_ranges=ranges), MEMBERS)

    assert isinstance(found, InvalidService)
    assert found.problems == (
        "1001 ports, and at most 1000 are possible",
        "spec.loadBalancerSourceRanges: 2001 ranges, and at most 2000 are possible",
    )


@pytest.mark.parametrize(
    ("ports", "ranges", "nodes", "problem"),
    [
        (100, 100, 100, ""),
        (50, 1, 5000, ""),
        (101, 100, 1, "101 ports with 100 source ranges each, and at most 10000 ranges of all"),
        (51, 0, 197, "51 ports with 197 nodes each, and at most 10000 members of all ports"),
    ],
)
def test_a_cloud_gets_at_most_so_many_ranges_and_members_of_all_ports(
    ports: int, ranges: int, nodes: int, problem: str
) -> None:
    asked = service(
        {},
        ports=tuple(ServicePort(port=n, node_port=n) for n in range(1, ports + 1)),
        load_balancer_source_ranges=tuple(f"10.{n >> 8}.{n & 255}.0/24" for n in range(ranges)),
    )

    found = desired(asked, frozenset(NodeRef(name=NodeName(f"n{n}")) for n in range(nodes)))

    assert isinstance(found, InvalidService) is bool(problem)
    assert problem in str(found)


def test_a_refusal_of_source_ranges_names_the_first_ones():
    ranges = tuple(f"fd00:{n:x}::/32" for n in range(1, 31))

    said = str(desired(service({}, load_balancer_source_ranges=ranges), MEMBERS))

    assert "fd00:19::/32 and 20 more. It is not changed" in said


def test_of_many_problems_the_first_are_named():
    ranges = tuple(f"x{n}" for n in range(30))

    said = str(desired(service({}, load_balancer_source_ranges=ranges), MEMBERS))

    assert '"x9" is not a CIDR' in said
    assert said.endswith("; and 20 more")
