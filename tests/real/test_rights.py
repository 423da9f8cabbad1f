"""The manager has the rights of the reference page, and needs no others."""

import json
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import Lab, eventually, is_initialized, register, running

INFORMERS = [
    {"apiGroups": [""], "resources": ["nodes", "services"], "verbs": ["list", "watch"]},
    {"nonResourceURLs": ["/healthz"], "verbs": ["get"]},
]
ELECTION = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update"],
    }
]
EVENTS = [
    {
        "apiGroups": ["", "events.k8s.io"],
        "resources": ["events"],
        "verbs": ["create", "patch", "update"],
    }
]
NODES = [
    {
        "apiGroups": [""],
        "resources": ["nodes"],
        "verbs": ["get", "list", "watch", "update", "delete", "patch"],
    },
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch", "update"]},
]
ACCOUNTS = [
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "create"]},
]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


@pytest.mark.parametrize(
    ("rules", "flags"),
    [
        pytest.param([*INFORMERS, *ELECTION, *EVENTS, *NODES], (), id="one-identity"),
        pytest.param(
            [*INFORMERS, *ELECTION, *EVENTS, *ACCOUNTS],
            ("--use-service-account-credentials",),
            id="accounts-of-their-own",
        ),
    ],
)
def test_these_rights_are_enough(
    clean: ControlPlane, lab: Lab, rules: list[dict[str, list[str]]], flags: tuple[str, ...]
) -> None:
    name = "ccm-accounts" if flags else "ccm-alone"
    grant(clean, name, rules)
    register(clean, "one")

    with running(clean, lab, *flags, kubeconfig=clean.user(name)) as manager:
        eventually("initialized", lambda: is_initialized(clean, "one"))
        eventually("told", lambda: "Synced" in clean.kubectl("get", "events"))

        assert manager.metric("rest_client_requests_total", code="403") == 0


def grant(cluster: ControlPlane, name: str, rules: list[dict[str, list[str]]]) -> None:
    group = "rbac.authorization.k8s.io"
    role = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }
    listed = {"apiVersion": "v1", "kind": "List", "items": [role, binding]}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(listed))
