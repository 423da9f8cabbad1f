"""Routes to the pods of nodes on a real control plane, in the local cloud."""

import json

from pileus.testing.control_plane import ControlPlane
from tests.real.local_cloud import LocalCloud
from tests.real.manager import Lab, eventually, is_told, node, running

FLAGS = ("--controllers=node-route-controller", "--cluster-cidr=10.244.0.0/16,fd00:10::/48")


def create_node(cluster: ControlPlane, name: str, *ranges: str) -> None:
    spec = {"podCIDR": ranges[0], "podCIDRs": list(ranges)}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))


def places(cloud: LocalCloud) -> dict[str, str]:
    return {each["destination"]: each["target"] for each in cloud.show("routes")}


def network(cluster: ControlPlane, name: str) -> dict[str, str]:
    conditions = node(cluster, name)["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "NetworkUnavailable"), {})


def test_nodes_get_routes_and_keep_them_until_they_go(
    clean: ControlPlane, lab: Lab, cloud: LocalCloud
) -> None:
    cloud.pileus("instances", "create", "n1", "n2", "gateway")
    cloud.pileus("routes", "create", "10.244.200.0/24", "gateway")
    cloud.pileus("routes", "create", "10.244.201.0/24", "gateway", "--cluster=another")
    foreign = {"10.244.200.0/24": "gateway", "10.244.201.0/24": "gateway"}
    create_node(clean, "n1", "10.244.1.0/24", "fd00:10:0:1::/64")
    create_node(clean, "n2", "10.244.2.0/24", "fd00:10:0:2::/64")
    of_n1 = {"10.244.1.0/24": "n1", "fd00:10:0:1::/64": "n1"}
    of_n2 = {"10.244.2.0/24": "n2", "fd00:10:0:2::/64": "n2"}

    with running(clean, lab, *cloud.flags, *FLAGS) as manager:
        eventually("routed", lambda: places(cloud) == foreign | of_n1 | of_n2)
        eventually("told", lambda: network(clean, "n2").get("status") == "False")
        eventually("counted", lambda: manager.metric(SYNCS, outcome="changed") == 1)

    said = network(clean, "n1")
    assert (said["reason"], said["message"]) == ("RouteCreated", "RouteController created a route")
    assert said["lastHeartbeatTime"] == said["lastTransitionTime"]

    clean.kubectl("delete", "node", "n1")
    with running(clean, lab, *cloud.flags, *FLAGS) as manager:
        eventually("removed", lambda: places(cloud) == foreign | of_n2)
        assert manager.metric("rest_client_requests_total", method="PATCH") == 0
        create_node(clean, "n1", "10.244.7.0/24")
        eventually("routed anew", lambda: places(cloud).get("10.244.7.0/24") == "n1")
        clean.kubectl("delete", "node", "n1", "n2")
        eventually("all removed", lambda: places(cloud) == foreign)


SYNCS = "route_controller_route_sync_total"


def test_a_route_that_cannot_be_made_is_told_on_its_node_and_made_later(
    clean: ControlPlane, lab: Lab, cloud: LocalCloud
) -> None:
    create_node(clean, "late", "10.244.9.0/24")

    with running(clean, lab, *cloud.flags, *FLAGS) as manager:
        eventually("told", lambda: is_told(clean, "FailedToCreateRoute"))
        eventually("condition", lambda: network(clean, "late").get("reason") == "NoRouteCreated")
        assert manager.metric(SYNCS, outcome="noop") == 0
        cloud.pileus("instances", "create", "late")
        eventually("routed", lambda: places(cloud) == {"10.244.9.0/24": "late"})
        eventually("condition", lambda: network(clean, "late").get("reason") == "RouteCreated")


def test_a_cluster_range_that_is_none_ends_the_process_with_1_before_anything_starts(
    clean: ControlPlane, lab: Lab, cloud: LocalCloud
) -> None:
    flags = (*cloud.flags, "--controllers=node-route-controller", "--cluster-cidr=nonsense")
    with running(clean, lab, *flags) as manager:
        assert manager.process.wait(60) == 1
        assert '--cluster-cidr: \\"nonsense\\" is not a CIDR' in manager.log.read_text()


def test_defect_18_without_a_cluster_range_there_are_no_routes_and_the_rest_works(
    clean: ControlPlane, lab: Lab, cloud: LocalCloud
) -> None:
    with running(clean, lab, *cloud.flags) as manager:
        manager.wait_leading()
        eventually("skipped", lambda: "--cluster-cidr is not set" in manager.log.read_text())
        eventually("well", lambda: manager.get("/healthz")[0] == 200)
