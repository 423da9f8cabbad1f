"""The commands of the page `uninstall`, on a real API server: all of Pileus goes, nothing else."""

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import PROGRAM

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart" / "pileus"
PAGE = ROOT / "docs" / "guides" / "uninstall.md"
HELM = os.environ.get("PILEUS_HELM", "")
HERE = "--namespace=kube-system"
CONFIG = """[Global]
auth-url = https://keystone.example/v3
application-credential-id = a
application-credential-secret = b
"""
EVERYTHING = (
    "--cluster-cidr=10.244.0.0/16",
    "--use-service-account-credentials",
    "--webhooks=*",
    "--feature-gates=CloudControllerManagerWebhook=true",
    "--csi",
    "--image=registry.example/pileus:1-csi",
)
FOREIGN: tuple[dict[str, object], ...] = (
    *(
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "kube-system"}}
        for kind, name in (
            ("ServiceAccount", "node-controller"),
            ("ServiceAccount", "cloud-controller-manager"),
            ("Secret", "cloud-config"),
            ("Secret", "mine"),
            ("ConfigMap", "openstack"),
        )
    ),
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "system:cloud-controller-manager"},
        "rules": [],
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast", "labels": {"app.kubernetes.io/part-of": "storage"}},
        "provisioner": "cinder.csi.openstack.org",
    },
)
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "pileus-system"}}
"""It stays: without kube-controller-manager, a namespace that is deleted never ends."""
UNCOUNTED = {"events", "events.events.k8s.io", "leases.coordination.k8s.io"}
"""The API server creates these itself at any time."""


class Cluster:
    """A control plane, and commands as an operator types them."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.config = folder / "cloud.conf"
        self.config.write_text(CONFIG)
        kinds = plane.kubectl("api-resources", "--verbs=list", "--output=name").split()
        self._kinds = ",".join(each for each in kinds if each not in UNCOUNTED)

    def run(self, command: str) -> str:
        """Runs a line of the shell, with kubectl, helm and pileus in the path."""
        folders = (self.plane.binaries, Path(HELM).parent, PROGRAM.parent)
        path = os.pathsep.join((*map(str, folders), os.environ["PATH"]))
        environment = {"PATH": path, "KUBECONFIG": str(self.plane.admin), "HOME": str(self.folder)}
        shell = ("bash", "-euo", "pipefail", "-c", command)
        done = subprocess.run(
            shell, env=environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def objects(self) -> dict[tuple[str, str, str], str]:
        """Returns the UIDs of all objects, by kind, namespace and name."""
        listed = self.plane.kubectl("get", self._kinds, "--all-namespaces", "--output=json")
        metadata = [(each["kind"], each["metadata"]) for each in json.loads(listed)["items"]]
        return {
            (kind, meta.get("namespace", ""), meta["name"]): meta.get("uid", "")
            for kind, meta in metadata
        }

    # -- installations --------------------------------------------------------------------------

    def manifests(self, *flags: str) -> None:
        command = ("pileus", "manifests", "--cloud-provider=openstack", *flags)
        self.run(f"{shlex.join(command)} | kubectl apply -f -")

    def chart(self) -> None:
        values = {
            "cloudProvider": "openstack",
            "cloudConfig": CONFIG,
            "flags": {
                "cluster-cidr": "10.244.0.0/16",
                "use-service-account-credentials": True,
                "webhooks": ["*"],
                "feature-gates": {"CloudControllerManagerWebhook": True},
            },
            "csi": {"enabled": True},
        }
        (self.folder / "values.yaml").write_text(yaml.safe_dump(values))
        self.run(f"helm install pileus {CHART} {HERE} --values=values.yaml")

    def overlay(self) -> None:
        """Two versions of the overlay, with Secrets of different names."""
        example = ROOT / "deploy" / "kustomize"
        self.run(f"cp -r {example} kustomize && kubectl apply -k kustomize/example")
        (self.folder / "kustomize" / "example" / "cloud-config").write_text(CONFIG)
        self.run("kubectl apply -k kustomize/example")


@pytest.fixture
def cluster(clean: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(clean, tmp_path)
    by_label(made)  # what another test has left
    foreign = json.dumps({"apiVersion": "v1", "kind": "List", "items": FOREIGN})
    clean.kubectl("apply", "--filename=-", stdin=json.dumps(NAMESPACE))
    clean.kubectl("apply", "--filename=-", stdin=foreign)
    yield made
    by_label(made)
    clean.kubectl("delete", "--filename=-", "--wait=false", stdin=foreign)


def commands(start: str) -> str:
    """Returns the commands of the page that start so, one below the other."""
    _, _, text = PAGE.read_text().partition("## Remove the objects")
    section, _, _ = text.partition("If the Prometheus operator")
    inline = section.replace("`", "\n    ").splitlines()
    found = [line.strip() for line in inline if line.startswith(f"    {start}")]
    assert found, start
    return "\n".join(found)


def by_label(cluster: Cluster) -> None:
    cluster.run(commands("kubectl delete mutating"))
    cluster.run(commands("kubectl delete deployments"))
    cluster.run(commands("kubectl delete clusterroles"))


def by_helm(cluster: Cluster) -> None:
    cluster.run(commands("helm uninstall"))


def by_kustomize(cluster: Cluster) -> None:
    cluster.run(commands("kubectl delete -k").replace("OVERLAY", "kustomize/example"))
    by_label(cluster)


def fewer_flags_later(cluster: Cluster) -> None:
    cluster.manifests("--cloud-config=cloud.conf", *EVERYTHING)
    cluster.manifests("--cloud-config-secret=mine", "--controllers=cloud-node-controller")


Step = Callable[[Cluster], None]
FORMS = [
    pytest.param(
        Cluster.chart,
        by_helm,
        id="helm",
        marks=pytest.mark.skipif(not HELM, reason="no real helm: PILEUS_HELM is not set"),
    ),
    pytest.param(
        lambda cluster: cluster.manifests("--cloud-config=cloud.conf", *EVERYTHING),
        by_label,
        id="manifests",
    ),
    pytest.param(
        lambda cluster: cluster.manifests(
            "--cloud-config-secret=mine", "--namespace=pileus-system"
        ),
        by_label,
        id="own-secret-and-namespace",
    ),
    pytest.param(
        lambda cluster: cluster.manifests("--cloud-config=cloud.conf", "--daemonset"),
        by_label,
        id="daemonset",
    ),
    pytest.param(lambda cluster: cluster.manifests("--external"), by_label, id="external"),
    pytest.param(fewer_flags_later, by_label, id="flags-of-earlier"),
    pytest.param(Cluster.overlay, by_kustomize, id="kustomize"),
]


@pytest.mark.parametrize(("install", "uninstall"), FORMS)
def test_the_commands_remove_everything_of_pileus_and_nothing_else(
    cluster: Cluster, install: Step, uninstall: Step
) -> None:
    before = cluster.objects()

    install(cluster)
    installed = cluster.objects()
    uninstall(cluster)

    assert len(installed) > len(before)
    assert cluster.objects() == before
