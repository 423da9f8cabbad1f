"""Volumes and snapshots of OpenStack keep the laws on its model."""

from dataclasses import replace

from pileus.providers.openstack.config import BlockStorage
from pileus.testing.conformance.snapshots import SnapshotsLaws
from pileus.testing.conformance.volumes import VolumesLaws
from pileus.testing.virtual_time import VirtualTimeLoop
from tests.contract.openstack_machines import CONFIG, OpenStackVolumesHarness

FEW_VOLUMES = replace(CONFIG, block_storage=BlockStorage(node_volume_attach_limit=3))


def slow() -> OpenStackVolumesHarness:
    """With large pages: a list is refused if the last item of a page is deleted meanwhile."""
    return OpenStackVolumesHarness(seconds=8.0, page=1000)


class TestVolumes(VolumesLaws):
    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        return OpenStackVolumesHarness(config=FEW_VOLUMES)


class TestVolumesWithinAQuota(TestVolumes):
    def make(self):
        return OpenStackVolumesHarness(config=FEW_VOLUMES, quotas={"gigabytes": 1000})


class TestSlowVolumes(TestVolumes):
    def make(self):
        return slow()


class TestSnapshots(SnapshotsLaws):
    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        return OpenStackVolumesHarness()


class TestSlowSnapshots(TestSnapshots):
    def make(self):
        return slow()
