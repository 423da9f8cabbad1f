from collections.abc import Sequence

import pytest

from pileus.cloud.model import Address, AddressType
from pileus.controllers.node.addresses import (
    check_node_ip,
    desired_addresses,
    same_addresses,
    usable,
)
from pileus.kube.model.core_v1 import NodeAddress
from pileus.objects.node_ips import PROVIDED_NODE_IP, NodeIpRefused, parse_node_ips
from pileus.objects.nodes import addresses_of
from tests.unit.controllers.node.objects import external, internal, node


def reported(*pairs: tuple[str, str]) -> tuple[NodeAddress, ...]:
    return tuple(NodeAddress(type=kind, address=text) for kind, text in pairs)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("10.0.0.1", ["10.0.0.1"], id="one IPv4"),
        pytest.param("fd00::1", ["fd00::1"], id="one IPv6"),
        pytest.param("10.0.0.1,fd00::1", ["10.0.0.1", "fd00::1"], id="a pair"),
        pytest.param("fd00::1,10.0.0.1", ["fd00::1", "10.0.0.1"], id="a pair, IPv6 first"),
        pytest.param("010.000.0.01", ["10.0.0.1"], id="leading zeros are decimal"),
        pytest.param("::ffff:10.0.0.1", ["10.0.0.1"], id="a mapped address is IPv4"),
        pytest.param("0.0.0.0", ["0.0.0.0"], id="unspecified alone is read"),
    ],
)
def test_a_provided_node_ip_is_read(text: str, expected: list[str]) -> None:
    assert [str(ip) for ip in parse_node_ips(text)] == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("10.0.0.1, fd00::1", id="a blank"),
        pytest.param(" 10.0.0.1", id="a leading blank"),
        pytest.param("10.0.0.1,", id="a trailing comma"),
        pytest.param("10.0.0", id="three parts"),
        pytest.param("10.0..1", id="an empty part"),
        pytest.param("10.0.0.256", id="too large"),
        pytest.param("fe80::1%eth0", id="a zone"),
        pytest.param("node-1", id="a name"),
        pytest.param("10.0.0.1,10.0.0.2", id="two IPv4"),
        pytest.param("fd00::1,fd00::2", id="two IPv6"),
        pytest.param("10.0.0.1,::ffff:10.0.0.2", id="IPv4 and mapped IPv4"),
        pytest.param("10.0.0.1,fd00::1,10.0.0.2", id="three"),
        pytest.param("0.0.0.0,fd00::1", id="unspecified IPv4 in a pair"),
        pytest.param("10.0.0.1,::", id="unspecified IPv6 in a pair"),
    ],
)
def test_a_wrong_provided_node_ip_is_refused_with_the_annotations_name(text: str) -> None:
    with pytest.raises(NodeIpRefused, match=PROVIDED_NODE_IP):
        parse_node_ips(text)


def test_without_addresses_from_the_cloud_the_node_keeps_its_own() -> None:
    before = node(addresses=[("InternalIP", "10.0.0.9")])

    assert desired_addresses(before, ()) == addresses_of(before)


