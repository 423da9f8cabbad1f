"""Services get addresses, ports and defaults, and lose what their type no longer has."""

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus_lab.apiserver.allocation import Ranges
from tests.unit.apiserver.caller import MERGE, SERVICES, Caller, caller, service


def test_a_balanced_service_gets_all_that_the_real_server_gives():
    call = caller()

    made = call.create(SERVICES, service("a", type="LoadBalancer", externalTrafficPolicy="Local"))

    spec = made["spec"]
    address, port, health = (
        spec["clusterIP"],
        spec["ports"][0]["nodePort"],
        spec["healthCheckNodePort"],
    )
    assert spec == {
        "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80, "nodePort": port}],
        "clusterIP": address,
        "clusterIPs": [address],
        "type": "LoadBalancer",
        "sessionAffinity": "None",
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": health,
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "allocateLoadBalancerNodePorts": True,
        "internalTrafficPolicy": "Cluster",
    }
    assert 30000 <= port <= 32767
    assert 30000 <= health <= 32767
    assert port != health
    assert made["status"] == {"loadBalancer": {}}


def test_a_headless_service_without_selector_is_of_both_families():
    made = caller().create(SERVICES, service("a", clusterIP="None"))

    assert made["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
    assert made["spec"]["ipFamilyPolicy"] == "RequireDualStack"


def test_a_dual_stack_cluster_gives_two_addresses():
    networks = (ipaddress.ip_network("10.0.0.0/24"), ipaddress.ip_network("fd00::/112"))
    call = caller(ranges=Ranges(networks))

    made = call.create(SERVICES, service("a", ipFamilyPolicy="PreferDualStack"))
    single = call.patch(f"{SERVICES}/a", {"spec": {"ipFamilyPolicy": "SingleStack"}})

    versions = [ipaddress.ip_address(ip).version for ip in made["spec"]["clusterIPs"]]
    assert versions == [4, 6]
    assert single["spec"]["clusterIPs"] == made["spec"]["clusterIPs"][:1]
    assert single["spec"]["ipFamilies"] == ["IPv4"]


def test_an_ingress_address_is_virtual_unless_said_otherwise():
    call = caller()
    call.create(SERVICES, service("a", type="LoadBalancer"))
    ingress = [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5", "ipMode": "Proxy"}, {"hostname": "x"}]

    patch = {"status": {"loadBalancer": {"ingress": ingress}}}
    seen = call.patch(f"{SERVICES}/a/status", patch)

    shown = seen["status"]["loadBalancer"]["ingress"]
    assert [i.get("ipMode") for i in shown] == ["VIP", "Proxy", None]


def test_a_finalizer_can_be_set_through_the_status():
    call = caller()
    call.create(SERVICES, service("a"))

    seen = call.patch(f"{SERVICES}/a/status", {"metadata": {"finalizers": ["x.y/z"]}})

    assert seen["metadata"]["finalizers"] == ["x.y/z"]


def test_a_service_that_is_no_balancer_any_more_gives_back_its_ports():
    call = caller()
    made = call.create(SERVICES, service("a", type="LoadBalancer", externalTrafficPolicy="Local"))
    call.patch(
        f"{SERVICES}/a/status", {"status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}}
    )
    freed = made["spec"]["ports"][0]["nodePort"]

    plain = call.patch(f"{SERVICES}/a", {"spec": {"type": "ClusterIP"}})
    wanted = [{"port": 80, "nodePort": freed}]
    call.create(SERVICES, service("b", type="NodePort", ports=wanted))

    assert plain["spec"]["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    assert plain["status"] == {"loadBalancer": {}}
    assert not {"healthCheckNodePort", "externalTrafficPolicy"} & plain["spec"].keys()
    assert plain["spec"]["clusterIP"] == made["spec"]["clusterIP"]


def test_an_update_that_leaves_out_what_was_given_keeps_it():
    call = caller()
    made = call.create(SERVICES, service("a", type="NodePort"))

    seen = call("PUT", f"{SERVICES}/a", service("a", type="NodePort", selector={"x": "y"})).body

    assert seen["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    assert seen["spec"]["ports"] == made["spec"]["ports"]


def test_the_address_of_a_service_stays():
    call = caller()
    call.create(SERVICES, service("a"))

    answer = call("PATCH", f"{SERVICES}/a", {"spec": {"clusterIP": "10.0.0.99"}}, media=MERGE)

    assert answer.message == (
        'Service "a" is invalid: spec.clusterIPs[0]: Invalid value: ["10.0.0.99"]: '
        "may not change once set"
    )


def test_no_port_is_wanted_where_none_are_to_be_allocated():
    made = caller().create(
        SERVICES, service("a", type="LoadBalancer", allocateLoadBalancerNodePorts=False)
    )

    assert "nodePort" not in made["spec"]["ports"][0]


def test_a_full_range_is_told():
    call = caller(ranges=Ranges((ipaddress.ip_network("10.0.0.0/30"),)))
    call.create(SERVICES, service("a"))

    answer = call("POST", SERVICES, service("b"))

    assert answer.status == 422
    assert "range is full" in answer.message


KINDS = st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "delete"])


@given(st.lists(st.tuples(st.sampled_from("abcd"), KINDS), max_size=25))
def test_no_address_and_no_port_is_ever_given_twice(steps: list[tuple[str, str]]):
    call = caller()

    for name, kind in steps:
        take_step(call, name, kind)
        specs = [item["spec"] for item in call.get("/api/v1/services")["items"]]
        assert_distinct([s["clusterIP"] for s in specs])
        assert_distinct([p for s in specs for p in ports_of(s)])


def take_step(call: Caller, name: str, kind: str) -> None:
    if kind == "delete":
        call("DELETE", f"{SERVICES}/{name}")
    elif call("GET", f"{SERVICES}/{name}").status == 200:
        call.patch(f"{SERVICES}/{name}", {"spec": {"type": kind}})
    else:
        call.create(SERVICES, service(name, type=kind))


def ports_of(spec: Any) -> list[int]:
    return [p["nodePort"] for p in spec["ports"] if "nodePort" in p]


def assert_distinct(values: list[Any]) -> None:
    assert len(values) == len(set(values))


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_two_protocols_share_the_number_of_a_port(protocol: str):
    ports = [
        {"port": 53, "name": "a", "protocol": "TCP"},
        {"port": 53, "name": "b", "protocol": "UDP"},
    ]
    made = caller().create(SERVICES, service("dns", type="NodePort", ports=ports))

    found = {p["protocol"]: p["nodePort"] for p in made["spec"]["ports"]}
    assert found[protocol] == found["TCP"]
