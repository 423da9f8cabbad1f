"""The guide shows the manifests of `deploy` as they are."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "run-on-a-cluster.md"
SHOWN = re.compile(r"^<!-- file: (\S+) -->\n```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILES = sorted((ROOT / "deploy").glob("*.yaml"))
ACCOUNT = {"kind": "ServiceAccount", "name": "cloud-controller-manager", "namespace": "kube-system"}


def test_the_guide_shows_each_file_as_it_is():
    shown = dict(SHOWN.findall(GUIDE.read_text()))

    assert shown == {str(file.relative_to(ROOT)): file.read_text() for file in FILES}


@pytest.mark.parametrize("file", [pytest.param(file, id=file.name) for file in FILES])
def test_every_binding_is_for_the_account_that_the_deployment_uses(file: Path):
    documents = list(yaml.safe_load_all(file.read_text()))

    assert documents
    for document in documents:
        if document["kind"] in {"RoleBinding", "ClusterRoleBinding"}:
            assert document["subjects"] == [ACCOUNT]
        if document["kind"] == "Deployment":
            pod = document["spec"]["template"]["spec"]
            assert pod["serviceAccountName"] == ACCOUNT["name"]
