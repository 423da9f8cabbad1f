"""A plan and a dry run on a real control plane: provably without a write."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import (
    LAB,
    Lab,
    events,
    eventually,
    is_initialized,
    node,
    register,
    running,
)

PILEUS = Path(sys.executable).parent / "pileus"
READER = "reader"
RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [nodes, services, namespaces, events], verbs: [get, list, watch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}]
"""


@pytest.fixture
def reader(clean: ControlPlane) -> Iterator[Path]:
    """Credentials with which everything may be read and nothing written."""
    clean.kubectl("apply", "-f", "-", stdin=RIGHTS)
    yield clean.user(READER)
    clean.kubectl("delete", "-f", "-", stdin=RIGHTS)


def plan(lab: Lab, kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        str(PILEUS),
        "plan",
        "--cloud-provider=lab",
        f"--cloud-config={lab.config}",
        f"--kubeconfig={kubeconfig}",
        *arguments,
    ]
    return subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(LAB)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def everything(cluster: ControlPlane) -> str:
    """All that a manager could have written, with versions: any write would show."""
    kinds = "nodes,services,events,configmaps,serviceaccounts,namespaces"
    return cluster.kubectl("get", kinds, "--all-namespaces", "--output=json") + leases(cluster)


def leases(cluster: ControlPlane) -> str:
    """Those of managers: the API server has one of its own, which it renews."""
    listed = cluster.kubectl("get", "leases", "--namespace=kube-system", "--output=name")
    return "".join(line for line in listed.splitlines(keepends=True) if "/apiserver-" not in line)


def test_who_may_only_read_gets_the_whole_plan_and_nothing_changes(
    clean: ControlPlane, lab: Lab, reader: Path
) -> None:
    register(clean, "one", "two")
    before = everything(clean)

    shown = plan(lab, reader)
    document = plan(lab, reader, "node", "two", "--output=json")

    assert (shown.returncode, shown.stderr) == (2, "")
    assert "Node one\n  ~ cluster  addresses\n" in shown.stdout
    assert 'spec.providerID: "" → "lab://two"' in shown.stdout
    assert "4 to change" in shown.stdout.splitlines()[-1]
    assert document.returncode == 2
    changes = json.loads(document.stdout)["changes"]
    assert {change["object"]["name"] for change in changes} == {"two"}
    assert everything(clean) == before
    assert lab.own_work == [], "what the provider brings along does not run"


def test_what_was_planned_is_what_the_manager_does_and_then_nothing_is_planned(
    clean: ControlPlane, lab: Lab, reader: Path
) -> None:
    register(clean, "one")
    planned = json.loads(plan(lab, reader, "--output=json").stdout)["changes"]

    with running(clean, lab):
        eventually("initialized", lambda: is_initialized(clean, "one"))
    after = plan(lab, reader)

    (wanted,) = [each for change in planned for each in change["details"] if "providerID" in each]
    assert wanted.endswith(f'"{node(clean, "one")["spec"]["providerID"]}"')
    assert after.returncode == 0, after.stdout
    assert after.stdout.endswith("No changes. Cluster and cloud match the desired state.\n")


def test_who_may_not_read_is_told_what_is_missing(clean: ControlPlane, lab: Lab) -> None:
    refused = plan(lab, clean.user("nobody"))

    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "nodes cannot be read" in refused.stderr
    assert "403 Forbidden" in refused.stderr


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Path]:
    """The file with the state of a local cloud that runs beside, and has a machine `one`."""
    state = tmp_path / "cloud.db"
    config = tmp_path / "cloud.yaml"
    config.write_text(f"endpoint: {tmp_path / 'cloud.sock'}\nstate: {state}\n")
    cloud = subprocess.Popen([PILEUS, "local", "serve", f"--config={config}"])
    try:
        eventually("served", (tmp_path / "cloud.sock").exists)
        create = ["local", "instances", "create", "one", f"--endpoint={tmp_path / 'cloud.sock'}"]
        subprocess.run([PILEUS, *create], check=True, timeout=60, capture_output=True)
        yield state
    finally:
        cloud.terminate()
        cloud.wait(30)


def looked(command: str, local: Path, kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    flags = [
        "--cloud-provider=local",
        f"--cloud-config={local.with_suffix('.yaml')}",
        f"--kubeconfig={kubeconfig}",
    ]
    return subprocess.run(
        [PILEUS, *command.split(), *flags], capture_output=True, text=True, timeout=60, check=False
    )


def kept(state: Path) -> dict[str, bytes]:
    """All that the cloud has written down."""
    return {file.name: file.read_bytes() for file in state.parent.glob(f"{state.name}*")}


def test_cluster_and_cloud_are_byte_for_byte_the_same_after_each_look(
    clean: ControlPlane, local: Path, reader: Path
) -> None:
    register(clean, "one")
    clean.kubectl("create", "service", "loadbalancer", "shop", "--tcp=80:80")
    cluster, cloud = everything(clean), kept(local)

    planned = looked("plan", local, reader)
    explain_node = looked("explain node one", local, reader)
    explain_service = looked("explain service shop", local, reader)
    orphans = looked("orphans", local, reader)

    assert (everything(clean), kept(local)) == (cluster, cloud)
    assert planned.returncode == 2, planned.stderr
    assert "+ cloud    balancer default-shop on 80/TCP" in planned.stdout, planned.stdout
    assert "Node one: in progress" in explain_node.stdout, explain_node.stderr
    assert "Service default/shop: waiting" in explain_service.stdout, explain_service.stderr
    assert (orphans.returncode, orphans.stderr) == (0, "")


def test_a_dry_run_tells_by_events_and_leaves_nodes_and_lease_to_the_real_manager(
    clean: ControlPlane, lab: Lab, tmp_path: Path
) -> None:
    register(clean, "one")
    before = node(clean, "one")
    other = Lab(tmp_path / "other")

    with running(clean, lab, "--dry-run") as dry:
        eventually("told", lambda: "dry run: ~ addresses" in str(events(clean)))
        assert node(clean, "one") == before
        assert leases(clean) == ""
        assert dry.metric("pileus_planned_changes_open", controller="cloud-node-controller") == 2
        assert dry.metric("rest_client_requests_total", method="PATCH") == 0
        assert dry.get("/healthz")[0] == 200

        with running(clean, other) as real:
            eventually("initialized", lambda: is_initialized(clean, "one"))
            real.wait_leading()
        eventually("nothing left", lambda: dry.metric("pileus_planned_changes_open") == 0)

    assert lab.own_work == []
