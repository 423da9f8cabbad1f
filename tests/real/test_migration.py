"""Leader migration with the real kube-controller-manager on the other side: never both act.

The controller that both programs have today is node-ipam-controller. It is handed from
kube-controller-manager to Pileus and back, while nodes keep joining. The audit log of the API
server has the order of all requests: who held the migration Lease, and who gave ranges.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pileus.testing.control_plane import ControlPlane, free_ports
from tests.real.manager import QUICK_LEASE, Lab, eventually, get, running

OTHER = "kube-controller-manager"
OURS = "cloud-controller-manager"
MIGRATION = "moving"
BINARY = Path(os.environ.get("PILEUS_CONTROL_PLANE", "")) / OTHER
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  verbs: [create, update, patch]
  resources: [{group: "", resources: [nodes]}, {group: coordination.k8s.io, resources: [leases]}]
- level: None
"""
RANGES = ("--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16")

pytestmark = pytest.mark.skipif(
    not BINARY.is_file(),
    reason=f"leader migration is not tested here: {OTHER} 1.37 ends as soon as it has the second "
    "Lease. make test-skew tests it with the oldest version that is supported",
)


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of its own, which writes an audit log."""
    folder = tmp_path / "control-plane"
    folder.mkdir(mode=0o700)
    (folder / "audit.yaml").write_text(POLICY)
    arguments = (
        f"--audit-policy-file={folder / 'audit.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
    )
    with ControlPlane(
        Path(os.environ["PILEUS_CONTROL_PLANE"]), folder, arguments=arguments
    ) as cluster:
        yield cluster


def assignment(folder: Path, component: str) -> Path:
    """The file of --leader-migration-config that gives node-ipam-controller to a component."""
    path = folder / f"to-{component}.yaml"
    path.write_text(
        "apiVersion: controllermanager.config.k8s.io/v1\n"
        "kind: LeaderMigrationConfiguration\n"
        f"leaderName: {MIGRATION}\n"
        "controllerLeaders:\n"
        f"- {{name: node-ipam-controller, component: {component}}}\n"
    )
    return path


@contextlib.contextmanager
def other_manager(cluster: ControlPlane, folder: Path, component: str) -> Generator[None]:
    """kube-controller-manager, with the controller assigned to a component."""
    kubeconfig = cluster.user(OTHER, groups=("system:masters",))
    command = [
        str(BINARY),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_ports(1)[0]}",
        f"--cert-dir={folder / 'kcm-certificates'}",
        "--cloud-provider=external",
        "--controllers=node-ipam-controller,serviceaccount-token-controller",
        f"--service-account-private-key-file={cluster.folder / 'accounts.key'}",
        f"--root-ca-file={cluster.authority_file}",
        "--enable-leader-migration",
        f"--leader-migration-config={assignment(folder, component)}",
        *RANGES,
        *QUICK_LEASE,
    ]
    with (folder / "kcm.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    except BaseException as error:
        error.add_note((folder / "kcm.log").read_text()[-6000:])
        raise
    finally:
        process.kill()  # as a node that is lost; its Lease has to expire
        process.wait()


def join(cluster: ControlPlane, name: str) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(node))


def is_served(cluster: ControlPlane, name: str) -> bool:
    return bool(get(cluster, f"/api/v1/nodes/{name}")["spec"].get("podCIDRs"))


def holder(cluster: ControlPlane, lease: str = MIGRATION) -> str:
    try:
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{lease}"
        return get(cluster, path).get("spec", {}).get("holderIdentity", "")
    except AssertionError:
        return ""


@dataclass(frozen=True)
class Entry:
    """A successful write in the audit log, in the order in which the API server finished them."""

    user: str
    resource: str
    name: str
    body: dict[str, Any]


def audit_log(cluster: ControlPlane) -> list[Entry]:
    found: list[Entry] = []
    for line in (cluster.folder / "audit.log").read_text().splitlines():
        event = json.loads(line)
        reference = event.get("objectRef") or {}
        if event.get("responseStatus", {}).get("code", 500) < 300:
            body = event.get("requestObject") or {}
            name = reference.get("name") or body.get("metadata", {}).get("name", "")
            found.append(Entry(event["user"]["username"], reference["resource"], name, body))
    return found


def writers(log: list[Entry]) -> list[tuple[str, str, str]]:
    """For each range: the node, who gave it, and whose the migration Lease was at that time."""
    leader, found = "", list[tuple[str, str, str]]()
    for entry in log:
        if (entry.resource, entry.name) == ("leases", MIGRATION):
            leader = entry.user if entry.body.get("spec", {}).get("holderIdentity") else ""
        if entry.resource == "nodes" and entry.body.get("spec", {}).get("podCIDRs"):
            found.append((entry.name, entry.user, leader))
    return found


def test_a_controller_is_handed_over_and_back_and_never_runs_twice(
    audited: ControlPlane, lab: Lab, tmp_path: Path
) -> None:
    cluster, account = audited, audited.user(OURS, groups=("system:masters",))
    to_ours = assignment(tmp_path, OURS)
    ours = (
        "--controllers=node-ipam-controller",
        *RANGES,
        *QUICK_LEASE,
        "--enable-leader-migration",
        f"--leader-migration-config={to_ours}",
    )

    with other_manager(cluster, tmp_path, OTHER):
        join(cluster, "before")
        eventually("served by the old owner", lambda: is_served(cluster, "before"))
        with running(cluster, lab, *ours, kubeconfig=account) as manager:
            manager.wait_leading()
            join(cluster, "both-run")
            eventually("served by the old owner", lambda: is_served(cluster, "both-run"))
    with (
        running(cluster, lab, *ours, kubeconfig=account),
        other_manager(cluster, tmp_path, OURS),
    ):
        join(cluster, "handed-over")
        eventually("served by the new owner", lambda: is_served(cluster, "handed-over"))
        eventually("the old owner leads its own Lease", lambda: holder(cluster, OTHER))
    with other_manager(cluster, tmp_path, OTHER):
        join(cluster, "rolled-back")
        eventually("served by the old owner", lambda: is_served(cluster, "rolled-back"))

    assert writers(audit_log(cluster)) == [
        ("before", OTHER, OTHER),
        ("both-run", OTHER, OTHER),
        ("handed-over", OURS, OURS),
        ("rolled-back", OTHER, OTHER),
    ]
