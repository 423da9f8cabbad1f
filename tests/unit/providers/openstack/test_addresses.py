"""Which addresses of a server its node gets, and in which order."""

from typing import Any

import msgspec
import pytest

from pileus.cloud.errors import Misconfigured
from pileus.cloud.model import Address
from pileus.providers.openstack.addresses import AddressRules, SubPortAddress, label_value
from pileus.providers.openstack.config import Networking
from pileus.providers.openstack.neutron import FixedIp, Port
from pileus.providers.openstack.nova import Server

INTERNAL, EXTERNAL, HOSTNAME = "InternalIP", "ExternalIP", "Hostname"


def port(place: int, *addresses: str, status: str = "ACTIVE") -> Port:
    fixed = tuple(FixedIp(subnet_id="subnet", ip_address=one) for one in addresses)
    return Port(id=f"port-{place}", network_id="net", status=status, fixed_ips=fixed)


def server(networks: dict[str, list[str]] | None = None, **fields: Any) -> Server:
    """A server with fixed addresses; `*` before an address makes it a floating one."""
    addresses = {
        name: [
            {"addr": one.strip("*"), "OS-EXT-IPS:type": "floating" if "*" in one else "fixed"}
            for one in each
        ]
        for name, each in (networks or {}).items()
    }
    record = {"id": "server-1", "name": "n1", "addresses": addresses, **fields}
    return msgspec.convert(record, Server)


def texts(addresses: tuple[Address, ...]) -> list[tuple[str, str]]:
    return [(one.type, one.address) for one in addresses]


def found(
    of: Server,
    *ports: Port,
    sub_ports: tuple[SubPortAddress, ...] = (),
    **networking: Any,
) -> list[tuple[str, str]]:
    return texts(AddressRules.of(Networking(**networking)).addresses(of, ports, sub_ports))


def test_the_order_is_ports_access_addresses_hostname_and_then_what_nova_reports():
    machine = server(
        {"zoo": ["10.9.0.1"], "net": ["10.0.0.5", "*203.0.113.5"]},
        accessIPv4="198.51.100.1",
        accessIPv6="2001:db8::1",
        metadata={"hostname": "n1.example"},
    )
    assert found(machine, port(2, "10.0.0.6"), port(1, "10.0.0.5")) == [
        (INTERNAL, "10.0.0.5"),
        (INTERNAL, "10.0.0.6"),
        (EXTERNAL, "198.51.100.1"),
        (EXTERNAL, "2001:db8::1"),
        (HOSTNAME, "n1.example"),
        (EXTERNAL, "203.0.113.5"),
        (INTERNAL, "10.9.0.1"),
    ]


def test_addresses_of_ports_that_are_not_active_come_later_from_nova():
    machine = server({"net": ["10.0.0.5", "10.0.0.6"]})
    down = port(1, "10.0.0.5", status="DOWN")
    assert found(machine, down, port(2, "10.0.0.6")) == [
        (INTERNAL, "10.0.0.6"),
        (INTERNAL, "10.0.0.5"),
    ]


def test_a_server_without_ports_has_the_addresses_that_nova_reports():
    assert found(server({"net": ["10.0.0.5"]})) == [(INTERNAL, "10.0.0.5")]
    assert found(server()) == []


def test_addresses_of_public_networks_are_external_and_no_longer_internal():
    machine = server({"net": ["10.0.0.5"], "public": ["203.0.113.5"]})
    ports = (port(1, "203.0.113.5"), port(2, "10.0.0.5"))
    assert found(machine, *ports, public_network_name=("public",)) == [
        (INTERNAL, "10.0.0.5"),
        (EXTERNAL, "203.0.113.5"),
    ]


def test_fixed_addresses_outside_of_internal_networks_are_left_out_and_floating_ones_stay():
    machine = server({"net": ["10.0.0.5"], "storage": ["10.5.0.5", "*203.0.113.5"]})
    ports = (port(1, "10.5.0.5"), port(2, "10.0.0.5"))
    assert found(machine, *ports, internal_network_name=("net",)) == [
        (INTERNAL, "10.0.0.5"),
        (EXTERNAL, "203.0.113.5"),
    ]