@pytest.mark.parametrize(
    ("present", "from_cloud", "expected"),
    [
        pytest.param(
            [("Hostname", "n1")],
            [("InternalIP", "10.0.0.1")],
            [("InternalIP", "10.0.0.1"), ("Hostname", "n1")],
            id="the node's host name is kept, at the end",
        ),
        pytest.param(
            [("Hostname", "n1")],
            [("Hostname", "cloud-name"), ("InternalIP", "10.0.0.1")],
            [("Hostname", "cloud-name"), ("InternalIP", "10.0.0.1")],
            id="the cloud's host name takes its place",
        ),
        pytest.param(
            [("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2")],
            [("InternalIP", "10.0.0.3"), ("InternalIP", "10.0.0.2"), ("InternalIP", "10.0.0.1")],
            [("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2"), ("InternalIP", "10.0.0.3")],
            id="the main address does not flip when another comes",
        ),
        pytest.param(
            [("InternalIP", "fd00:0:0::1")],
            [("InternalIP", "fd00::1"), ("ExternalIP", "1.2.3.4")],
            [("InternalIP", "fd00:0:0::1"), ("ExternalIP", "1.2.3.4")],
            id="another spelling is the same address",
        ),
        pytest.param(
            [],
            [("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.1")],
            [("InternalIP", "10.0.0.1")],
            id="a duplicate counts once",
        ),
        pytest.param(
            [("InternalIP", "10.0.0.1"), ("ExternalIP", "1.2.3.4")],
            [("InternalIP", "10.0.0.1")],
            [("InternalIP", "10.0.0.1")],
            id="what the cloud took away goes",
        ),
    ],
)
def test_desired_addresses(
    present: Sequence[tuple[str, str]],
    from_cloud: Sequence[tuple[str, str]],
    expected: Sequence[tuple[str, str]],
) -> None:
    before = node(addresses=present)

    assert desired_addresses(before, reported(*from_cloud)) == reported(*expected)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(
            "10.0.0.2",
            [("InternalIP", "10.0.0.2"), ("ExternalIP", "1.2.3.4"), ("Hostname", "n1")],
            id="displaces others of its type",
        ),
        pytest.param(
            "1.2.3.4",
            [
                ("ExternalIP", "1.2.3.4"),
                ("InternalIP", "10.0.0.1"),
                ("InternalIP", "10.0.0.2"),
                ("InternalIP", "fd00::2"),
                ("Hostname", "n1"),
            ],
            id="leaves other types alone",
        ),
        pytest.param(
            "fd00:0::2,10.0.0.2",
            [
                ("InternalIP", "fd00::2"),
                ("InternalIP", "10.0.0.2"),
                ("ExternalIP", "1.2.3.4"),
                ("Hostname", "n1"),
            ],
            id="a pair in the order asked for, by value",
        ),
    ],
)
def test_trap_15_what_the_kubelet_asks_for_goes_first(
    asked: str, expected: Sequence[tuple[str, str]]
) -> None:
    before = node(annotations={PROVIDED_NODE_IP: asked})
    from_cloud = reported(
        ("InternalIP", "10.0.0.1"),
        ("InternalIP", "10.0.0.2"),
        ("InternalIP", "fd00::2"),
        ("ExternalIP", "1.2.3.4"),
    )

    assert desired_addresses(before, from_cloud) == reported(*expected)


def test_a_node_ip_that_the_cloud_does_not_report_is_refused_naming_both() -> None:
    before = node(annotations={PROVIDED_NODE_IP: "10.0.0.7"})

    with pytest.raises(NodeIpRefused, match=r"10\.0\.0\.7.*10\.0\.0\.1"):
        desired_addresses(before, reported(("InternalIP", "10.0.0.1")))


def test_a_new_node_that_asks_for_an_address_is_refused_when_the_cloud_reports_none() -> None:
    with pytest.raises(NodeIpRefused, match="none"):
        check_node_ip(node(annotations={PROVIDED_NODE_IP: "10.0.0.7"}), ())


def test_defect_1_two_addresses_of_one_type_in_any_order_are_no_change() -> None:
    dual_stack = [("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1"), ("Hostname", "n1")]
    before = node(addresses=dual_stack)
    from_cloud = reported(("InternalIP", "fd00::1"), ("InternalIP", "10.0.0.1"))

    wanted = desired_addresses(before, from_cloud)

    assert same_addresses(addresses_of(before), wanted)


def test_a_provided_ip_that_is_not_first_is_a_change() -> None:
    before = node(
        addresses=[("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1")],
        annotations={PROVIDED_NODE_IP: "fd00::1,10.0.0.1"},
    )

    wanted = desired_addresses(before, addresses_of(before))

    assert not same_addresses(addresses_of(before), wanted)
    assert wanted[0].address == "fd00::1"


def test_what_is_no_address_is_left_out_with_a_complaint() -> None:
    unknown_type = Address("PodIP", "10.0.0.3")
    no_text = Address(AddressType.HOSTNAME, None)  # type: ignore[arg-type]

    found, complaints = usable([
        internal("10.0.0.1"),
        external("not-an-ip"),
        internal(""),
        unknown_type,
        no_text,
    ])

    assert found == reported(("InternalIP", "10.0.0.1"))
    assert len(complaints) == 4
    assert "'not-an-ip'" in complaints[0]
