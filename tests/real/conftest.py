"""A real control plane for the tests in this folder, shared by all that one process runs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.contract.api.http import Api
from tests.real.local_cloud import LocalCloud, local_cloud
from tests.real.manager import Lab
from tests.real.sweeping import sweep

BINARIES = "PILEUS_CONTROL_PLANE"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    absent = pytest.mark.skip(
        reason=f"no real control plane: {BINARIES} is not set (see make test)"
    )
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.real_cluster)
            item.add_marker(pytest.mark.timeout(300))
            if not os.environ.get(BINARIES):
                item.add_marker(absent)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(Path(os.environ[BINARIES]), folder) as cluster:
        yield cluster


@pytest.fixture
def clean(control_plane: ControlPlane) -> ControlPlane:
    """The control plane without what earlier tests left there, whichever they were."""
    sweep(Api.of_kubeconfig(control_plane.admin))
    return control_plane


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[LocalCloud]:
    with local_cloud(tmp_path) as served:
        yield served
