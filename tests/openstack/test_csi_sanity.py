"""csi-sanity on the controller part of the driver, with real Cinder and Nova."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.csi.test_sanity import SANITY, openstack_driver, sanity
from tests.openstack.cloud import Project
from tests.openstack.machines import BedVolumesHarness, OnBed, delete_storage

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.extended,
    pytest.mark.skipif(not SANITY, reason="no csi-sanity: run `make test-csi` once"),
]


@pytest.fixture
def storage(empty: Project) -> Iterator[Project]:
    """A project with a network, whose volumes and snapshots are deleted in the end."""
    empty.add_network()
    yield empty
    delete_storage(empty)


async def test_csi_sanity_passes_on_real_services(storage: Project, tmp_path: Path) -> None:
    harness = BedVolumesHarness(OnBed(storage, tmp_path))
    async with openstack_driver(harness, tmp_path):
        found = await sanity(tmp_path, "--ginkgo.skip=Node Service")

    assert found["failed"] == 0
    assert found["passed"] >= 55
    assert harness.built() == {}
