"""Every command that the doctor prints as a fix is pasted into the cluster that showed the finding.

It is pasted as a terminal of 80 columns shows it. It has to end the finding, and to leave the
manager's workload and the rights of others as they are. The mark `pastes` names the findings whose
commands a test pastes; the fixture checks that it pastes each of them, and
tests/docs/test_doctor_page.py that no finding is left out.
"""

import io
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from pileus.cli.cluster_command import Request, Runner, run_cluster_command
from pileus.cli.doctor import COMMAND, LABEL, document, fix_lines
from pileus.cli.terminal import Style, Terminal
from pileus.doctor.doctor import diagnose
from pileus.doctor.reading import observe
from pileus.fix import commands_in, parts_of
from pileus.testing.control_plane import ControlPlane
from tests.docs.test_doctor_page import READS
from tests.real.local_cloud import LocalCloud
from tests.real.manager import LAB, Lab, eventually, get, register, running, say_ready
from tests.real.test_doctor import PILEUS, doctor, found, pileus, webhook

HELM = os.environ.get("PILEUS_HELM", "")
DEPLOY = Path(__file__).parents[2] / "deploy"
HERE = "--namespace=kube-system"
NAME = "pileus-cloud-controller-manager"
RULES = {
    "controllers": "*,-cloud-node-lifecycle-controller",
    "cluster-cidr": "10.244.0.0/16",
    "cluster-name": "shop",
    "use-service-account-credentials": "true",
}
FLAGS = tuple(f"--{name}={value}" for name, value in RULES.items())
"""Flags that the doctor is not given: it has to find them in the cluster."""


class Cluster:
    """A cluster with an installed manager. No kubelet starts it."""

    def __init__(self, cluster: ControlPlane, lab: Lab, folder: Path) -> None:
        self.plane, self.lab = cluster, lab
        self.kubectl, self.admin = cluster.kubectl, cluster.admin
        self.binaries, self.folder, self.applied = cluster.binaries, folder, ""
        self.pasted: dict[str, tuple[str, set[str]]] = {}
        """The fix of each finding, and which of its commands were pasted."""

    def install(self) -> None:
        flags = (f"--cloud-config={self.lab.config}", "--image=registry.example/own:1", *FLAGS)
        where = ("--api-server=10.0.0.1:7443", "--replicas=3")
        done = pileus("manifests", "--cloud-provider=lab", *flags, *where, kubeconfig=self.admin)
        assert done.returncode == 0, done.stderr
        self.apply(done.stdout)

    def install_overlay(self) -> None:
        (self.folder / "deploy").symlink_to(DEPLOY)
        names = ["PILEUS_CLOUD_PROVIDER=lab", *(f"PILEUS_CLUSTER_NAME={v}" for v in ("shop",))]
        overlay = {
            "resources": ["deploy/kustomize/base"],
            "configMapGenerator": [
                {"name": NAME, "namespace": "kube-system", "behavior": "merge", "literals": names}
            ],
        }
        (self.folder / "kustomization.yaml").write_text(json.dumps(overlay))
        flag = "--load-restrictor=LoadRestrictionsNone"
        self.apply(self.kubectl("kustomize", flag, str(self.folder)))

    def apply(self, text: str) -> None:
        self.applied = f"{self.applied}\n---\n{text}"
        self.kubectl("apply", "--filename=-", stdin=text)

    def helm(self, *arguments: str | Path, values: dict[str, Any] | None = None) -> str:
        done = subprocess.run(
            [
                HELM,
                *arguments,
                HERE,
                f"--kubeconfig={self.admin}",
                *(("--values=-",) * bool(values)),
            ],
            input=json.dumps(values),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def findings(self, id: str) -> list[dict[str, Any]]:  # noqa: A002 -- as the doctor calls it
        return [each for each in doctor(self.lab, self.admin)[1]["findings"] if each["id"] == id]

    def paste(
        self,
        finding: dict[str, Any],
        number: int = 0,
        kubeconfig: Path | None = None,
        codes: Collection[int] = (0,),
    ) -> str:
        """Run a command of a fix; those after the first one are in its comment."""
        commands = [*commands_in(finding["fix"])]
        pasted = self.pasted.setdefault(finding["id"], (finding["fix"], set()))[1]
        pasted.add(commands[number])
        shown = commands[number] if number else printed(finding["fix"])
        return self.run(shown, kubeconfig, codes)

    def run(self, text: str, kubeconfig: Path | None = None, codes: Collection[int] = (0,)) -> str:
        """Run commands in a shell, as the administrator."""
        tools = self.folder / "bin"
        tools.mkdir(exist_ok=True)
        for name, path in (
            ("kubectl", self.binaries / "kubectl"),
            ("pileus", PILEUS),
            ("helm", HELM),
        ):
            if path and not (tools / name).exists():
                (tools / name).symlink_to(path)
        environment = {
            "PATH": f"{tools}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "KUBECONFIG": str(kubeconfig or self.admin),
            "PYTHONPATH": str(LAB),
        }
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", text],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in codes, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def workload(self) -> dict[str, Any]:
        found = json.loads(self.kubectl("get", "deployment", NAME, HERE, "--output=json"))
        return {"spec": found["spec"], "generation": found["metadata"]["generation"]}

    def clear(self) -> None:
        if HELM:
            for release in self.helm("list", "--short").split():
                self.helm("uninstall", release)
        if self.applied:
            self.kubectl(
                "delete", "--ignore-not-found", "--wait=false", "--filename=-", stdin=self.applied
            )


def printed(fix: str) -> str:
    """Returns the first command of a fix, with the comment after it, as a terminal shows it."""
    advice, _, _ = parts_of(fix)
    lines = fix_lines(fix.removeprefix(advice).lstrip(), Style(width=80), margin=6)
    return "\n".join(lines).removeprefix(LABEL)


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, clean: ControlPlane, lab: Lab, tmp_path: Path
) -> Iterator[Cluster]:
    made = Cluster(clean, lab, tmp_path)
    yield made
    made.clear()
    marks = request.node.iter_markers("pastes")
    assert made.pasted.keys() == {name for mark in marks for name in mark.args}
    for fix, commands in made.pasted.values():
        assert {each for each in commands_in(fix) if not READS.match(each)} <= commands


