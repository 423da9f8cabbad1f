"""A provider in the classic shape on a real control plane, with the rights of Kubernetes itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import Lab, eventually, running
from tests.real.test_services import add_nodes, add_services, address, services

FLAGS = ("--cloud-provider=lab-ported", "--use-service-account-credentials")
NAMES = ("one", "three", "two")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


@pytest.fixture
def cluster(clean: ControlPlane) -> Iterator[ControlPlane]:
    """Without the Services of this test afterwards."""
    yield clean
    for name in services(clean):
        patch = '{"metadata":{"finalizers":null}}'
        clean.kubectl("patch", "service", name, "--type=merge", "--patch", patch)
        clean.kubectl("delete", "service", name, "--ignore-not-found", "--wait=false")


def calls(lab: Lab) -> list[str]:
    file = lab.folder / "balancer-calls"
    return sorted(file.read_text().splitlines()) if file.exists() else []


def notes(cluster: ControlPlane) -> dict[str, str]:
    return {
        name: service["metadata"].get("annotations", {}).get("pileus.dev/ensured", "")
        for name, service in services(cluster).items()
    }


def test_after_a_restart_unchanged_services_are_not_ensured_and_new_nodes_are_an_update(
    cluster: ControlPlane, lab: Lab
) -> None:
    add_nodes(cluster, "a", "b")
    add_services(cluster, *NAMES)
    with running(cluster, lab, *FLAGS):
        for name in NAMES:
            eventually("an address", lambda name=name: address(cluster, name))
        eventually("notes", lambda: all(notes(cluster).values()))
    assert calls(lab) == [f"ensure {name}" for name in NAMES]
    before = notes(cluster)

    with running(cluster, lab, *FLAGS):
        add_nodes(cluster, "c")
        eventually("updates", lambda: len(calls(lab)) == 6)
        eventually("other notes", lambda: not before.items() & notes(cluster).items())
        cluster.kubectl("delete", "service", "two", "--timeout=60s")

    made = [*(f"ensure {name}" for name in NAMES), *(f"update {name}" for name in NAMES)]
    assert calls(lab) == sorted([*made, "get two", "delete two"])
