"""The helpers that Go providers import, by the behaviour that they have there."""

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.classic import helpers
from pileus.classic.helpers import (
    add_to_node_addresses,
    allows_all,
    default_load_balancer_name,
    health_check_path_port,
    load_balancer_source_ranges,
    needs_health_check,
    prefer_node_ip,
)
from pileus.kube.model.core_v1 import NodeAddress, Service, ServiceSpec
from pileus.kube.model.meta import ObjectMeta
from pileus.objects.node_ips import NodeIpRefused

ANNOTATION = "service.beta.kubernetes.io/load-balancer-source-ranges"


def service(annotation: str | None = None, uid: str = "u", **spec: Any) -> Service:
    annotations = None if annotation is None else {ANNOTATION: annotation}
    metadata = ObjectMeta(name="web", namespace="shop", uid=uid, annotations=annotations)
    kind: str = spec.pop("type", "LoadBalancer")
    return Service(metadata=metadata, spec=ServiceSpec(type=kind, **spec))


@pytest.mark.parametrize(
    ("uid", "name"),
    [
        ("4fd1e7ac-8c6c-4f9b-b7a0-3b0a1c2d3e4f", "a4fd1e7ac8c6c4f9bb7a03b0a1c2d3e4"),
        ("short", "ashort"),
        ("", "a"),
    ],
)
def test_the_default_name_is_the_uid_without_hyphens_cut_to_32_characters(uid: str, name: str):
    assert default_load_balancer_name(service(uid=uid)) == name
    assert len(name) <= 32


@pytest.mark.parametrize(
    ("given_service", "ranges"),
    [
        pytest.param(service(), {"0.0.0.0/0"}, id="nothing is said"),
        pytest.param(service(" "), {"0.0.0.0/0"}, id="blank annotation"),
        pytest.param(service("10.0.0.0/8"), {"10.0.0.0/8"}, id="annotation"),
        pytest.param(
            service(" 10.0.0.0/8 , fd00::/48 "), {"10.0.0.0/8", "fd00::/48"}, id="blanks trimmed"
        ),
        pytest.param(service("10.1.2.3/8"), {"10.0.0.0/8"}, id="bits beyond the mask"),
        pytest.param(
            service("10.0.0.0/8", load_balancer_source_ranges=(" 192.0.2.0/24",)),
            {"192.0.2.0/24"},
            id="the spec comes first",
        ),
    ],
)
def test_source_ranges_come_from_the_spec_then_the_annotation_then_are_open(
    given_service: Service, ranges: set[str]
):
    assert load_balancer_source_ranges(given_service) == set(map(ip_network, ranges))


BAD = ["10.0.0.1", "fd00::1", "10.0.0.0/33", "10.0.0.0/8,", "nowhere", "10.0.0.0/255.0.0.0"]


@pytest.mark.parametrize("text", BAD)
def test_a_range_that_go_refuses_is_refused_in_annotation_and_spec(text: str):
    with pytest.raises(ValueError, match=f"annotation {ANNOTATION}"):
        load_balancer_source_ranges(service(text))
    with pytest.raises(ValueError, match=r"spec\.loadBalancerSourceRanges"):
        load_balancer_source_ranges(service(load_balancer_source_ranges=tuple(text.split(","))))


def test_everyone_is_the_whole_of_ipv4():
    assert allows_all(load_balancer_source_ranges(service()))
    assert allows_all(load_balancer_source_ranges(service("10.0.0.0/8,0.0.0.0/0")))
    assert not allows_all(load_balancer_source_ranges(service("::/0")))
    assert not allows_all(load_balancer_source_ranges(service("10.0.0.0/8")))


@pytest.mark.parametrize("kind", ["LoadBalancer", "NodePort", "ClusterIP", ""])
@pytest.mark.parametrize("policy", ["Local", "Cluster", ""])
def test_only_local_load_balancers_are_checked_at_their_node_port(kind: str, policy: str):
    given_service = service(type=kind, external_traffic_policy=policy, health_check_node_port=31000)
    needed = (kind, policy) == ("LoadBalancer", "Local")

    assert needs_health_check(given_service) is needed
    assert health_check_path_port(given_service) == (("/healthz", 31000) if needed else None)


ADDRESSES = st.lists(
    st.builds(
        NodeAddress,
        type=st.sampled_from(["InternalIP", "ExternalIP", "FloatingIP"]),
        address=st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1"]),
    ),
    max_size=4,
)


@given(ADDRESSES, ADDRESSES)
def test_added_addresses_follow_once_each(present: list[NodeAddress], more: list[NodeAddress]):
    present = list(dict.fromkeys(present))

    merged = add_to_node_addresses(present, *more)

    assert list(merged[: len(present)]) == present
    assert set(merged) == {*present, *more}
    assert len(merged) == len(set(merged))


def addresses(*pairs: tuple[str, str]) -> tuple[NodeAddress, ...]:
    return tuple(NodeAddress(type=kind, address=text) for kind, text in pairs)


CLOUD = addresses(
    ("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2"), ("ExternalIP", "192.0.2.1"),
    ("InternalIP", "fd00::1"), ("Hostname", "n1"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("node_ip", "wanted"),
    [
        ("", ["10.0.0.1", "10.0.0.2", "192.0.2.1", "fd00::1", "n1"]),
        ("10.0.0.2", ["10.0.0.2", "192.0.2.1", "n1"]),
        ("fd00:0::1,10.0.0.1", ["fd00::1", "10.0.0.1", "192.0.2.1", "n1"]),
        ("192.0.2.1", ["192.0.2.1", "10.0.0.1", "10.0.0.2", "fd00::1", "n1"]),
    ],
)
def test_the_preferred_address_displaces_others_of_its_type(node_ip: str, wanted: list[str]):
    assert [each.address for each in prefer_node_ip(node_ip, CLOUD)] == wanted


@pytest.mark.parametrize("node_ip", ["10.0.0.9", "nonsense", "10.0.0.1,10.0.0.2", "0.0.0.0,::"])
def test_a_preferred_address_that_cannot_be_given_is_refused(node_ip: str):
    with pytest.raises(NodeIpRefused):
        prefer_node_ip(node_ip, CLOUD)


def test_every_helper_in_the_table_exists_and_every_helper_is_in_the_table():
    table = [line for line in (helpers.__doc__ or "").splitlines() if line.startswith("| `")]
    named = {name for line in table for name in re.findall(r"`(\w+)`", line.split("|")[2])}
    tree = Path(str(helpers.__file__)).read_text(encoding="utf-8")

    assert named == set(re.findall(r"^def (\w+)", tree, re.MULTILINE))