def install_chart(cluster: Cluster) -> None:
    flags: dict[str, Any] = {
        **RULES,
        "controllers": RULES["controllers"].split(","),
        "use-service-account-credentials": True,
    }
    values = {"cloudProvider": "lab", "cloudConfig": "x", "flags": flags}
    cluster.helm("install", "pileus", DEPLOY / "chart" / "pileus", values=values)


def bindings(cluster: Cluster) -> list[str]:
    """Returns the ClusterRoleBindings of the manager."""
    names = cluster.kubectl("get", "clusterrolebindings", "--output=name").split()
    return [one for one in names if NAME in one]


NEEDS_HELM = pytest.mark.skipif(not HELM, reason="no real helm: PILEUS_HELM is not set")
WAYS = [
    pytest.param(Cluster.install, id="manifests"),
    pytest.param(Cluster.install_overlay, id="kustomize"),
    pytest.param(install_chart, id="chart", marks=NEEDS_HELM),
]


@pytest.mark.pastes("right-missing")
@pytest.mark.parametrize("install", WAYS)
def test_missing_rights_are_restored_and_the_manager_keeps_its_flags(
    cluster: Cluster, install: Callable[[Cluster], None]
) -> None:
    install(cluster)
    workload = cluster.workload()
    assert not cluster.findings("right-missing")
    assert not cluster.findings("right-unneeded")
    cluster.kubectl("delete", "clusterrolebinding", f"{NAME}:service-lb-controller")
    cluster.kubectl("delete", "role", f"{NAME}:leader-election", HERE)

    findings = cluster.findings("right-missing")
    assert len({each["fix"] for each in findings}) == 1
    cluster.paste(findings[0])

    assert not cluster.findings("right-missing")
    assert not cluster.findings("right-unneeded")
    assert cluster.workload() == workload


@pytest.mark.pastes("right-missing")
@NEEDS_HELM
def test_a_release_can_be_upgraded_after_its_rights_were_restored(cluster: Cluster) -> None:
    """The fix restores every binding, also those whose absence shows in no missing right.

    The API server binds roles of its own to the accounts of the controllers.
    """
    install_chart(cluster)
    before = bindings(cluster)
    cluster.kubectl("delete", "clusterrolebinding", f"{NAME}:service-lb-controller")
    assert not cluster.findings("right-missing")
    cluster.kubectl("delete", "clusterrolebinding", NAME)

    cluster.paste(cluster.findings("right-missing")[0])

    assert bindings(cluster) == before
    cluster.helm("upgrade", "pileus", DEPLOY / "chart" / "pileus", "--reuse-values")
    missing = cluster.findings("right-missing")
    cluster.helm("uninstall", "pileus")
    assert not missing
    assert bindings(cluster) == []


