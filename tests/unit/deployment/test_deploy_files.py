"""The files in `deploy` are what the code generates, and pods and accounts are safe."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.deploy_files.__main__ import ROOT, files

from pileus import version
from pileus.app.registry import CONTROLLERS
from pileus.deployment.commented import Commented, documents
from pileus.server.settings import ServingOptions
from pileus.settings.declare import flag_of

GENERATED = files()
MANAGER, PROGRAM = "pileus-cloud-controller-manager", "cloud-controller-manager"
NODE_PLUGIN = "pileus-csi-node"
ACCOUNTS = {
    MANAGER,
    *(names.identity for names in CONTROLLERS.names),
    *("pileus-csi-controller", NODE_PLUGIN),
}
YAML = sorted(name for name in GENERATED if name.startswith(("manifests/", "kustomize/")))


def documents_of(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(GENERATED[name]) if each]


@pytest.mark.parametrize("name", GENERATED)
def test_the_file_is_up_to_date(name: str):
    assert (ROOT / name).read_text() == GENERATED[name], "run: make deploy-files"


def test_no_other_manifest_lies_around():
    kept = {"chart/pileus/Chart.yaml", "chart/pileus/values.yaml"}
    found = {
        str(path.relative_to(ROOT))
        for folder in ("chart", "kustomize", "manifests")
        for path in (ROOT / folder).rglob("*.yaml")
        if "example" not in path.parts
    }

    assert found == kept | {name for name in GENERATED if name.endswith(".yaml")}


def test_the_chart_has_the_version_of_the_product():
    chart = yaml.safe_load((ROOT / "chart/pileus/Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (version.PILEUS, version.PILEUS)


@pytest.mark.parametrize("name", YAML)
def test_every_binding_is_for_an_account_that_the_manager_uses(name: str):
    for document in documents_of(name):
        for subject in document.get("subjects", ()):
            assert subject["kind"] == "ServiceAccount"
            assert subject["namespace"] == "kube-system"
            assert subject["name"] in ACCOUNTS


@pytest.mark.parametrize("name", YAML)
def test_no_account_is_shipped_that_other_programs_use(name: str):
    """kube-controller-manager has accounts such as node-controller, too."""
    for document in documents_of(name):
        if document["kind"] == "ServiceAccount":
            assert document["metadata"]["name"].startswith("pileus-")


@pytest.mark.parametrize("name", YAML)
def test_no_rule_has_a_wildcard_or_reads_all_secrets(name: str):
    for document in documents_of(name):
        for rule in document.get("rules", ()):
            words = [word for key in rule for word in rule[key]]
            assert "*" not in words
            assert "secrets" not in rule.get("resources", ()) or rule["resourceNames"]


def test_only_tokens_of_the_controllers_that_run_can_be_requested():
    found = documents_of("manifests/openstack-own-identities.yaml")
    bound = {subject["name"] for each in found for subject in each.get("subjects", ())}
    tokens = [
        rule
        for document in found
        for rule in document.get("rules", ())
        if "serviceaccounts/token" in rule.get("resources", ())
    ]

    assert [set(rule["resourceNames"]) for rule in tokens] == [bound - {MANAGER}]


PODS = [name for name in YAML if "\n  template:\n" in GENERATED[name]]


def workloads(name: str) -> dict[str, dict[str, Any]]:
    """Returns the specs of pods, by the name of their Deployment or DaemonSet."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in documents_of(name)
        if "template" in each.get("spec", {})
    }


@pytest.mark.parametrize("name", PODS)
def test_the_manager_listens_beside_one_of_the_go_framework_on_the_same_host(name: str):
    (manager,) = workloads(name)[MANAGER]["containers"]
    given = dict(word.partition("=")[::2] for word in manager["args"])
    port = int(given["--secure-port"])

    assert port != flag_of(ServingOptions, "port").default
    for probe in ("livenessProbe", "readinessProbe"):
        assert manager[probe]["httpGet"]["port"] == port


LOCKED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@pytest.mark.parametrize("name", PODS)
def test_pods_are_locked_down_and_need_nothing_of_the_cluster(name: str):
    found = workloads(name)
    assert MANAGER in found
    for workload, pod in found.items():
        assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "Default")
        for container in pod["containers"]:
            assert container["resources"]["limits"].keys() == {"memory"}
            assert "ports" not in container  # the scheduler would keep two pods apart
        if workload == NODE_PLUGIN:
            continue
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert all(each["securityContext"] == LOCKED for each in pod["containers"])


def test_only_the_driver_on_nodes_is_privileged():
    pod = workloads("manifests/openstack-csi.yaml")[NODE_PLUGIN]

    others = [each for each in pod["containers"] if each["securityContext"] != LOCKED]
    assert [each["name"] for each in others] == ["driver"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze on the PATH")
def test_systemd_understands_the_unit(tmp_path: Path):
    program = tmp_path / PROGRAM
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / f"{PROGRAM}.service"
    text = GENERATED[f"systemd/{PROGRAM}.service"]
    unit.write_text(text.replace(f"/opt/pileus/bin/{PROGRAM}", str(program)))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_yaml_reads_back_what_was_written():
    value = {
        "text": "a: b",
        "number": "10",
        "truth": "true",
        "empty": "",
        "dashes": ["--x=*,-y", "- z", "#"],
        "lines": "one\ntwo\n",
        "nothing": [],
        "inner": Commented("why\nand more", {"list": [Commented("first", {"a": 1}), {"b": None}]}),
    }

    written = documents([Commented("About.", value), value])

    assert list(yaml.safe_load_all(written)) == [value, value]
    assert "    # first\n    - a: 1\n" in written
