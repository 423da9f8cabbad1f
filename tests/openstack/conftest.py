"""A real OpenStack for the tests in this folder: one bed for all of them, and a project for each.

Set PILEUS_OPENSTACK to the folder of a running bed (`make testbed-openstack`) to use that one, or
to `start` to start one for the tests. All tests run in one process, since a bed is large.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.openstack_bed.bed import Bed
from tools.openstack_bed.cache import prepare
from tools.openstack_bed.image import build

from pileus.testing.control_plane import ControlPlane
from tests.contract.api.http import Api
from tests.openstack.cloud import Project, project
from tests.openstack.managers import BINARIES, GO, Cluster
from tests.real.sweeping import sweep

VARIABLE = "PILEUS_OPENSTACK"
WITHOUT = f"no OpenStack: {VARIABLE} is not set. Run: make test-openstack"
EXTENDED = "PILEUS_OPENSTACK_EXTENDED"
"""Set: also run the tests that are marked `extended`."""
NOT_EXTENDED = "takes minutes. Run: make test-openstack"

NO_CONTROL_PLANE = f"no real control plane: {BINARIES} is not set (see make test)"
NUMBERS = itertools.count(1)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist has to see the group
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.openstack)
            item.add_marker(pytest.mark.xdist_group("openstack"))
            item.add_marker(pytest.mark.timeout(1800))
            if not os.environ.get(VARIABLE):
                item.add_marker(pytest.mark.skip(reason=WITHOUT))
            if "control_plane" in getattr(item, "fixturenames", ()) and not os.environ.get(
                BINARIES
            ):
                item.add_marker(pytest.mark.skip(reason=NO_CONTROL_PLANE))
            if item.get_closest_marker("extended") and not os.environ.get(EXTENDED):
                item.add_marker(pytest.mark.skip(reason=NOT_EXTENDED))


@pytest.fixture(scope="session")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    given = os.environ[VARIABLE]
    if given == "start":
        with Bed.started(prepare(build), tmp_path_factory.mktemp("bed")) as started:
            yield started
    else:
        yield Bed.running(Path(given))


@pytest.fixture
def empty(bed: Bed) -> Iterator[Project]:
    """A project with nothing in it."""
    with project(bed, f"test-{os.getpid()}-{next(NUMBERS)}") as made:
        yield made


@pytest.fixture
def furnished(empty: Project) -> Project:
    """A project with a network, a router, and three servers in three zones.

    One by one: Nova lists servers that were created in the same second in any order.
    """
    empty.add_network()
    for name in ("node-1", "node-2", "node-3"):
        empty.add_servers(name)
    return empty


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(Path(os.environ[BINARIES]), folder) as started:
        yield started


@pytest.fixture(scope="module")
def cluster(
    control_plane: ControlPlane, bed: Bed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three nodes on servers in three zones, for all tests of a module."""
    sweep(Api.of_kubeconfig(control_plane.admin))
    folder = tmp_path_factory.mktemp("cluster")
    with project(bed, f"test-{os.getpid()}-{next(NUMBERS)}") as made:
        made.add_network()
        made.add_servers("node-1", "node-2", "node-3")
        config = made.cloud.config(folder / "cloud.conf")
        cluster = Cluster(control_plane, made, folder, config)
        cluster.add_nodes("node-1", "node-2", "node-3")
        yield cluster
        sweep(cluster.api)


@pytest.fixture(scope="session")
def go_binary() -> Path:
    if not os.environ.get(GO):
        pytest.skip(f"no Go manager to compare with: {GO} is not set. Run: make test-openstack")
    return Path(os.environ[GO])
