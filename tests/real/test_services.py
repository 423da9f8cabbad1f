"""Services of type LoadBalancer on a real control plane, with the local cloud."""

import json
import signal
from typing import Any

from pileus.testing.control_plane import ControlPlane
from tests.real.local_cloud import LocalCloud
from tests.real.manager import QUICK_LEASE, Lab, eventually, get, is_told, running

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
READY = "pileus.dev/Ready"
MANY = 100


def add_nodes(cluster: ControlPlane, *names: str) -> None:
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {"providerID": f"local://{name}"},
        }
        for name in names
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(listed))


def add_services(cluster: ControlPlane, *names: str, **spec: Any) -> None:
    items = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], **spec},
        }
        for name in names
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(listed))


def services(cluster: ControlPlane) -> dict[str, dict[str, Any]]:
    listed = get(cluster, "/api/v1/namespaces/default/services")["items"]
    found = {each["metadata"]["name"]: each for each in listed}
    found.pop("kubernetes", None)
    return found


def address(cluster: ControlPlane, name: str) -> str:
    ingress = services(cluster)[name]["status"]["loadBalancer"].get("ingress", [{}])
    return ingress[0].get("ip", "")


def condition(cluster: ControlPlane, name: str) -> tuple[str, str]:
    conditions = services(cluster)[name]["status"].get("conditions", [])
    found = [(one["status"], one["reason"]) for one in conditions if one["type"] == READY]
    return found[0] if found else ("", "")


def change(cluster: ControlPlane, name: str, **fields: Any) -> None:
    patch = json.dumps(fields)
    cluster.kubectl("patch", "service", name, "--type=merge", "--patch", patch)


def test_a_balancer_is_made_updated_and_deleted(
    clean: ControlPlane, lab: Lab, cloud: LocalCloud
) -> None:
    add_nodes(clean, "one", "two")

    with running(clean, lab, *cloud.flags):
        add_services(clean, "web", sessionAffinity="ClientIP")
        eventually("an address", lambda: address(clean, "web"))
        found = services(clean)["web"]
        assert found["metadata"]["finalizers"] == [FINALIZER]
        assert found["status"]["loadBalancer"]["ingress"][0]["ipMode"] == "Proxy"
        assert condition(clean, "web") == ("True", "LoadBalancerReady")
        made = cloud.balancers()["default-web"]
        assert made["addresses"] == [address(clean, "web")]
        assert cloud.members("default-web") == ["one", "two"]

        add_nodes(clean, "three")
        eventually("a member", lambda: len(cloud.members("default-web")) == 3)
        ports = [{"name": "plain", "port": 80}, {"name": "tls", "port": 443}]
        change(clean, "web", spec={"ports": ports})
        eventually("a port", lambda: len(cloud.balancers()["default-web"]["ports"]) == 2)
        clean.kubectl("delete", "service", "web", "--timeout=60s")
        assert cloud.balancers() == {}
        eventually("told", lambda: is_told(clean, "DeletedLoadBalancer"))
        assert is_told(clean, "EnsuredLoadBalancer")
        assert is_told(clean, "UpdatedLoadBalancer")


def test_a_cleared_status_is_restored_and_a_change_of_type_cleans_up(
    clean: ControlPlane, lab: Lab, cloud: LocalCloud
) -> None:
    add_nodes(clean, "one")
    add_services(clean, "web")

    with running(clean, lab, *cloud.flags):
        eventually("an address", lambda: address(clean, "web"))
        clean.kubectl(
            "patch", "service", "web", "--subresource=status", "--type=merge",
            "--patch", '{"status":{"loadBalancer":{"ingress":null}}}',
        )  # fmt: skip
        eventually("an address again", lambda: address(clean, "web"))

        change(clean, "web", spec={"type": "ClusterIP"})
        eventually("gone with the type", lambda: cloud.balancers() == {})
        eventually("no finalizer", lambda: "finalizers" not in services(clean)["web"]["metadata"])
        assert condition(clean, "web") == ("", "")
        change(clean, "web", spec={"type": "LoadBalancer"})
        eventually("an address after all", lambda: address(clean, "web"))


def test_a_restart_with_unchanged_services_writes_nothing(
    clean: ControlPlane, lab: Lab, cloud: LocalCloud
) -> None:
    add_nodes(clean, "one", "two", "three")
    cloud.pileus("quota", "set", f"balancers={MANY}", f"listeners={MANY}")
    names = [f"web-{number}" for number in range(MANY)]
    add_services(clean, *names)

    def are_served() -> bool:
        return all(
            each["status"]["loadBalancer"].get("ingress") for each in services(clean).values()
        )

    with running(clean, lab, *cloud.flags) as manager:
        eventually("all served", are_served, limit=200)
        assert manager.metric("rest_client_requests_total", method="PATCH", code="200") <= 2 * MANY
        assert manager.metric("pileus_cloud_calls_total", method="apply") == MANY

    with running(clean, lab, *cloud.flags) as manager:
        looks = {"capability": "balancers", "method": "observe"}
        eventually(
            "looked at all",
            lambda: manager.metric("pileus_cloud_call_items_total", **looks) >= MANY,
        )
        assert manager.metric("rest_client_requests_total", method="PATCH") == 0
        assert manager.metric("pileus_cloud_calls_total", method="apply") == 0
        assert manager.metric("pileus_cloud_calls_total", **looks) <= 5
        assert not is_told(clean, "SyncLoadBalancerFailed")


def test_a_manager_that_was_killed_half_way_is_succeeded(
    clean: ControlPlane, lab: Lab, cloud: LocalCloud
) -> None:
    add_nodes(clean, "one")
    add_services(clean, "web")
    slow = ("fault", "add", "latency", "--where=balancers.create", "--seconds=3", "--times=1")
    cloud.pileus(*slow)

    with running(clean, lab, *cloud.flags, *QUICK_LEASE) as manager:
        eventually("claimed", lambda: services(clean)["web"]["metadata"].get("finalizers"))
        manager.end(signal.SIGKILL)

    with running(clean, lab, *cloud.flags, *QUICK_LEASE):
        eventually("an address", lambda: address(clean, "web"))
        assert len(cloud.balancers()) == 1
        clean.kubectl("delete", "service", "web", "--timeout=60s")
        assert cloud.balancers() == {}
