"""The manager gets along with exactly the rights of `deploy`, which the guide shows."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.real.local_cloud import local_cloud
from tests.real.manager import Lab, eventually, is_initialized, is_told, node, register, running

DEPLOY = Path(__file__).parents[2] / "deploy"
ACCOUNT = "system:serviceaccount:kube-system:cloud-controller-manager"
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:kube-system")


@pytest.fixture
def account(clean: ControlPlane) -> Path:
    """Credentials that make their bearer the manager's service account."""
    return clean.user(ACCOUNT, groups=GROUPS)


@pytest.fixture
def rights(clean: ControlPlane, request: pytest.FixtureRequest) -> Iterator[None]:
    files = [f"--filename={DEPLOY / name}" for name in ("rbac.yaml", request.param)]
    clean.kubectl("apply", *files)
    yield
    clean.kubectl("delete", *files)


WAYS = [
    pytest.param("rbac-one-identity.yaml", (), id="one-identity"),
    pytest.param(
        "rbac-own-identities.yaml", ("--use-service-account-credentials",), id="own-identities"
    ),
]


@pytest.mark.parametrize(("rights", "flags"), WAYS, indirect=["rights"])
@pytest.mark.usefixtures("rights")
def test_these_rights_are_enough(
    clean: ControlPlane, lab: Lab, account: Path, flags: tuple[str, ...]
) -> None:
    own = (f"--authentication-kubeconfig={account}", f"--authorization-kubeconfig={account}")
    register(clean, "one")

    with running(clean, lab, *own, *flags, kubeconfig=account) as manager:
        eventually("initialized", lambda: is_initialized(clean, "one"))
        eventually("told", lambda: is_told(clean, "Synced"))
        eventually("leading", manager.leads)

        assert manager.metric("rest_client_requests_total", code="403") == 0
        assert manager.metric("rest_client_requests_total", code="201") > 0


@pytest.mark.parametrize(("rights", "flags"), WAYS, indirect=["rights"])
@pytest.mark.usefixtures("rights")
def test_these_rights_are_enough_for_routes(
    clean: ControlPlane, lab: Lab, account: Path, flags: tuple[str, ...], tmp_path: Path
) -> None:
    spec = {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": spec}
    clean.kubectl("create", "-f", "-", stdin=json.dumps(body))

    with local_cloud(tmp_path) as cloud:
        given = (*cloud.flags, "--controllers=route", "--cluster-cidr=10.244.0.0/16", *flags)
        with running(clean, lab, *given, kubeconfig=account) as manager:
            eventually("told", lambda: is_told(clean, "FailedToCreateRoute"))
            cloud.pileus("instances", "create", "n1")
            eventually("routed", lambda: "RouteCreated" in json.dumps(node(clean, "n1")))

            assert manager.metric("rest_client_requests_total", code="403") == 0


@pytest.mark.parametrize(("rights", "flags"), WAYS, indirect=["rights"])
@pytest.mark.usefixtures("rights")
def test_these_rights_are_enough_for_services(
    clean: ControlPlane, lab: Lab, account: Path, flags: tuple[str, ...], tmp_path: Path
) -> None:
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
    clean.kubectl("create", "-f", "-", stdin=json.dumps(body))

    with local_cloud(tmp_path) as cloud:
        given = (*cloud.flags, "--controllers=service", *flags)
        with running(clean, lab, *given, kubeconfig=account) as manager:
            eventually("served", lambda: "127." in clean.kubectl("get", "service", "web"))
            clean.kubectl("delete", "service", "web", "--timeout=60s")
            eventually("told", lambda: is_told(clean, "DeletedLoadBalancer"))

            assert cloud.pileus("balancers", "list").strip() == "No balancers."
            assert manager.metric("rest_client_requests_total", code="403") == 0


@pytest.mark.parametrize("rights", ["rbac-own-identities.yaml"], indirect=True)
@pytest.mark.usefixtures("rights")
def test_without_the_rights_on_nodes_a_node_stays_tainted_and_says_why(
    clean: ControlPlane, lab: Lab, account: Path
) -> None:
    register(clean, "one")

    with running(clean, lab, kubeconfig=account):
        eventually("told", lambda: is_told(clean, "NodeWriteForbidden"))

    assert not is_initialized(clean, "one")


def test_the_api_server_accepts_the_deployment(clean: ControlPlane) -> None:
    made = clean.kubectl("apply", "--dry-run=server", f"--filename={DEPLOY / 'manager.yaml'}")

    assert "deployment.apps/cloud-controller-manager created" in made
