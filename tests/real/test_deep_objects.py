"""Objects nested deeper than a decoder can follow: any user who may create one can store them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.real.local_cloud import LocalCloud
from tests.real.manager import LAB, Lab, eventually, running
from tests.real.test_services import add_nodes, add_services

PILEUS = Path(sys.executable).parent / "pileus"
LEVELS = 1100
LEASE = "cloud-controller-manager"


def deep(document: Mapping[str, Any]) -> str:
    """The object as JSON, with `managedFields` as another manager might have left them."""
    fields = '{"f:a":' * LEVELS + "{}" + "}" * LEVELS
    entry = {
        "manager": "deep",
        "operation": "Update",
        "apiVersion": document["apiVersion"],
        "fieldsType": "FieldsV1",
        "fieldsV1": "HERE",
    }
    metadata = {**document["metadata"], "managedFields": [entry]}
    return json.dumps({**document, "metadata": metadata}).replace('"HERE"', fields)


def service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }


def create(cluster: ControlPlane, text: str) -> None:
    cluster.kubectl("create", "-f", "-", stdin=text)


def depth(cluster: ControlPlane, kind: str, name: str, *namespace: str) -> int:
    path = ("--output=json", "--show-managed-fields")
    return cluster.kubectl("get", kind, name, *namespace, *path).count('"f:a"')


def address(cluster: ControlPlane, name: str) -> str:
    path = "--output=jsonpath={.status.loadBalancer.ingress[0].ip}"
    return cluster.kubectl("get", "service", name, path)


@pytest.fixture
def swept(clean: ControlPlane) -> Iterator[ControlPlane]:
    """Without deep objects at the end: the client of the other tests cannot read them."""
    yield clean
    patch = '{"metadata":{"finalizers":null}}'
    for name in ("deep", "late"):
        if clean.kubectl("get", "service", name, "--ignore-not-found", "--output=name"):
            clean.kubectl("patch", "service", name, "--type=merge", "--patch", patch)
            clean.kubectl("delete", "service", name)
    clean.kubectl("delete", "lease", LEASE, "--namespace=kube-system", "--ignore-not-found")


def plan(cluster: ControlPlane, cloud: LocalCloud) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PILEUS), "plan", f"--kubeconfig={cluster.admin}", *cloud.flags],
        env=os.environ | {"PYTHONPATH": str(LAB)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_deep_service_is_served_and_stops_no_one_else(
    swept: ControlPlane, lab: Lab, cloud: LocalCloud
) -> None:
    create(swept, deep(service("deep")))
    add_nodes(swept, "one")
    assert depth(swept, "service", "deep") == LEVELS

    shown = plan(swept, cloud)
    assert (shown.returncode, shown.stderr) == (2, "")
    assert "default/deep" in shown.stdout

    with running(swept, lab, *cloud.flags) as manager:
        eventually("its address", lambda: manager.is_alive() and address(swept, "deep"))
        add_services(swept, "plain")
        eventually("the other's", lambda: manager.is_alive() and address(swept, "plain"))
        create(swept, deep(service("late")))
        eventually("by watch", lambda: manager.is_alive() and address(swept, "late"))
        assert set(cloud.balancers()) == {"default-deep", "default-plain", "default-late"}
        swept.kubectl("delete", "service", "late", "--timeout=60s")
        assert manager.metric("pileus_unreadable_objects_total") == 0
        assert manager.end() == 0

    assert "default/deep" not in plan(swept, cloud).stdout


def test_a_deep_lease_is_taken_renewed_and_released(
    swept: ControlPlane, lab: Lab, cloud: LocalCloud
) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": "kube-system"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 1, "leaseTransitions": 4},
    }
    create(swept, deep(lease))
    system = "--namespace=kube-system"
    assert depth(swept, "lease", LEASE, system) == LEVELS

    with running(swept, lab, *cloud.flags) as manager:
        manager.wait_leading()
        kept = depth(swept, "lease", LEASE, system)
        assert manager.end(signal.SIGTERM) == 0

    assert kept == LEVELS  # our PUT leaves the other managers' fields to the API server
    path = "--output=jsonpath={.spec.holderIdentity}/{.spec.leaseTransitions}"
    assert swept.kubectl("get", "lease", LEASE, system, path) == "/5"
