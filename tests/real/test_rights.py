"""The manager gets along with exactly the rights of `deploy`, which the guide shows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import Lab, eventually, is_initialized, register, running

DEPLOY = Path(__file__).parents[2] / "deploy"
ACCOUNT = "system:serviceaccount:kube-system:cloud-controller-manager"
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:kube-system")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


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


@pytest.mark.parametrize(
    ("rights", "flags"),
    [
        pytest.param("rbac-one-identity.yaml", (), id="one-identity"),
        pytest.param(
            "rbac-own-identities.yaml",
            ("--use-service-account-credentials",),
            id="own-identities",
        ),
    ],
    indirect=["rights"],
)
@pytest.mark.usefixtures("rights")
def test_these_rights_are_enough(
    clean: ControlPlane, lab: Lab, account: Path, flags: tuple[str, ...]
) -> None:
    own = (f"--authentication-kubeconfig={account}", f"--authorization-kubeconfig={account}")
    register(clean, "one")

    with running(clean, lab, *own, *flags, kubeconfig=account) as manager:
        eventually("initialized", lambda: is_initialized(clean, "one"))
        eventually("told", lambda: "Synced" in clean.kubectl("get", "events"))
        eventually("leading", manager.leads)

        assert manager.metric("rest_client_requests_total", code="403") == 0
        assert manager.metric("rest_client_requests_total", code="201") > 0


@pytest.mark.parametrize("rights", ["rbac-own-identities.yaml"], indirect=True)
@pytest.mark.usefixtures("rights")
def test_without_the_rights_on_nodes_a_node_stays_tainted_and_says_why(
    clean: ControlPlane, lab: Lab, account: Path
) -> None:
    register(clean, "one")

    with running(clean, lab, kubeconfig=account):
        eventually("told", lambda: "NodeWriteForbidden" in clean.kubectl("get", "events"))

    assert not is_initialized(clean, "one")


def test_the_api_server_accepts_the_deployment(clean: ControlPlane) -> None:
    made = clean.kubectl("apply", "--dry-run=server", f"--filename={DEPLOY / 'manager.yaml'}")

    assert "deployment.apps/cloud-controller-manager created" in made