@pytest.mark.pastes("controller-account-missing")
def test_missing_accounts_of_controllers_are_created(cluster: Cluster) -> None:
    cluster.install()
    cluster.kubectl("delete", "serviceaccount", "node-controller", HERE, "--ignore-not-found")
    (finding,) = cluster.findings("controller-account-missing")

    cluster.paste(finding)

    left = cluster.findings("controller-account-missing")
    cluster.run(finding["fix"].replace("create", "delete"))
    assert finding["severity"] == "note"
    assert not left


WEBHOOKS = ("--webhooks=*", "--feature-gates=CloudControllerManagerWebhook=true")


@pytest.mark.pastes("webhook-not-registered")
def test_webhooks_are_registered_and_nothing_else_is_changed(cluster: Cluster) -> None:
    done = pileus("manifests", "--cloud-provider=lab", *WEBHOOKS, kubeconfig=cluster.admin)
    cluster.apply(done.stdout)
    workload = cluster.workload()
    assert not cluster.findings("webhook-not-registered")
    cluster.kubectl("delete", "mutatingwebhookconfiguration", "cloud-controller-manager-webhook")
    (finding,) = cluster.findings("webhook-not-registered")

    cluster.paste(finding)

    assert not cluster.findings("webhook-not-registered")
    assert cluster.workload() == workload


BROAD: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "system:cloud-controller-manager"},
    "rules": [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"]},
    ],
}
"""A part of the role of the Go manager's chart."""
OURS = {"kind": "ServiceAccount", "name": NAME, "namespace": "kube-system"}
OTHER = {**OURS, "name": "other"}


def binding(*subjects: dict[str, str]) -> dict[str, Any]:
    name = BROAD["metadata"]["name"]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    return {
        "apiVersion": BROAD["apiVersion"],
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": role,
        "subjects": list(subjects),
    }


@pytest.mark.pastes("right-unneeded")
@pytest.mark.parametrize("subjects", [(OURS,), (OTHER, OURS)], ids=["alone", "with-another"])
def test_the_rights_of_another_manager_are_reported_with_their_binding_and_revoked(
    cluster: Cluster, subjects: tuple[dict[str, str], ...]
) -> None:
    cluster.install()
    cluster.apply(yaml.safe_dump_all([BROAD, binding(*subjects)]))
    workload = cluster.workload()

    (finding,) = cluster.findings("right-unneeded")
    cluster.paste(finding)

    assert finding["subject"] == f"service account kube-system/{NAME}"
    assert "get, list secrets; * nodes" in finding["what"]
    assert "by ClusterRoleBinding system:cloud-controller-manager" in finding["what"]
    assert not cluster.findings("right-unneeded")
    assert not cluster.findings("right-missing")
    assert cluster.workload() == workload
    if len(subjects) > 1:
        asks = ("auth", "can-i", "get", "secrets", "--as=system:serviceaccount:kube-system:other")
        assert cluster.kubectl(*asks).strip() == "yes"


@pytest.mark.pastes("right-unneeded")
def test_a_role_of_the_manager_that_was_widened_is_narrowed_again(cluster: Cluster) -> None:
    cluster.install()
    more = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    patch = json.dumps([{"op": "add", "path": "/rules/-", "value": more}])
    cluster.kubectl("patch", "clusterrole", NAME, "--type=json", f"--patch={patch}")

    (finding,) = cluster.findings("right-unneeded")
    cluster.paste(finding)

    assert not cluster.findings("right-unneeded")
    assert not cluster.findings("right-missing")


@pytest.mark.pastes("right-unneeded")
def test_the_role_of_a_controller_that_was_turned_off_is_reported(cluster: Cluster) -> None:
    cluster.install()
    name = f"{NAME}:node-ipam-controller"
    text = (DEPLOY / "kustomize/components/node-ipam-controller/rbac.yaml").read_text()
    cluster.apply(text)

    (finding,) = cluster.findings("right-unneeded")
    cluster.paste(finding)

    assert f"by ClusterRoleBinding {name}" in finding["what"]
    assert not cluster.findings("right-unneeded")


