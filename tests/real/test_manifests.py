"""A real API server accepts the output of `pileus manifests`, the chart and the overlay."""

import json
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from pileus.testing.control_plane import ControlPlane, free_ports
from tests.real.access import ACCOUNT
from tests.real.manager import PROGRAM, Lab, eventually, is_initialized, register, running

DEPLOY = Path(__file__).parents[2] / "deploy"
PILEUS = PROGRAM.parent / "pileus"
HELM = os.environ.get("PILEUS_HELM", "")
NEEDS_HELM = pytest.mark.skipif(not HELM, reason="no real helm: PILEUS_HELM is not set")
OPTIONAL = ("node-route-controller", "node-ipam-controller")
OPENSTACK = "--cloud-provider=openstack"


def printed(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def manifests(*flags: str) -> str:
    return printed(PILEUS, "manifests", OPENSTACK, *flags)


@contextmanager
def applied(cluster: ControlPlane, text: str, *flags: str) -> Generator[str]:
    """Apply, and delete at the end. Yields what kubectl reports."""
    try:
        yield cluster.kubectl("apply", "--filename=-", *flags, stdin=text)
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "--filename=-", stdin=text)


SHAPES = [
    pytest.param(("--ha", "--api-server=node"), "deployment.apps/", id="ha"),
    pytest.param(("--daemonset", "--namespace=ops"), "daemonset.apps/", id="daemonset"),
    pytest.param(("--csi",), "daemonset.apps/pileus-csi-node", id="csi"),
]


@pytest.mark.parametrize(("flags", "made"), SHAPES)
def test_the_printed_objects_are_accepted_and_do_not_change_when_applied_again(
    clean: ControlPlane, flags: tuple[str, ...], made: str
) -> None:
    text = manifests(*flags)
    with applied(clean, text, "--validate=strict") as report:
        again = clean.kubectl("apply", "--filename=-", stdin=text)

    # kubectl reports every budget as configured: its selector is always sent as a whole.
    changed = [line for line in again.splitlines() if not line.endswith(" unchanged")]
    assert made in report
    assert not [line for line in changed if "poddisruptionbudget" not in line]


def test_own_accounts_replace_the_one_account_and_leave_no_right_behind(
    clean: ControlPlane,
) -> None:
    asks = ("auth", "can-i", "patch", "nodes", f"--as={ACCOUNT}")
    with (
        applied(clean, manifests()),
        applied(clean, manifests("--use-service-account-credentials")),
        pytest.raises(AssertionError, match="can-i"),
    ):
        clean.kubectl(*asks)


FOREIGN = ("serviceaccount", "node-controller", "--namespace=kube-system")
"""The account that kube-controller-manager creates with --use-service-account-credentials."""
OWN_ACCOUNTS = "use-service-account-credentials"


@pytest.fixture
def foreign(clean: ControlPlane) -> str:
    clean.kubectl("delete", *FOREIGN, "--ignore-not-found")
    clean.kubectl("create", *FOREIGN)
    return clean.kubectl("get", *FOREIGN, "--output=json")


def test_manifests_with_own_accounts_leave_the_account_of_another_program_as_it_is(
    clean: ControlPlane, foreign: str
) -> None:
    with applied(clean, manifests(f"--{OWN_ACCOUNTS}")):
        assert clean.kubectl("get", *FOREIGN, "--output=json") == foreign

    assert clean.kubectl("get", *FOREIGN, "--output=json") == foreign


@NEEDS_HELM
def test_the_chart_with_own_accounts_leaves_the_account_of_another_program_as_it_is(
    clean: ControlPlane, foreign: str
) -> None:
    release = ("pileus", "--namespace=kube-system", f"--kubeconfig={clean.admin}")
    values = ("--set=cloudProvider=openstack", f"--set=flags.{OWN_ACCOUNTS}=true")

    printed(HELM, "install", *release, DEPLOY / "chart" / "pileus", *values)
    bound = clean.kubectl("get", "clusterrolebindings", "--output=json")
    printed(HELM, "uninstall", *release, "--wait=legacy")

    assert '"name": "node-controller"' in bound
    assert clean.kubectl("get", *FOREIGN, "--output=json") == foreign


