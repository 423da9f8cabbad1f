"""The manager works with the rights of `deploy`, which the guide shows, and cannot gain others.

That they are not more than it uses is tested in tests/unit/app/test_rights.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.contract.api.http import Api
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


ACCOUNTS = "/api/v1/namespaces/kube-system/serviceaccounts"
POWERFUL = "clusterrole-aggregation-controller"
"""It may give itself any right: its built-in role has the verb escalate on cluster roles."""


@pytest.mark.parametrize("rights", ["rbac-own-identities.yaml"], indirect=True)
@pytest.mark.usefixtures("rights")
def test_the_manager_cannot_act_as_an_account_that_is_not_its_own(
    clean: ControlPlane, account: Path
) -> None:
    admin, manager = Api.of_kubeconfig(clean.admin), Api.of_kubeconfig(account)
    admin.post(ACCOUNTS, {"metadata": {"name": POWERFUL}})

    token = manager.post(f"{ACCOUNTS}/{POWERFUL}/token", {})
    other = manager.post(ACCOUNTS, {"metadata": {"name": "generic-garbage-collector"}})
    own = manager.post(f"{ACCOUNTS}/node-controller/token", {})

    assert (token.status, token.reason) == (403, "Forbidden")
    assert (other.status, other.reason) == (403, "Forbidden")
    assert own.status == 201
    admin.delete(f"{ACCOUNTS}/{POWERFUL}")


@pytest.mark.parametrize("rights", ["rbac-own-identities.yaml"], indirect=True)
@pytest.mark.usefixtures("rights")
def test_a_missing_account_is_reported_with_the_manifest_to_apply(
    clean: ControlPlane, lab: Lab, account: Path
) -> None:
    clean.kubectl("delete", "serviceaccount", "node-controller", "--namespace=kube-system")
    register(clean, "one")

    with running(clean, lab, "--use-service-account-credentials", kubeconfig=account) as manager:
        fix = "kubectl apply -f deploy/rbac-own-identities.yaml"
        eventually("reported", lambda: fix in manager.log.read_text())
        clean.kubectl("apply", f"--filename={DEPLOY / 'rbac-own-identities.yaml'}")
        eventually("initialized", lambda: is_initialized(clean, "one"), limit=120)


def test_the_api_server_accepts_the_deployment(clean: ControlPlane) -> None:
    made = clean.kubectl("apply", "--dry-run=server", f"--filename={DEPLOY / 'manager.yaml'}")

    assert "deployment.apps/cloud-controller-manager created" in made