@pytest.mark.parametrize(
    "differs",
    [
        pytest.param(False, marks=pytest.mark.pastes("csi-driver-missing"), id="missing"),
        pytest.param(True, marks=pytest.mark.pastes("csi-driver-differs"), id="differs"),
    ],
)
def test_the_csi_driver_is_installed_beside_the_manager_which_stays_as_it_is(
    cluster: Cluster, differs: bool
) -> None:
    driver, storage = "lab.csi.pileus.dev", {"apiVersion": "storage.k8s.io/v1"}
    fast = {**storage, "kind": "StorageClass", "metadata": {"name": "lab"}, "provisioner": driver}
    unfit = {
        **storage,
        "kind": "CSIDriver",
        "metadata": {"name": driver},
        "spec": {"attachRequired": False},
    }
    cluster.install()
    cluster.apply(yaml.safe_dump_all([fast, unfit] if differs else [fast]))
    workload = cluster.workload()

    (finding,) = cluster.findings("csi-driver-differs" if differs else "csi-driver-missing")
    made = cluster.run(finding["fix"].partition(" | ")[0].split(" && ")[-1])
    cluster.applied += f"\n---\n{made}"
    cluster.paste(finding)

    assert not cluster.findings("csi-driver-differs") + cluster.findings("csi-driver-missing")
    assert cluster.workload() == workload
    node = json.loads(cluster.kubectl("get", "daemonset", "pileus-csi-node", HERE, "--output=json"))
    (container,) = node["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/own:1"


@NEEDS_HELM
@pytest.mark.parametrize(
    "id_",
    [
        pytest.param("csi-driver-missing", marks=pytest.mark.pastes()),
        pytest.param("csi-driver-differs", marks=pytest.mark.pastes("csi-driver-differs")),
    ],
)
def test_the_csi_driver_of_a_release_is_installed_by_helm_as_the_fix_says(
    cluster: Cluster, id_: str
) -> None:
    driver, storage = "lab.csi.pileus.dev", {"apiVersion": "storage.k8s.io/v1"}
    fast = {**storage, "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": driver}
    unfit = {
        **storage,
        "kind": "CSIDriver",
        "metadata": {"name": driver},
        "spec": {"attachRequired": False},
    }
    install_chart(cluster)
    cluster.apply(yaml.safe_dump_all([fast, unfit] if id_ == "csi-driver-differs" else [fast]))
    workload = cluster.workload()

    (finding,) = cluster.findings(id_)
    assert "the Helm release pileus in namespace kube-system" in finding["fix"]
    (value,) = re.findall(r"csi\.\w+=true", finding["fix"])
    chart = DEPLOY / "chart" / "pileus"
    if id_ == "csi-driver-differs":
        cluster.paste(finding)
    cluster.helm("upgrade", "pileus", chart, "--reuse-values", f"--set={value}")

    assert not cluster.findings("csi-driver-missing") + cluster.findings("csi-driver-differs")
    assert cluster.workload() == workload


@pytest.mark.pastes("lease-missing")
def test_a_manager_that_is_not_installed_is_installed_with_the_flags_of_the_doctor(
    cluster: Cluster,
) -> None:
    flags = ("--cloud-provider=lab", f"--cloud-config={cluster.lab.config}", *FLAGS)
    report = pileus("doctor", *flags, "--output=json", kubeconfig=cluster.admin)
    (finding,) = (
        each for each in json.loads(report.stdout)["findings"] if each["id"] == "lease-missing"
    )

    cluster.applied = cluster.run(finding["fix"].partition(" | ")[0])
    cluster.paste(finding)

    assert set(FLAGS) <= set(
        cluster.workload()["spec"]["template"]["spec"]["containers"][0]["args"]
    )
    assert not cluster.findings("right-missing")
    assert not cluster.findings("right-unneeded")


@pytest.mark.pastes("lease-missing")
def test_a_manager_that_was_scaled_down_is_started_with_its_own_flags(cluster: Cluster) -> None:
    cluster.install()
    cluster.kubectl("scale", "deployment", NAME, HERE, "--replicas=0")
    before = cluster.workload()["spec"]

    (finding,) = cluster.findings("lease-missing")
    cluster.paste(finding)

    after = cluster.workload()["spec"]
    assert after == {**before, "replicas": 2}


def test_a_manager_that_does_not_lead_is_looked_at_and_not_changed(cluster: Cluster) -> None:
    cluster.install()
    before = cluster.workload()

    (finding,) = cluster.findings("lease-missing")
    command = shlex.split(finding["fix"].partition("   # ")[0])

    assert command[:3] == ["kubectl", HERE, "logs"]
    assert cluster.workload() == before


@pytest.mark.pastes("doctor-right-missing")
def test_the_rights_of_the_doctor_are_granted_to_one_user_after_the_other(
    cluster: Cluster, clean: ControlPlane
) -> None:
    cluster.applied = yaml.safe_dump_all(doctors_roles())
    for name in ("jane", "joe", "jane"):
        user = clean.user(name)
        clean.kubectl("delete", "clusterrole", "pileus-doctor-list", "--ignore-not-found")

        _, before = doctor(cluster.lab, user)
        (missing,) = (one for one in before["findings"] if one["id"] == "doctor-right-missing")
        cluster.paste(missing)
        _, after = doctor(cluster.lab, user)

        assert missing["subject"] == f"user {name}"
        assert all(check["made"] for check in after["checks"]), after["checks"]
        assert "doctor-right-missing" not in found(after)


def doctors_roles() -> Iterator[dict[str, Any]]:
    """Yields the objects that a test has to delete."""
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        for verb in ("list", "get", "create", "get-list"):
            name = {"name": f"pileus-doctor-{verb}"}
            yield {"apiVersion": BROAD["apiVersion"], "kind": kind, "metadata": name}


@pytest.mark.pastes("right-unneeded", "taint-left")
def test_a_fix_acts_on_the_cluster_and_the_cloud_that_the_doctor_was_given(
    cluster: Cluster,
) -> None:
    """The shell in which it is pasted has another cluster."""
    cluster.install()
    cluster.apply(yaml.safe_dump_all([BROAD, binding(OURS)]))
    register_ready(cluster, "one")
    both, other = two_contexts(cluster)
    flags = ("--cloud-provider=lab", f"--cloud-config={cluster.lab.config}")
    where = (f"--kubeconfig={both}", "--context=looked-at", "--output=json")

    report = json.loads(pileus("doctor", *flags, *where, kubeconfig=other).stdout)
    findings = {each["id"]: each for each in report["findings"]}
    cluster.paste(findings["right-unneeded"], kubeconfig=other)
    text = cluster.paste(findings["taint-left"], kubeconfig=other)

    assert not cluster.findings("right-unneeded")
    assert text.startswith("Node one: ")
    assert f"run: kubectl --kubeconfig={both} --context=looked-at get lease " in text


def register_ready(cluster: Cluster, name: str) -> None:
    """Registers a node that is ready and has the taint of a node whose machine is gone."""
    register(cluster.plane, name)
    say_ready(cluster.plane, "True", name)
    cluster.kubectl("taint", "node", name, "pileus.dev/instance-gone=:NoSchedule")


def two_contexts(cluster: Cluster) -> tuple[Path, Path]:
    """Returns a kubeconfig with the cluster beside another that is current, and the other's."""
    given = yaml.safe_load(cluster.admin.read_text())
    (used,) = given["contexts"]
    away = {"name": "away", "cluster": {"server": "https://127.0.0.1:9"}}
    current = {"name": "away", "context": {"cluster": "away", "user": used["context"]["user"]}}
    whole = {
        **given,
        "clusters": [*given["clusters"], away],
        "contexts": [{**used, "name": "looked-at"}, current],
        "current-context": "away",
    }
    both, other = cluster.folder / "both.kubeconfig", cluster.folder / "other.kubeconfig"
    both.write_text(yaml.safe_dump(whole))
    other.write_text(yaml.safe_dump({**whole, "contexts": [current]}))
    return both, other


@pytest.mark.pastes("go-manager-marks")
def test_a_service_of_the_go_manager_is_planned(cluster: Cluster) -> None:
    mark = {"loadbalancer.openstack.org/load-balancer-id": "lb-1"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default", "annotations": mark},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }
    cluster.install()
    cluster.apply(yaml.safe_dump(service))
    before = cluster.workload()

    (finding,) = cluster.findings("go-manager-marks")
    cluster.paste(finding, codes=(0, 2))

    assert cluster.workload() == before


@pytest.mark.pastes("node-of-another-provider")
def test_a_node_of_another_provider_is_shown_and_not_deleted(cluster: Cluster) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "foreign"},
        "spec": {"providerID": "aws:///eu-1a/i-1"},
    }
    cluster.apply(yaml.safe_dump(node))

    (finding,) = cluster.findings("node-of-another-provider")

    assert "providerID: aws:///eu-1a/i-1" in cluster.paste(finding)
    assert cluster.kubectl("get", "nodes", "--output=name").split() == ["node/foreign"]


