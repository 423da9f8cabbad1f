"""Taking over from the Go OpenStack manager that a chart or manifests installed, and handing back.

The chart and the manifests are those of the Go manager, from the Go module that the tests pin. Its
only dependency, a chart with labels, is replaced by a stand-in that gives the usual labels.
"""

import json
import os
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pileus.server.settings import ServingOptions
from pileus.settings.declare import flag_of
from pileus.testing.control_plane import ControlPlane, free_ports
from tests.real.access import ACCOUNT, GROUPS
from tests.real.manager import PROGRAM, Lab, eventually, is_initialized, register, running

HELM = os.environ.get("PILEUS_HELM", "")
GO = os.environ.get("PILEUS_GO_OPENSTACK_CHART", "")
pytestmark = pytest.mark.skipif(
    not (HELM and GO),
    reason="no helm or no chart: PILEUS_HELM or PILEUS_GO_OPENSTACK_CHART is not set",
)
CHART = Path(__file__).parents[2] / "deploy" / "chart" / "pileus"
PILEUS = PROGRAM.parent / "pileus"
HERE = "--namespace=kube-system"
CONFIG = """[Global]
auth-url = "https://keystone.example/v3"
application-credential-id = "a"
application-credential-secret = "b"
region = "one"
"""
LABELS = """{{- define "common.labels.standard" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
"""
NAME = "pileus-cloud-controller-manager"
OURS = (
    f"serviceaccount/{NAME}",
    "secret/pileus-cloud-config",
    f"deployment/{NAME}",
    f"clusterrole/{NAME}",
    f"clusterrolebinding/{NAME}",
    f"role/{NAME}:leader-election",
    f"rolebinding/{NAME}:leader-election",
)
KINDS = (
    "serviceaccounts,secrets,deployments,daemonsets,poddisruptionbudgets,"
    "roles,rolebindings,clusterroles,clusterrolebindings"
)
THEIRS = (
    "serviceaccount/cloud-controller-manager",
    "secret/cloud-config",
    "daemonset/openstack-cloud-controller-manager",
    "clusterrole/system:cloud-controller-manager",
    "clusterrolebinding/system:cloud-controller-manager",
)


