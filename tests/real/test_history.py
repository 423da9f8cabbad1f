"""The history of a real manager on a real control plane, read with a developer's own token."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import Lab, Manager, eventually, is_initialized, register, running
from tests.real.test_plan import PILEUS

RIGHTS = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: developer, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: guest, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pileus-history}
rules:
- {nonResourceURLs: [/history/v1/*], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: pileus-history}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pileus-history}
subjects: [{kind: ServiceAccount, name: developer, namespace: default}]
"""


@pytest.fixture
def tokens(clean: ControlPlane, tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Files with the tokens of a developer and of a guest without rights."""
    clean.kubectl("apply", "-f", "-", stdin=RIGHTS)
    files: dict[str, Path] = {}
    for name in ("developer", "guest"):
        files[name] = tmp_path / f"{name}.token"
        files[name].write_text(clean.kubectl("create", "token", name))
    yield files
    clean.kubectl("delete", "-f", "-", stdin=RIGHTS)


def pileus(cluster: ControlPlane, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PILEUS), *arguments, f"--kubeconfig={cluster.admin}"],
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def direct(manager: Manager, token: Path) -> tuple[str, ...]:
    server = f"--server=https://127.0.0.1:{manager.port}"
    return server, "--insecure-skip-tls-verify", f"--token-file={token}"


def test_a_developer_reads_what_happened_to_a_node(
    clean: ControlPlane, lab: Lab, tokens: dict[str, Path]
) -> None:
    lab.set(instances={"web-1": {"id": "i-1"}})
    register(clean, "web-1")
    with running(clean, lab) as manager:
        eventually("initialized", lambda: manager.is_alive() and is_initialized(clean, "web-1"))
        reach = direct(manager, tokens["developer"])
        told = pileus(clean, "history", "node", "web-1", *reach)
        data = pileus(clean, "history", "node", "web-1", "-o", "json", *reach)
        everything = pileus(clean, "history", *reach)
        top = pileus(clean, "top", "--once", *reach)
        never = pileus(clean, "history", "node", "web-11", *reach)
        guest = pileus(clean, "history", "node", "web-1", *direct(manager, tokens["guest"]))

    assert told.returncode == 0, told.stderr
    assert "cloud-node-controller" in told.stdout
    assert "PATCH /api/v1/nodes/web-1 200" in told.stdout
    assert "audit " in told.stdout
    entries = json.loads(data.stdout)["entries"]
    assert entries[0]["calls"][0]["method"] == "instances.find"
    assert entries[0]["writes"][0]["id"]
    assert "Node web-1" in everything.stdout
    assert "initialized" in top.stdout
    assert never.returncode == guest.returncode == 1
    assert 'there is no Node "web-11"' in never.stderr
    assert 'did you mean "web-1"' in never.stderr
    assert "cannot get path" in guest.stderr
    assert "--clusterrole=pileus-history --serviceaccount=default:guest" in guest.stderr


def test_without_a_leader_or_a_token_it_says_what_to_do(
    clean: ControlPlane, tokens: dict[str, Path]
) -> None:
    clean.kubectl(
        "-n", "kube-system", "delete", "lease", "cloud-controller-manager", "--ignore-not-found"
    )
    no_leader = pileus(clean, "history")

    assert no_leader.returncode == 1
    assert "there is no leader: Lease kube-system/cloud-controller-manager" in no_leader.stderr