@pytest.mark.pastes("lease-left")
def test_old_leases_of_other_managers_are_deleted(cluster: Cluster) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "aws-cloud-controller-manager", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "m1_1",
            "leaseDurationSeconds": 15,
            "renewTime": "2020-01-01T00:00:00.000000Z",
        },
    }
    cluster.apply(yaml.safe_dump(lease))

    (finding,) = cluster.findings("lease-left")
    cluster.paste(finding)

    assert "lease-left" not in found(doctor(cluster.lab, cluster.admin)[1])


@pytest.mark.pastes("webhook-without-endpoints")
def test_a_webhook_that_does_not_answer_is_deleted(cluster: Cluster) -> None:
    cluster.apply(yaml.safe_dump(webhook()))

    (finding,) = cluster.findings("webhook-without-endpoints")
    cluster.paste(finding)
    assert cluster.findings("webhook-without-endpoints"), "the first command only reads"
    cluster.paste(finding, 1)

    assert not cluster.findings("webhook-without-endpoints")


def aged_findings(cluster: Cluster, id_: str) -> list[dict[str, Any]]:
    """Returns the findings of a doctor whose clock is five minutes ahead of that of the nodes."""
    found: list[dict[str, Any]] = []

    def work(request: Request, run: Runner) -> int:
        seen = run(observe(request.config, request.world, "", ()))
        aged = replace(seen, now=seen.now + timedelta(minutes=5))
        found.extend(document(diagnose(aged))["findings"])  # type: ignore[arg-type]
        return 0

    terminal = Terminal(io.StringIO(), io.StringIO(), {"KUBECONFIG": str(cluster.admin)})
    assert run_cluster_command("pileus doctor", COMMAND, (), terminal, work) == 0
    return [each for each in found if each["id"] == id_]


