"""Real volumes of the local cloud: the laws hold for them, and their data follows the state."""

import asyncio
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.cloud.errors import Conflict, Misconfigured
from pileus.testing.conformance.snapshots import SnapshotsLaws
from pileus.testing.conformance.volumes import VolumesLaws
from pileus.testing.virtual_time import VirtualTimeLoop
from pileus_lab.local.cloud import LocalCloud
from pileus_lab.local.disks import GIB, Disks, Kind
from pileus_lab.local.journal import open_journal
from pileus_lab.local.model.machines import CreateMachine, DeleteMachine
from pileus_lab.local.model.volumes import (
    AttachVolume,
    CreateVolume,
    DeleteVolume,
    DetachVolume,
    ResizeVolume,
)
from tests.loop_devices import (
    ONE_WORKER,
    detach,
    devices_of,
    needs_loop_devices,
    release_leftovers,
)
from tests.unit.providers.local.clouds import local_cloud
from tests.unit.providers.local.test_conformance import Disks as Harness

pytestmark = ONE_WORKER


class OnDirectories:
    """A cloud whose volumes are directories."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.path = tmp_path

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualTimeLoop()

    def make(self) -> Harness:
        return Harness(local_cloud(disks=Disks.open(self.path, Kind.DIRECTORY)))


class TestVolumes(OnDirectories, VolumesLaws):
    pass


class TestSnapshots(OnDirectories, SnapshotsLaws):
    pass


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    release_leftovers()
    found = Disks.open(tmp_path / "volumes", Kind.LOOP)
    yield found
    for file in found.folder.iterdir():
        detach(file)


def until_detached(path: Path) -> None:
    """The kernel detaches a device when the last process closes it."""
    for _ in range(100):
        if not devices_of(path):
            return
        threading.Event().wait(0.05)
    raise AssertionError(f"{path} is still attached")


async def attached(cloud: LocalCloud) -> tuple[str, str]:
    """Returns a machine and a volume that is attached to it."""
    machine = (await cloud.operate(CreateMachine(name="n1"))).id
    volume = (await cloud.operate(CreateVolume(name="data", size_gib=1))).id
    await cloud.operate(AttachVolume(volume=volume, machine=machine))
    return machine, volume


@needs_loop_devices
async def test_a_volume_is_a_sparse_file_and_a_loop_device(disks: Disks) -> None:
    cloud = local_cloud(disks=disks)
    machine, volume = await attached(cloud)
    file = disks.path(volume)

    device = cloud.state.volumes[volume].device
    assert devices_of(file) == [device]
    assert file.stat().st_size == GIB
    assert file.stat().st_blocks == 0
    await cloud.operate(ResizeVolume(volume=volume, size_gib=2))
    with Path(device).open("rb") as opened:
        assert opened.seek(0, os.SEEK_END) == 2 * GIB
    await cloud.operate(DetachVolume(volume=volume, machine=machine))
    assert not devices_of(file)
    await cloud.operate(DeleteVolume(volume=volume))
    assert not file.exists()


@needs_loop_devices
async def test_a_device_in_use_is_neither_detached_nor_lost(disks: Disks) -> None:
    cloud = local_cloud(disks=disks)
    machine, volume = await attached(cloud)
    before = cloud.state
    opened = os.open(before.volumes[volume].device, os.O_RDONLY | os.O_EXCL)
    try:
        for operation in (
            DetachVolume(volume=volume, machine=machine),
            DeleteMachine(machine=machine),
        ):
            with pytest.raises(Conflict, match="is in use: unmount /dev/loop"):
                await cloud.operate(operation)
        assert cloud.state == before
    finally:
        os.close(opened)


@needs_loop_devices
async def test_devices_are_attached_again_after_a_restart_of_the_machine(
    disks: Disks, tmp_path: Path
) -> None:
    with open_journal(tmp_path / "state") as journal:
        cloud = local_cloud(journal=journal, disks=disks)
        _, volume = await attached(cloud)
        subprocess.run(["losetup", "--detach", cloud.state.volumes[volume].device], check=True)
        until_detached(disks.path(volume))

        again = local_cloud(journal=journal, disks=disks)

        assert devices_of(disks.path(volume)) == [again.state.volumes[volume].device]


def test_loop_devices_that_cannot_be_had_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(Misconfigured, match='volumeKind "loop" needs root'):
        Disks.open(tmp_path, Kind.LOOP)
    assert not Disks.open(tmp_path).is_loop
