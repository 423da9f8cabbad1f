"""The manifests of `deploy`: linked from the guide, for the right accounts, with limits."""

from pathlib import Path

import pytest
import yaml

from pileus.app.registry import CONTROLLERS

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "run-on-a-cluster.md"
FILES = sorted((ROOT / "deploy").glob("*.yaml"))
ACCOUNT = {"kind": "ServiceAccount", "name": "cloud-controller-manager", "namespace": "kube-system"}
ACCOUNTS = {ACCOUNT["name"], *(names.identity for names in CONTROLLERS.names)}


def test_the_guide_links_each_file():
    text = GUIDE.read_text()

    missing = [file.name for file in FILES if f"](../../deploy/{file.name})" not in text]
    assert missing == []


@pytest.mark.parametrize("file", [pytest.param(file, id=file.name) for file in FILES])
def test_every_binding_is_for_an_account_that_the_manager_uses(file: Path):
    documents = list(yaml.safe_load_all(file.read_text()))

    assert documents
    for document in documents:
        for subject in document.get("subjects", ()):
            assert subject | {"name": ""} == ACCOUNT | {"name": ""}
            assert subject["name"] in ACCOUNTS


def test_each_controller_has_an_account_and_only_their_tokens_can_be_requested():
    documents = [
        document
        for name in ("rbac-own-identities.yaml", "ssh-keys.yaml")
        for document in yaml.safe_load_all((ROOT / "deploy" / name).read_text())
    ]
    shipped = {each["metadata"]["name"] for each in documents if each["kind"] == "ServiceAccount"}
    tokens = [
        rule
        for document in documents
        for rule in document.get("rules", ())
        if "serviceaccounts/token" in rule["resources"]
    ]

    assert shipped == {names.identity for names in CONTROLLERS.names}
    assert {name for rule in tokens for name in rule["resourceNames"]} == shipped
    assert all(rule["resourceNames"] for rule in tokens)


def test_the_deployment_uses_the_account_and_limits_its_memory():
    (deployment,) = yaml.safe_load_all((ROOT / "deploy" / "manager.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]

    assert pod["serviceAccountName"] == ACCOUNT["name"]
    for container in pod["containers"]:
        assert container["resources"]["limits"].keys() == {"memory"}
