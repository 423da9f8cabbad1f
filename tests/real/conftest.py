"""A real control plane for the tests in this folder: one, shared by all of them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane

BINARIES = "PILEUS_CONTROL_PLANE"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    absent = pytest.mark.skip(
        reason=f"no real control plane: {BINARIES} is not set (see make test)"
    )
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.real_cluster)
            item.add_marker(pytest.mark.xdist_group("real"))
            item.add_marker(pytest.mark.timeout(300))
            if not os.environ.get(BINARIES):
                item.add_marker(absent)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(Path(os.environ[BINARIES]), folder) as cluster:
        yield cluster


@pytest.fixture
def clean(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane without nodes, events and leases of earlier tests."""
    yield control_plane
    for things in ("nodes", "events --all-namespaces", "leases --namespace=kube-system"):
        control_plane.kubectl("delete", *things.split(), "--all", "--wait=false")
