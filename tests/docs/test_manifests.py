"""The guide shows the manifests of `deploy` as they are."""

from pathlib import Path

import pytest
import yaml
from tools.shown_files import SHOWN, renewed

from pileus.app.controllers import ALL

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "run-on-a-cluster.md"
FILES = sorted((ROOT / "deploy").glob("*.yaml"))
ACCOUNT = {"kind": "ServiceAccount", "name": "cloud-controller-manager", "namespace": "kube-system"}


def test_the_guide_shows_each_file_as_it_is():
    text = GUIDE.read_text()

    assert text == renewed(text), "run `make docs`"
    assert {name for name, _ in SHOWN.findall(text)} == {
        str(file.relative_to(ROOT)) for file in FILES
    }


@pytest.mark.parametrize("file", [pytest.param(file, id=file.name) for file in FILES])
def test_every_binding_is_for_the_account_that_the_deployment_uses(file: Path):
    documents = list(yaml.safe_load_all(file.read_text()))

    assert documents
    for document in documents:
        if document["kind"] in {"RoleBinding", "ClusterRoleBinding"}:
            first, *others = document["subjects"]
            assert first == ACCOUNT
            assert {one["name"] for one in others} <= {names.identity for names in ALL}
            assert all(one | {"name": ""} == ACCOUNT | {"name": ""} for one in others)
        if document["kind"] == "Deployment":
            pod = document["spec"]["template"]["spec"]
            assert pod["serviceAccountName"] == ACCOUNT["name"]