def test_a_public_network_wins_over_internal_ones():
    machine = server({"net": ["10.0.0.5"]})
    rules = AddressRules.of(
        Networking(public_network_name=("net",), internal_network_name=("net",))
    )
    addresses = rules.addresses(machine, [port(1, "10.0.0.5")])
    assert texts(addresses) == [(EXTERNAL, "10.0.0.5")]


def test_an_internal_network_in_which_the_server_is_not_is_misconfigured():
    machine = server({"k8s-net": ["10.0.0.5"]})
    with pytest.raises(Misconfigured, match='did you mean "k8s-net"') as raised:
        found(machine, port(1, "10.0.0.5"), internal_network_name=("k8s_net",))
    assert "internal-network-name" in str(raised.value)


def test_an_unknown_public_network_changes_nothing():
    machine = server({"net": ["10.0.0.5"]})
    assert found(machine, public_network_name=("nowhere",)) == [(INTERNAL, "10.0.0.5")]


def test_ipv6_addresses_are_left_out_if_ipv6_is_disabled():
    machine = server(
        {"net": ["10.0.0.5", "fd00::5", "*2001:db8::5"]},
        accessIPv6="2001:db8::1",
        metadata={"hostname": "n1"},
    )
    sub_ports = (SubPortAddress("vlan", "fd00:1::5"),)
    ports = (port(1, "fd00::5", "10.0.0.5"),)
    assert found(machine, *ports, sub_ports=sub_ports, ipv6_support_disabled=True) == [
        (INTERNAL, "10.0.0.5"),
        (HOSTNAME, "n1"),
    ]


def test_addresses_of_sub_ports_are_in_the_place_of_their_network():
    machine = server({"net": ["10.0.0.5"], "zoo": ["10.9.0.5"]})
    sub_ports = (SubPortAddress("vlan", "10.7.0.5"), SubPortAddress("net", "10.0.0.77"))
    assert found(machine, sub_ports=sub_ports) == [
        (INTERNAL, "10.0.0.5"),
        (INTERNAL, "10.0.0.77"),
        (INTERNAL, "10.7.0.5"),
        (INTERNAL, "10.9.0.5"),
    ]


def test_addresses_of_sub_ports_follow_the_names_of_networks():
    machine = server({"net": ["10.0.0.5"]})
    vlan = (SubPortAddress("vlan", "10.7.0.5"),)
    assert found(machine, sub_ports=vlan, public_network_name=("vlan",))[-1][0] == EXTERNAL
    assert len(found(machine, sub_ports=vlan, internal_network_name=("net",))) == 1


def test_sort_order_is_by_cidr_then_by_address_and_others_keep_their_order():
    machine = server(
        {"a": ["10.0.0.9", "10.0.0.5", "192.168.0.7"], "b": ["fd00::2", "172.16.0.1"]},
        metadata={"hostname": "n1"},
    )
    assert found(machine, address_sort_order="fd00::/8, 10.0.0.7/8") == [
        (INTERNAL, "fd00::2"),
        (INTERNAL, "10.0.0.5"),
        (INTERNAL, "10.0.0.9"),
        (HOSTNAME, "n1"),
        (INTERNAL, "192.168.0.7"),
        (INTERNAL, "172.16.0.1"),
    ]


def test_invalid_entries_of_the_sort_order_are_ignored():
    machine = server({"a": ["10.0.0.9", "10.0.0.5"]})
    assert found(machine, address_sort_order="no-cidr,10.0.0.5,10.0.0.300/8") == found(machine)


def test_zone_names_become_values_of_labels():
    assert label_value("nova") == "nova"
    assert label_value("Zone (a) / north") == "Zone-a-north"
    assert label_value("_zürich_") == "z-rich"
    assert label_value("z" * 62 + "-" + "z") == "z" * 62
