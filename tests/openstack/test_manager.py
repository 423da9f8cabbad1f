"""The manager as a user starts it, on real servers, networks and load balancers."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from tests.contract.api.http import MERGE
from tests.openstack.balancers import balancer_of
from tests.openstack.cloud import differences, eventually
from tests.openstack.managers import Cluster, Manager, pileus
from tests.real.manager import UNINITIALIZED, say_ready

ROUTE_FLAGS = (
    "--controllers=node-route-controller",
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.244.0.0/16",
)


@pytest.fixture(scope="module")
def manager(cluster: Cluster) -> Iterator[Manager]:
    with pileus(cluster) as started:
        yield started


def is_initialized(cluster: Cluster, name: str) -> bool:
    taints = cluster.node(name)["spec"].get("taints", [])
    return all(taint["key"] != UNINITIALIZED for taint in taints)


def test_nodes_get_their_server_zone_and_address_and_lose_the_taint(
    cluster: Cluster, manager: Manager
) -> None:
    for number, name in enumerate(("node-1", "node-2", "node-3"), 1):
        manager.eventually(
            f"{name} is initialized", lambda name=name: is_initialized(cluster, name)
        )
        node = cluster.node(name)
        labels = node["metadata"]["labels"]
        assert node["spec"]["providerID"] == f"openstack:///{cluster.project.servers[name]}"
        assert labels["topology.kubernetes.io/zone"] == f"az{number}"
        assert labels["topology.kubernetes.io/region"] == "RegionOne"
        assert labels["node.kubernetes.io/instance-type"] == "m1"
        addresses = {(each["type"], each["address"]) for each in node["status"]["addresses"]}
        assert ("InternalIP", cluster.project.address(name)) in addresses


@pytest.mark.extended
def test_a_floating_ip_of_a_server_becomes_an_external_address_of_its_node(
    cluster: Cluster, manager: Manager
) -> None:
    cloud = cluster.project.cloud
    port = cloud.listed("ports", device_id=cluster.project.servers["node-1"])[0]["id"]
    made = cloud.create(
        "network",
        "/v2.0/floatingips",
        "floatingip",
        floating_network_id=cluster.project.external,
        port_id=port,
    )
    address = {"type": "ExternalIP", "address": made["floating_ip_address"]}
    try:
        with pileus(
            cluster
        ) as second:  # a start reads all nodes at once; the period is five minutes
            second.eventually(
                "the external address",
                lambda: address in cluster.node("node-1")["status"].get("addresses", []),
            )
    finally:
        cloud.send("DELETE", "network", f"/v2.0/floatingips/{made['id']}")
    # Nova notices late; another test would take it for a change of its own.
    eventually(
        "Nova forgets the address",
        lambda: address["address"] not in str(cluster.project.server("node-1")["addresses"]),
    )


def test_the_node_of_a_deleted_server_is_deleted_and_others_stay(
    cluster: Cluster, manager: Manager
) -> None:
    cluster.project.add_servers("leaving")
    cluster.add_nodes("leaving")
    manager.eventually("leaving is initialized", lambda: is_initialized(cluster, "leaving"))
    cluster.project.delete_server("leaving")
    say_ready(cluster.control_plane, "Unknown", "leaving")
    manager.eventually(
        "the node is deleted", lambda: cluster.api.get("/api/v1/nodes/leaving").status == 404
    )
    assert all(is_initialized(cluster, name) for name in ("node-1", "node-2", "node-3"))


@pytest.mark.extended
def test_the_node_of_a_stopped_server_gets_the_shutdown_taint(
    cluster: Cluster, manager: Manager
) -> None:
    cluster.project.add_servers("stopping")
    cluster.add_nodes("stopping")
    manager.eventually("stopping is initialized", lambda: is_initialized(cluster, "stopping"))
    path = f"/servers/{cluster.project.servers['stopping']}/action"
    cluster.project.cloud.send("POST", "compute", path, {"os-stop": None})
    say_ready(cluster.control_plane, "Unknown", "stopping")

    def has_taint() -> bool:
        taints = cluster.node("stopping")["spec"].get("taints", [])
        return any(each["key"] == "node.cloudprovider.kubernetes.io/shutdown" for each in taints)

    manager.eventually("the shutdown taint", has_taint)
    cluster.api.delete("/api/v1/nodes/stopping")


def test_a_node_without_a_server_is_not_initialized_and_not_deleted(
    cluster: Cluster, manager: Manager
) -> None:
    cluster.add_nodes("elsewhere")
    manager.eventually("an event", lambda: cluster.events("elsewhere"))
    assert not is_initialized(cluster, "elsewhere")
    cluster.api.delete("/api/v1/nodes/elsewhere")


def test_wrong_credentials_end_the_manager_with_the_user_and_the_fix(cluster: Cluster) -> None:
    text = cluster.config.read_text().replace("password=openstack", "password=wrong")
    config = cluster.folder / "wrong.conf"
    config.write_text(text)
    wrong = Cluster(cluster.control_plane, cluster.project, cluster.folder, config)
    with pileus(wrong) as manager:
        assert manager.process.wait(60) != 0
        assert f"Keystone refuses user {cluster.project.cloud.user}" in manager.text()
        assert "cloud.conf" in manager.text()
        assert "wrong" not in manager.text().replace("wrong.conf", "")


def test_a_service_gets_a_balancer_with_names_of_the_go_manager_and_a_floating_ip(
    cluster: Cluster, manager: Manager
) -> None:
    before = cluster.project.cloud.objects()
    cluster.create_service("shop", 80, 443, loadBalancerSourceRanges=["10.0.0.0/8"])
    manager.has_addresses(cluster, "shop")
    seen = balancer_of(cluster, "shop")
    addresses = {cluster.project.address(name) for name in ("node-1", "node-2", "node-3")}
    assert seen.balancer["description"].startswith("Kubernetes external service default/shop")
    assert {each["protocol_port"]: each["allowed_cidrs"] for each in seen.listeners} == {
        80: ["10.0.0.0/8"],
        443: ["10.0.0.0/8"],
    }
    assert [{each["address"] for each in members} for members in seen.members] == [addresses] * 2
    assert cluster.ingress("shop")[0]["ip"] == seen.floating_ip["floating_ip_address"]
    annotations = cluster.service("shop")["metadata"]["annotations"]
    assert annotations["loadbalancer.openstack.org/load-balancer-id"] == seen.balancer["id"]

    cluster.delete_service("shop")
    manager.has_deleted(cluster, "shop")
    assert list(differences(before, cluster.project.cloud.objects())) == []


def test_changes_of_a_service_reach_its_balancer_and_keep_its_address(
    cluster: Cluster, manager: Manager
) -> None:
    cluster.create_service("changing", 80, 81)
    manager.has_addresses(cluster, "changing")
    created = balancer_of(cluster, "changing")
    address = cluster.ingress("changing")
    ports = [{"name": f"p{port}", "port": port} for port in (80, 8080)]
    timeout = {"loadbalancer.openstack.org/timeout-client-data": "70000"}
    change = {"spec": {"ports": ports}, "metadata": {"annotations": timeout}}
    cluster.change_service("changing", change)

    def listeners() -> dict[int, int]:
        found = balancer_of(cluster, "changing").listeners
        return {each["protocol_port"]: each["timeout_client_data"] for each in found}

    manager.eventually("new ports and timeout", lambda: listeners() == {80: 70000, 8080: 70000})
    changed = balancer_of(cluster, "changing")
    assert changed.balancer["id"] == created.balancer["id"]
    assert changed.floating_ip["id"] == created.floating_ip["id"]
    assert cluster.ingress("changing") == address

    internal = {"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"}
    cluster.change_service("changing", {"metadata": {"annotations": internal}})
    vip = created.balancer["vip_address"]
    manager.eventually(
        "the internal address is published", lambda: cluster.ingress("changing")[0]["ip"] == vip
    )
    cluster.delete_service("changing")
    manager.has_deleted(cluster, "changing")


@pytest.mark.extended
def test_members_follow_the_nodes(cluster: Cluster, manager: Manager) -> None:
    cluster.create_service("members", 80)
    manager.has_addresses(cluster, "members")
    cluster.project.add_servers("joining")
    cluster.add_nodes("joining")

    def names() -> set[str]:
        return {each["name"] for each in balancer_of(cluster, "members").members[0]}

    three = {"node-1", "node-2", "node-3"}
    manager.eventually("four members", lambda: names() == {*three, "joining"})
    cluster.api.delete("/api/v1/nodes/joining")
    manager.eventually("three members", lambda: names() == three)
    cluster.project.delete_server("joining")
    cluster.delete_service("members")
    manager.has_deleted(cluster, "members")


@pytest.mark.extended
def test_a_balancer_in_error_is_reported_and_not_deleted(
    cluster: Cluster, manager: Manager
) -> None:
    cluster.create_service("failing", 80)
    manager.has_addresses(cluster, "failing")
    balancer = balancer_of(cluster, "failing").balancer["id"]
    cluster.project.balancer_status(balancer, "ERROR")
    change = {"metadata": {"annotations": {"loadbalancer.openstack.org/lb-method": "SOURCE_IP"}}}
    cluster.change_service("failing", change)
    manager.eventually(
        "an event names the error",
        lambda: any("ERROR" in message for _, message in cluster.events("failing")),
    )
    assert balancer_of(cluster, "failing").balancer["id"] == balancer
    cluster.delete_service("failing")
    manager.has_deleted(cluster, "failing")


def test_the_route_of_a_node_is_on_the_router_and_its_port_may_send_from_its_pods(
    cluster: Cluster, manager: Manager
) -> None:
    cloud, router = cluster.project.cloud, cluster.project.router
    config = cloud.config(cluster.folder / "routes.conf", Route=f"router-id={router}")
    manager.eventually("node-1 is initialized", partial(is_initialized, cluster, "node-1"))
    pods = "10.244.1.0/24"
    range_of_pods = {"spec": {"podCIDR": pods, "podCIDRs": [pods]}}
    assert cluster.api.patch("/api/v1/nodes/node-1", range_of_pods, MERGE).status == 200
    route = {"destination": pods, "nexthop": cluster.project.address("node-1")}

    def routes() -> list[dict[str, str]]:
        return cloud.get("network", f"/v2.0/routers/{router}")["router"]["routes"]

    with pileus(replace(cluster, config=config), *ROUTE_FLAGS) as second:
        second.eventually("the route", lambda: routes() == [route])
        port = {"device_id": cluster.project.servers["node-1"]}
        second.eventually(
            "the allowed address pair",
            lambda: (
                [
                    pair["ip_address"]
                    for each in cloud.listed("ports", **port)
                    for pair in each["allowed_address_pairs"]
                ]
                == [pods]
            ),
        )
        assert cluster.api.delete("/api/v1/nodes/node-1").status == 200
        second.eventually("no route, while the server still runs", lambda: routes() == [])
        cluster.add_nodes("node-1")  # for the tests after this one
        second.eventually("node-1 is initialized", lambda: is_initialized(cluster, "node-1"))
