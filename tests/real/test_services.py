"""Services of type LoadBalancer on a real control plane, with the local cloud."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.real.local_cloud import LocalCloud, local_cloud
from tests.real.manager import Lab, eventually, running

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[LocalCloud]:
    with local_cloud(tmp_path) as cloud:
        yield cloud


@pytest.fixture
def cluster(clean: ControlPlane) -> Iterator[ControlPlane]:
    """Without the Services of earlier tests."""
    yield clean
    for name in services(clean):
        patch = '{"metadata":{"finalizers":null}}'
        clean.kubectl("patch", "service", name, "--type=merge", "--patch", patch)
        clean.kubectl("delete", "service", name, "--ignore-not-found", "--wait=false")


def flags(cloud: LocalCloud) -> tuple[str, ...]:
    return "--cloud-provider=local", f"--cloud-config={cloud.config}"


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
    listed = json.loads(cluster.kubectl("get", "services", "--output=json"))["items"]
    found = {each["metadata"]["name"]: each for each in listed}
    found.pop("kubernetes", None)
    return found


def address(cluster: ControlPlane, name: str) -> str:
    ingress = services(cluster)[name]["status"]["loadBalancer"].get("ingress", [{}])
    return ingress[0].get("ip", "")


def test_a_balancer_is_made_updated_and_deleted(
    cluster: ControlPlane, lab: Lab, cloud: LocalCloud
) -> None:
    add_nodes(cluster, "one", "two")

    with running(cluster, lab, *flags(cloud)):
        add_services(cluster, "web")
        eventually("an address", lambda: address(cluster, "web"))
        assert services(cluster)["web"]["metadata"]["finalizers"] == [FINALIZER]
        made = cloud.balancers()["default-web"]
        assert made["addresses"] == [address(cluster, "web")]
        assert cloud.members("default-web") == ["one", "two"]

        add_nodes(cluster, "three")
        eventually("a member", lambda: len(cloud.members("default-web")) == 3)
        ports = '{"spec":{"ports":[{"port":80},{"name":"tls","port":443}]}}'
        ports = ports.replace('"port":80', '"name":"plain","port":80')
        cluster.kubectl("patch", "service", "web", "--type=merge", "--patch", ports)
        eventually("a port", lambda: len(cloud.balancers()["default-web"]["ports"]) == 2)

        cluster.kubectl("delete", "service", "web", "--timeout=60s")
        assert cloud.balancers() == {}
        told = cluster.kubectl(
            "get", "events", "--output=name", "--field-selector=reason=DeletedLoadBalancer"
        )
        eventually("told", lambda: told)
