"""The commands of guides that need an OpenStack, run against a real one.

The session of a page has a control plane (`KUBECONFIG`), three servers that are registered as
nodes, a `cloud.conf` for their project, and the client `openstack`; if it says
`<!-- needs: the go manager -->`, also the program `openstack-cloud-controller-manager`. Blocks in
comments of the page are run as well: they do what a reader has done before, or does by other means.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.docs.test_pages import BINARIES, NEEDS_OPENSTACK, ROOT, matches, perform, steps_of
from tests.openstack.cloud import Project

NEEDS_GO = "<!-- needs: the go manager -->"
GO_MANAGER = "PILEUS_GO_OPENSTACK_CCM"


def pages() -> Iterator[object]:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text()
        needs_go = NEEDS_GO in text
        absent = pytest.mark.skipif(
            needs_go and not os.environ.get(GO_MANAGER), reason=f"{GO_MANAGER} is not set"
        )
        if NEEDS_OPENSTACK in text:
            marks = [absent, *([pytest.mark.extended] if needs_go else [])]
            yield pytest.param(page, id=page.stem, marks=marks)


TAINT = {
    "key": "node.cloudprovider.kubernetes.io/uninitialized",
    "value": "true",
    "effect": "NoSchedule",
}


@pytest.mark.real_time
@pytest.mark.real_cluster
@pytest.mark.skipif(not os.environ.get(BINARIES), reason=f"no control plane: {BINARIES} is not set")
@pytest.mark.parametrize("page", list(pages()))
def test_the_commands_of_a_guide_work(page: Path, furnished: Project, tmp_path: Path) -> None:
    steps = steps_of(page.read_text())
    furnished.cloud.config(tmp_path / "cloud.conf")
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    with ControlPlane(Path(os.environ[BINARIES]), tmp_path / ".cluster") as cluster:
        environment = surroundings(furnished, cluster, tmp_path)
        register(furnished, environment)
        performed = perform(steps, tmp_path, environment)

    for step, done in zip(steps, performed, strict=False):
        shown = f"$ {step.command}\n{done.printed}"
        assert done.code == 0, shown
        assert not step.expected or matches(step.expected, done.printed), shown
    assert len(performed) == len(steps)


def surroundings(project: Project, cluster: ControlPlane, folder: Path) -> dict[str, str]:
    programs = folder / ".bin"
    programs.mkdir()
    (programs / "openstack").symlink_to(project.bed.venv / "bin" / "openstack")
    if go_manager := os.environ.get(GO_MANAGER):
        (programs / "openstack-cloud-controller-manager").symlink_to(go_manager)
    path = (programs, os.environ[BINARIES], Path(sys.executable).parent, os.environ["PATH"])
    return os.environ | {
        "HOME": str(folder),
        "COLUMNS": "120",
        "PATH": os.pathsep.join(map(str, path)),
        "KUBECONFIG": str(cluster.admin),
        "PILEUS_SECURE_PORT": "0",
        "OS_AUTH_URL": project.bed.auth_url,
        "OS_USERNAME": project.cloud.user,
        "OS_PASSWORD": project.cloud.password,
        "OS_PROJECT_NAME": project.cloud.project_name,
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_ID": "default",
        "OS_IDENTITY_API_VERSION": "3",
    }


def register(project: Project, environment: dict[str, str]) -> None:
    """Register the servers as nodes, as kubelets with an external cloud provider do."""
    for number, name in enumerate(project.servers, 1):
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {"taints": [TAINT], "podCIDR": f"10.244.{number}.0/24"},
        }
        kubectl = ["kubectl", "create", "--filename=-"]
        given = json.dumps(node)
        subprocess.run(kubectl, env=environment, input=given, text=True, check=True)
