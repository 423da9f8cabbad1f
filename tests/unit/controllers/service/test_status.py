"""The addresses that are published on a Service: every field, and when two lists mean the same."""

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.balancer import Balancer, BalancerState, Ingress
from pileus.cloud.balancer import PortStatus as Port
from pileus.controllers.service.status import ingress_of, is_same_ingress
from pileus.kube.model.core_v1 import LoadBalancerIngress, PortStatus

PORTS = st.builds(
    PortStatus,
    port=st.sampled_from([80, 443]),
    protocol=st.sampled_from(["TCP", "UDP"]),
    error=st.sampled_from([None, "", "Refused"]),
)
INGRESS = st.builds(
    LoadBalancerIngress,
    ip=st.sampled_from(["192.0.2.1", "2001:db8::1", "2001:DB8:0::1", None]),
    hostname=st.sampled_from([None, "lb.example", "LB.example."]),
    ip_mode=st.sampled_from([None, "VIP", "Proxy"]),
    ports=st.none() | st.lists(PORTS, max_size=2).map(tuple),
)


@given(st.lists(INGRESS, max_size=3))
def test_spelling_and_default_modes_make_no_difference(ingress: list[LoadBalancerIngress]):
    spelled = [
        LoadBalancerIngress(
            ip=each.ip and each.ip.lower().replace(":0::", "::"),
            hostname=each.hostname and each.hostname.lower().rstrip("."),
            ip_mode=(each.ip_mode or "VIP") if each.ip else each.ip_mode,
            ports=each.ports or None,
        )
        for each in ingress
    ]
    assert is_same_ingress(ingress, spelled)


def test_the_order_of_addresses_and_of_their_ports_counts():
    one, other = LoadBalancerIngress(ip="192.0.2.1"), LoadBalancerIngress(ip="192.0.2.2")
    ports = (PortStatus(port=80, protocol="TCP"), PortStatus(port=443, protocol="TCP"))
    forth, back = (LoadBalancerIngress(ip="192.0.2.1", ports=p) for p in (ports, ports[::-1]))

    assert not is_same_ingress([one, other], [other, one])
    assert not is_same_ingress([forth], [back])


FULL = LoadBalancerIngress(
    ip="192.0.2.1",
    hostname="lb.example",
    ip_mode="VIP",
    ports=(PortStatus(port=80, protocol="TCP", error="Refused"),),
)
OTHER: dict[str, Any] = {
    "ip": "192.0.2.2",
    "hostname": "other.example",
    "ip_mode": "Proxy",
    "ports": (),
}


@pytest.mark.parametrize("name", LoadBalancerIngress.__struct_fields__)
def test_law_every_field_of_an_ingress_counts_in_the_comparison(name: str):
    assert not is_same_ingress([FULL], [msgspec.structs.replace(FULL, **{name: OTHER[name]})])


@pytest.mark.parametrize("name", PortStatus.__struct_fields__)
def test_law_every_field_of_a_port_state_counts_in_the_comparison(name: str):
    assert FULL.ports
    other: Any = {"port": 81, "protocol": "UDP", "error": None}[name]
    ports = (msgspec.structs.replace(FULL.ports[0], **{name: other}),)

    assert not is_same_ingress([FULL], [msgspec.structs.replace(FULL, ports=ports)])


def test_law_every_field_of_an_address_is_published():
    """A field that is added to the contract must reach the Service."""
    full = Ingress("192.0.2.1", "lb.example", proxied=True, ports=(Port(80, "UDP", "Refused"),))
    for value in (full, full.ports[0]):
        assert all(getattr(value, each.name) for each in dataclasses.fields(value))

    (published_one,) = ingress_of(Balancer(id="lb", state=BalancerState.READY, ingress=(full,)))

    port = PortStatus(port=80, protocol="UDP", error="Refused")
    assert published_one == LoadBalancerIngress(
        ip="192.0.2.1", hostname="lb.example", ip_mode="Proxy", ports=(port,)
    )
