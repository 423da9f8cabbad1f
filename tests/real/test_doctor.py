"""`pileus doctor` on a real API server: healthy, with planted faults, and without rights."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import LAB, Lab, eventually, is_initialized, register, running

PILEUS = Path(sys.executable).parent / "pileus"
ACCOUNT = "system:serviceaccount:kube-system:pileus-cloud-controller-manager"
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:kube-system")
MANAGER = "pileus-cloud-controller-manager"


def pileus(*arguments: str, kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(LAB), "KUBECONFIG": str(kubeconfig)}
    return subprocess.run(
        [PILEUS, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def doctor(lab: Lab, kubeconfig: Path) -> tuple[int, dict[str, Any]]:
    flags = ("--cloud-provider=lab", f"--cloud-config={lab.config}", "--output=json")
    done = pileus("doctor", *flags, kubeconfig=kubeconfig)
    assert done.returncode in {0, 2}, done.stderr
    return done.returncode, json.loads(done.stdout)


def found(report: dict[str, Any]) -> set[str]:
    return {finding["id"] for finding in report["findings"]}


@contextlib.contextmanager
def rights(cluster: ControlPlane, lab: Lab) -> Generator[Path]:
    """The objects of `pileus manifests`; yields credentials of the manager's account."""
    flags = ("--cloud-provider=lab", f"--cloud-config={lab.config}", "--external")
    made = pileus("manifests", *flags, kubeconfig=cluster.admin)
    assert made.returncode == 0, made.stderr
    cluster.kubectl("apply", "-f", "-", stdin=made.stdout)
    try:
        yield cluster.user(ACCOUNT, groups=GROUPS)
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=made.stdout)


@contextlib.contextmanager
def planted(cluster: ControlPlane, *objects: dict[str, Any]) -> Generator[None]:
    text = yaml.safe_dump_all(objects)
    cluster.kubectl("create", "-f", "-", stdin=text)
    try:
        yield
    finally:
        cluster.kubectl("delete", "--force", "--ignore-not-found", "-f", "-", stdin=text)


def test_a_cluster_with_a_manager_is_healthy(clean: ControlPlane, lab: Lab) -> None:
    register(clean, "one")

    with rights(clean, lab) as account, running(clean, lab, kubeconfig=account) as manager:
        manager.wait_leading()
        eventually("initialized", lambda: is_initialized(clean, "one"))
        code, report = doctor(lab, clean.admin)
        inside = doctor(lab, account)[1]

    assert (code, report["findings"]) == (0, [])
    assert all(check["made"] for check in report["checks"]), report["checks"]
    rights_inside = next(check for check in inside["checks"] if check["id"] == "rights")
    assert rights_inside["made"]
    assert "right-missing" not in found(inside)


def webhook() -> dict[str, Any]:
    """A configuration whose webhook has to answer before the status of a node can be changed."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["nodes/status"],
    }
    hook = {
        "name": "gate.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"namespace": "default", "name": "gate"}},
        "rules": [rule],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gate"},
        "webhooks": [hook],
    }


def faults() -> list[dict[str, Any]]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    kube_system = {"namespace": "kube-system"}
    image = "registry.k8s.io/provider-os/openstack-cloud-controller-manager:v1.36.0"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "openstack-ccm", **kube_system},
        "spec": {"containers": [{"name": "manager", "image": image}]},
    }
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "k3s-cloud-controller-manager", **kube_system},
        "spec": {"holderIdentity": "m1_1", "leaseDurationSeconds": 3600, "renewTime": now},
    }
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "k3s-node"},
        "spec": {"providerID": "k3s://k3s-node"},
    }
    return [pod, lease, node, webhook()]


def test_six_planted_faults_are_found_at_once(clean: ControlPlane, lab: Lab) -> None:
    register(clean, "one")

    with rights(clean, lab), planted(clean, *faults()):
        clean.kubectl("delete", "clusterrolebinding", f"{MANAGER}:service-lb-controller")
        clean.kubectl(
            "label", "node", "one", "a=b", "--field-manager=openstack-cloud-controller-manager"
        )
        code, report = doctor(lab, clean.admin)

    assert code == 2
    assert found(report) == {
        "right-missing",
        "other-manager-pod",
        "second-lease",
        "other-writer",
        "node-of-another-provider",
        "webhook-without-endpoints",
        "lease-missing",
    }
    assert all(each["reason"] and each["fix"] for each in report["findings"])


def test_a_driver_that_is_not_installed_is_found_with_the_command_that_installs_it(
    clean: ControlPlane, lab: Lab
) -> None:
    storage = {"apiVersion": "storage.k8s.io/v1"}
    driver = "lab.csi.pileus.dev"
    fast = {**storage, "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": driver}
    host = {
        **storage,
        "kind": "CSINode",
        "metadata": {"name": "one"},
        "spec": {"drivers": [{"name": driver, "nodeID": "i-1"}]},
    }
    unfit = {
        **storage,
        "kind": "CSIDriver",
        "metadata": {"name": driver},
        "spec": {"attachRequired": False},
    }
    register(clean, "one")
    with planted(clean, fast, host):
        report = doctor(lab, clean.admin)[1]
        with planted(clean, unfit):
            later = doctor(lab, clean.admin)[1]

    (missing,) = [each for each in report["findings"] if each["check"] == "volumes"]
    assert missing["id"] == "csi-driver-missing"
    assert missing["fix"].startswith(f"pileus manifests --cloud-config={lab.config} ")
    assert " --cloud-provider=lab --csi | kubectl apply -f - --selector=" in missing["fix"]
    (differs,) = [each for each in later["findings"] if each["check"] == "volumes"]
    assert differs["id"] == "csi-driver-differs"