@pytest.mark.pastes("kubelet-flag-missing")
def test_nodes_that_never_had_the_taint_are_initialized_once_they_get_it(cluster: Cluster) -> None:
    """The first half of the fix, the kubelet's flag, changes no node that is registered."""
    names = ("one", "two")
    for name in names:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        cluster.apply(yaml.safe_dump(node))

    (finding,) = aged_findings(cluster, "kubelet-flag-missing")
    with running(cluster.plane, cluster.lab) as manager:
        manager.wait_leading()
        cluster.paste(finding)
        for name in names:
            eventually("initialized", lambda name=name: provider_id(cluster, name))

    assert finding["subject"] == "Nodes one, two"
    assert not aged_findings(cluster, "kubelet-flag-missing")
    assert not aged_findings(cluster, "node-uninitialized")


def provider_id(cluster: Cluster, name: str) -> str:
    return get(cluster.plane, f"/api/v1/nodes/{name}")["spec"].get("providerID", "")


@pytest.mark.pastes("quota-used-up")
def test_a_quota_of_the_local_cloud_is_raised_in_the_cloud_that_the_doctor_was_given(
    cluster: Cluster, cloud: LocalCloud
) -> None:
    """The shell in which it is pasted names no cloud."""
    cloud.pileus("instances", "create", "one")
    cloud.pileus("quota", "set", "instances=1")

    def findings() -> list[dict[str, Any]]:
        report = pileus("doctor", *cloud.flags, "--output=json", kubeconfig=cluster.admin)
        return [each for each in json.loads(report.stdout)["findings"] if "quota" in each["id"]]

    (finding,) = findings()
    cluster.paste(finding)

    assert findings() == []
    limits = {each["name"]: each["limit"] for each in cloud.show("quota")}
    assert limits["instances"] == 2