@NEEDS_HELM
def test_the_chart_is_installed_upgraded_and_uninstalled(clean: ControlPlane) -> None:
    release = ("pileus", "--namespace=kube-system", f"--kubeconfig={clean.admin}")
    values = ("--set=cloudProvider=openstack", "--set=cloudConfig=x")
    chart = DEPLOY / "chart" / "pileus"

    notes = printed(HELM, "install", *release, chart, *values)
    installed = workloads(clean)
    driver = ("--set=csi.enabled=true",)
    printed(HELM, "upgrade", *release, chart, *values, *driver, "--set=kind=DaemonSet")
    upgraded = workloads(clean)
    printed(HELM, "uninstall", *release, "--wait=legacy")

    assert "Pileus runs as Deployment pileus-cloud-controller-manager in kube-system." in notes
    assert installed == {"deployment.apps/pileus-cloud-controller-manager"}
    assert upgraded == {
        "daemonset.apps/pileus-cloud-controller-manager",
        "daemonset.apps/pileus-csi-node",
        "deployment.apps/pileus-csi-controller",
    }
    assert workloads(clean) == set()


def workloads(cluster: ControlPlane) -> set[str]:
    where = ("--namespace=kube-system", "--output=name")
    return set(cluster.kubectl("get", "deployments,daemonsets", *where).split())


def test_the_kustomize_overlay_is_accepted_and_names_what_it_generates(
    clean: ControlPlane,
) -> None:
    text = clean.kubectl("kustomize", str(DEPLOY / "kustomize" / "example"))

    with applied(clean, text, "--validate=strict") as report:
        names = [line.split()[0].partition("/") for line in report.splitlines()]
        generated = [name for kind, _, name in names if kind in {"configmap", "secret"}]

    assert "deployment.apps/pileus-cloud-controller-manager created" in report
    assert len(generated) == 2
    assert all(f"ame: {name}\n" in text.partition("kind: Deployment")[2] for name in generated)


def test_components_add_the_rights_of_controllers_that_are_off_by_default(
    clean: ControlPlane, tmp_path: Path
) -> None:
    (tmp_path / "deploy").symlink_to(DEPLOY)
    folders = [f"deploy/kustomize/components/{name}" for name in OPTIONAL]
    overlay = {"resources": ["deploy/kustomize/base"], "components": folders}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))

    text = clean.kubectl("kustomize", "--load-restrictor=LoadRestrictionsNone", str(tmp_path))

    names = {each["metadata"]["name"] for each in yaml.safe_load_all(text)}
    assert {f"pileus-cloud-controller-manager:{name}" for name in OPTIONAL} <= names
    clean.kubectl("apply", "--dry-run=server", "--filename=-", stdin=text)


def test_two_replicas_on_one_node_share_the_port_and_both_are_ready(
    clean: ControlPlane, lab: Lab
) -> None:
    port = f"--secure-port={free_ports(1)[0]}"
    flags = ("--permit-port-sharing=true", port)
    with running(clean, lab, *flags) as one, running(clean, lab, *flags) as other:
        one.port = other.port = int(port.partition("=")[2])
        eventually("serving", lambda: one.get("/readyz")[0] == 200)
        eventually("both answer", lambda: {one.leads() for _ in range(12)} == {True, False})
        answers = {one.get(path)[0] for path in ("/livez", "/readyz") for _ in range(10)}

        assert answers == {200}
        assert one.is_alive()
        assert other.is_alive()


def test_a_manager_outside_the_cluster_works_with_the_token_of_the_account(
    clean: ControlPlane, lab: Lab
) -> None:
    register(clean, "one")
    with applied(clean, manifests("--external")):
        account = ("pileus-cloud-controller-manager", "--namespace=kube-system")
        token = clean.kubectl("create", "token", *account).strip()
        kubeconfig = clean.token_user("outside", token)
        with running(clean, lab, kubeconfig=kubeconfig) as manager:
            eventually("initialized", lambda: is_initialized(clean, "one"))

            assert manager.metric("rest_client_requests_total", code="403") == 0