class Installations:
    """Both managers on one cluster, each installed in one of two ways."""

    def __init__(self, cluster: ControlPlane, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.chart = folder / "go-chart"
        shutil.copytree(Path(GO) / "charts/openstack-cloud-controller-manager", self.chart)
        for path in (self.chart, *self.chart.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)  # a module cache is read-only
        labels = self.chart / "charts" / "common"
        (labels / "templates").mkdir(parents=True)
        about = {"apiVersion": "v2", "name": "common", "version": "2.14.1", "type": "library"}
        (labels / "Chart.yaml").write_text(json.dumps(about))
        (labels / "templates" / "_labels.tpl").write_text(LABELS)
        self.config = folder / "cloud.conf"
        self.config.write_text(CONFIG)

    def helm(self, *arguments: str | Path, values: dict[str, Any] | None = None) -> str:
        given = ("--values=-",) if values is not None else ()
        done = subprocess.run(
            [HELM, *arguments, *given, HERE, f"--kubeconfig={self.cluster.admin}"],
            input=json.dumps(values),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def has(self, names: tuple[str, ...]) -> set[str]:
        """Returns those of the objects that exist and are not being deleted."""
        found: set[str] = set()
        for name in names:
            text = self.cluster.kubectl("get", name, HERE, "--ignore-not-found", "--output=json")
            if text and "deletionTimestamp" not in json.loads(text)["metadata"]:
                found.add(name)
        return found

    def config_of(self, secret: str, key: str) -> str:
        found = json.loads(self.cluster.kubectl("get", f"secret/{secret}", HERE, "--output=json"))
        return b64decode(found["data"][key]).decode()

    # -- the Go manager -------------------------------------------------------------------------

    def install_go_chart(self) -> None:
        values = {"cloudConfigContents": CONFIG, "cluster": {"name": "shop"}}
        self.helm("install", "go", self.chart, values=values)

    def uninstall_go_chart(self) -> None:
        self.helm("uninstall", "go")

    def _go_manifests(self) -> Iterator[str]:
        folder = Path(GO) / "manifests/controller-manager"
        for name in ("roles", "role-bindings"):
            yield f"--filename={folder}/cloud-controller-manager-{name}.yaml"
        yield f"--filename={folder}/openstack-cloud-controller-manager-ds.yaml"

    def apply_go_manifests(self) -> None:
        file = f"--from-file=cloud.conf={self.config}"
        self.cluster.kubectl("create", "secret", "generic", "cloud-config", HERE, file)
        self.cluster.kubectl("apply", *self._go_manifests())

    def delete_go_manifests(self) -> None:
        self.cluster.kubectl("delete", "--wait=false", *self._go_manifests())
        self.cluster.kubectl("delete", "secret", "cloud-config", HERE)

    # -- Pileus -----------------------------------------------------------------------------------

    def install_chart(self) -> None:
        """As the guide: the file of the Go manager's Secret becomes the Secret of Pileus."""
        content = self.config_of("cloud-config", "cloud.conf")
        values = {
            "cloudProvider": "openstack",
            "cloudConfig": content,
            "flags": {"cluster-name": "shop"},
        }
        self.helm("install", "pileus", CHART, values=values)

    def uninstall_chart(self) -> None:
        self.helm("uninstall", "pileus")

    def _manifests(self) -> str:
        flags = (f"--cloud-config={self.config}", "--cluster-name=shop")
        command = [PILEUS, "manifests", "--cloud-provider=openstack", *flags]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def apply_manifests(self) -> None:
        self.cluster.kubectl("apply", "--filename=-", stdin=self._manifests())

    def delete_manifests(self) -> None:
        self.cluster.kubectl("delete", "--wait=false", "--filename=-", stdin=self._manifests())


@pytest.fixture
def both(clean: ControlPlane, tmp_path: Path) -> Iterator[Installations]:
    made = Installations(clean, tmp_path)
    yield made
    for release in made.helm("list", "--short").split():
        made.helm("uninstall", release)
    clean.kubectl("delete", KINDS, HERE, "--selector=app.kubernetes.io/part-of=pileus")
    for name in THEIRS:
        clean.kubectl("delete", name, HERE, "--ignore-not-found", "--wait=false")


Step = Callable[[Installations], None]
WAYS = [
    pytest.param(
        (Installations.install_go_chart, Installations.uninstall_go_chart),
        (Installations.install_chart, Installations.uninstall_chart),
        id="charts",
    ),
    pytest.param(
        (Installations.install_go_chart, Installations.uninstall_go_chart),
        (Installations.apply_manifests, Installations.delete_manifests),
        id="chart-to-manifests",
    ),
    pytest.param(
        (Installations.apply_go_manifests, Installations.delete_go_manifests),
        (Installations.install_chart, Installations.uninstall_chart),
        id="manifests-to-chart",
    ),
]


@pytest.mark.parametrize(("go", "pileus"), WAYS)
def test_each_manager_is_installed_beside_the_other_and_survives_its_removal(
    both: Installations, lab: Lab, go: tuple[Step, Step], pileus: tuple[Step, Step]
) -> None:
    (install_go, remove_go), (install, remove) = go, pileus
    register(both.cluster, "one")

    install_go(both)
    install(both)
    remove_go(both)

    assert both.has(OURS) == set(OURS)
    assert both.has(THEIRS) == set()
    assert both.config_of("pileus-cloud-config", "cloud-config") == CONFIG
    account = both.cluster.user(ACCOUNT, groups=GROUPS)
    with running(both.cluster, lab, kubeconfig=account) as manager:
        eventually("initialized", lambda: is_initialized(both.cluster, "one"))
        assert manager.metric("rest_client_requests_total", code="403") == 0
    with pytest.raises(AssertionError, match="can-i"):
        both.cluster.kubectl("auth", "can-i", "list", "secrets", f"--as={ACCOUNT}")

    install_go(both)
    remove(both)

    assert both.has(THEIRS) == set(THEIRS)
    assert both.has(OURS) == set()
    assert both.config_of("cloud-config", "cloud.conf") == CONFIG


def test_a_secret_that_no_chart_owns_serves_both_managers(both: Installations) -> None:
    file = f"--from-file=cloud.conf={both.config}"
    both.cluster.kubectl("create", "secret", "generic", "cloud-config", HERE, file)
    own = {"create": False, "name": "cloud-config"}
    both.helm("install", "go", both.chart, values={"secret": own})

    values = {
        "cloudProvider": "openstack",
        "cloudConfigSecret": "cloud-config",
        "cloudConfigSecretKey": "cloud.conf",
    }
    both.helm("install", "pileus", CHART, values=values)
    both.helm("uninstall", "go")

    found = both.cluster.kubectl("get", f"deployment/{NAME}", HERE, "--output=json")
    pod = json.loads(found)["spec"]["template"]["spec"]
    (secret,) = (one["secret"] for one in pod["volumes"] if one["name"] == "cloud-config")
    assert secret["secretName"] == "cloud-config"
    assert "--cloud-config=/etc/cloud/cloud.conf" in pod["containers"][0]["args"]
    assert both.config_of("cloud-config", "cloud.conf") == CONFIG


def port_of(both: Installations, workload: str) -> int:
    """Returns the port on the host network at which a manager's container is told to listen."""
    found = json.loads(both.cluster.kubectl("get", workload, HERE, "--output=json"))
    pod = found["spec"]["template"]["spec"]
    flags = dict(word.partition("=")[::2] for word in pod["containers"][0]["args"])
    assert pod["hostNetwork"] is True
    return int(flags.get("--secure-port", flag_of(ServingOptions, "port").default))


@pytest.mark.parametrize(("go", "pileus"), WAYS)
def test_both_managers_run_on_one_host_and_each_leads_when_the_other_ends(
    both: Installations, lab: Lab, go: tuple[Step, Step], pileus: tuple[Step, Step]
) -> None:
    """A second Pileus is the Go manager: it listens where the container of that is told to."""
    go[0](both)
    pileus[0](both)
    theirs, ours = port_of(both, THEIRS[2]), port_of(both, OURS[2])
    free = dict(zip((theirs, ours), free_ports(2), strict=True))

    with running(both.cluster, lab, f"--secure-port={free[theirs]}") as before:
        before.port = free[theirs]
        before.wait_leading()
        with running(both.cluster, lab, f"--secure-port={free[ours]}") as manager:
            manager.port = free[ours]
            eventually("a candidate", lambda: manager.get("/readyz")[0] == 200)
            assert not manager.leads()
            before.end()
            manager.wait_leading()
            with running(both.cluster, lab, f"--secure-port={free[theirs]}") as after:
                after.port = free[theirs]
                eventually("a candidate again", lambda: after.get("/readyz")[0] == 200)
                assert not after.leads()
                manager.end()
                after.wait_leading()
