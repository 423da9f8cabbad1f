"""Devices and mounts, on loop devices where root allows them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.volumes import devices, mounts
from pileus.volumes.commands import CommandFailed, HostError, run
from pileus.volumes.devices import DeviceMissing, ForeignData, System, find_device
from tests.loop_devices import MIB, ONE_WORKER, loop_device, needs_loop_devices

ID = "0a6b3c6e-7a53-4c6b-9d2e-1f2b3c4d5e6f"

pytestmark = ONE_WORKER


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with loop_device(tmp_path / "vol-0123456789ab.img") as device:
        yield device


# -- finding -----------------------------------------------------------------------------------


def system_with(tmp_path: Path, disks: dict[str, str], links: dict[str, str]) -> System:
    """Returns folders in which the disks show these serials."""
    for name, serial in disks.items():
        (tmp_path / "sys/class/block" / name).mkdir(parents=True)
        (tmp_path / "sys/class/block" / name / "serial").write_text(serial)
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    for name, disk in links.items():
        (tmp_path / "dev/disk/by-id").mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev/disk/by-id" / name).symlink_to(tmp_path / "dev" / disk)
    return System(tmp_path / "dev", tmp_path / "sys")


@pytest.mark.parametrize("link", [f"virtio-{ID[:20]}", f"scsi-0QEMU_QEMU_HARDDISK_{ID}"])
def test_a_device_is_found_by_the_id_of_the_volume(tmp_path: Path, link: str) -> None:
    system = system_with(tmp_path, {"vdb": "", "vdc": ""}, {link: "vdc", f"{link}-part1": "vdb"})

    assert find_device(ID, "/dev/vdb", system) == tmp_path / "dev/vdc"


def test_a_device_is_found_by_its_serial(tmp_path: Path) -> None:
    system = system_with(tmp_path, {"vdb": "another", "vdc": ID[:20]}, {})

    assert find_device(ID, "", system) == tmp_path / "dev/vdc"


@needs_loop_devices
def test_a_disk_that_shows_no_id_is_not_taken(tmp_path: Path, disk: Path) -> None:
    system = system_with(tmp_path, {disk.name: ""}, {})

    assert find_device(ID, str(disk), system) is None


@pytest.mark.parametrize("serial", [ID[:20], ID])
def test_the_header_of_a_scsi_serial_is_not_part_of_it(tmp_path: Path, serial: str) -> None:
    system = system_with(tmp_path, {"sdb": ""}, {})
    page = tmp_path / "sys/class/block/sdb/device/vpd_pg80"
    page.parent.mkdir()
    page.write_bytes(b"\x00\x80\x00" + bytes([len(serial)]) + serial.encode())

    assert find_device(ID, "", system) == tmp_path / "dev/sdb"


def test_a_link_that_was_left_behind_is_not_followed(tmp_path: Path) -> None:
    other = "ffffffff-7a53-4c6b-9d2e-1f2b3c4d5e6f"
    disks = {"vdb": other[:20], "vdc": ID[:20]}
    system = system_with(tmp_path, disks, {f"virtio-{ID[:20]}": "vdb"})

    assert find_device(ID, "", system) == tmp_path / "dev/vdc"
    assert find_device(other, "", system) == tmp_path / "dev/vdb"


def test_no_disk_is_taken_for_a_volume_of_which_only_a_link_is_left(tmp_path: Path) -> None:
    links = {f"virtio-{ID[:20]}": "vdb"}
    system = system_with(tmp_path, {"vdb": "ffffffff-7a53-4c6b-9"}, links)

    assert find_device(ID, "/dev/vdb", system) is None


@needs_loop_devices
def test_a_disk_that_shows_another_id_is_not_taken(tmp_path: Path, disk: Path) -> None:
    assert find_device("vol-0123456789ab", str(disk)) == disk
    assert find_device("vol-ba9876543210", str(disk)) is None
    assert find_device("vol-0123456789ab") == disk


def test_a_directory_is_found_by_its_path(tmp_path: Path) -> None:
    assert find_device("vol-0123456789ab", str(tmp_path)) == tmp_path
    assert find_device("vol-0123456789ab", str(tmp_path / "none")) is None


async def test_a_missing_device_is_reported_after_a_while(tmp_path: Path) -> None:
    with pytest.raises(DeviceMissing, match=f"no disk with the ID of volume {ID}"):
        await devices.wait_for_device(ID, "/dev/none", seconds=30)


# -- formatting --------------------------------------------------------------------------------


@needs_loop_devices
@pytest.mark.real_time
async def test_an_empty_device_is_formatted_once(disk: Path, tmp_path: Path) -> None:
    assert await devices.content(disk) == ""
    assert await devices.make_filesystem(disk, "ext4")
    assert await devices.content(disk) == "ext4"
    await mounts.mount_device(disk, tmp_path / "m", "ext4")
    (tmp_path / "m/file").write_text("data")
    await mounts.unmount(tmp_path / "m")

    assert not await devices.make_filesystem(disk, "ext4")
    await mounts.mount_device(disk, tmp_path / "m", "ext4")
    assert (tmp_path / "m/file").read_text() == "data"


@needs_loop_devices
@pytest.mark.real_time
@pytest.mark.parametrize("place", [0, 512 * 1024, 64 * MIB - 512], ids=["first", "later", "last"])
async def test_a_device_with_any_data_is_never_formatted(disk: Path, place: int) -> None:
    with disk.open("r+b") as out:
        out.seek(place)
        out.write(b"x")
    before = disk.read_bytes()

    with pytest.raises(ForeignData, match="has unknown data instead of ext4: it is not formatted"):
        await devices.make_filesystem(disk, "ext4")

    assert disk.read_bytes() == before


@needs_loop_devices
@pytest.mark.real_time
async def test_a_device_with_another_filesystem_is_not_formatted(disk: Path) -> None:
    await run("mkfs.ext2", "-q", "-F", str(disk))

    with pytest.raises(ForeignData, match="has ext2 instead of ext4"):
        await devices.make_filesystem(disk, "ext4")
    assert await devices.content(disk) == "ext2"


@needs_loop_devices
@pytest.mark.real_time
async def test_formatting_that_was_interrupted_starts_again(disk: Path) -> None:
    with disk.open("r+b") as out:
        out.write(b"half of a filesystem")
        out.seek(-len(devices.NOTE), os.SEEK_END)
        out.write(devices.NOTE)

    assert await devices.make_filesystem(disk, "ext4")

    assert await devices.content(disk) == "ext4"
    with disk.open("rb") as file:
        file.seek(-len(devices.NOTE), os.SEEK_END)
        assert not any(file.read())


async def test_a_device_that_cannot_be_read_is_not_empty(tmp_path: Path) -> None:
    with pytest.raises(HostError):
        await devices.content(tmp_path / "none")


@needs_loop_devices
@pytest.mark.real_time
async def test_a_filesystem_grows_with_its_device(disk: Path, tmp_path: Path) -> None:
    await devices.make_filesystem(disk, "ext4")
    assert devices.filesystem_size(disk, "ext4") == 64 * MIB
    assert not devices.can_grow(disk, "ext4")
    os.truncate(tmp_path / "vol-0123456789ab.img", 128 * MIB)
    await run("losetup", "--set-capacity", str(disk))
    assert devices.can_grow(disk, "ext4")

    await devices.grow_unmounted(disk, "ext4")

    assert devices.filesystem_size(disk, "ext4") == 128 * MIB
    await devices.grow_unmounted(disk, "ext4")


# -- mounts ------------------------------------------------------------------------------------


def test_mountinfo_is_parsed() -> None:
    text = (
        "36 35 98:0 /mnt1 /mnt/a\\040b rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
        "40 35 0:42 / /proc ro - proc none ro\n"
    )

    first, second = mounts.parsed(text)

    assert (first.target, first.root, first.number) == ("/mnt/a b", "/mnt1", (98, 0))
    assert (first.filesystem, first.source, first.is_read_only) == ("ext3", "/dev/root", False)
    assert second.is_read_only


@needs_loop_devices
@pytest.mark.real_time
async def test_mounts_are_idempotent_and_foreign_ones_stay(tmp_path: Path) -> None:
    source, other, target = tmp_path / "source", tmp_path / "other", tmp_path / "a" / "target"
    source.mkdir()
    other.mkdir()
    (source / "file").write_text("data")
    for _ in range(2):
        await mounts.bind(source, target, read_only=True)
    assert (target / "file").read_text() == "data"
    with pytest.raises(OSError, match="Read-only"):
        (target / "file").write_text("changed")
    with pytest.raises(mounts.WrongMount, match="is already mounted read-only, not read-write"):
        await mounts.bind(source, target)
    with pytest.raises(mounts.WrongMount, match="is already a mount of"):
        await mounts.bind(other, target)
    for _ in range(2):
        await mounts.unmount(target)

    assert not target.exists()
    assert (source / "file").read_text() == "data"


@needs_loop_devices
@pytest.mark.real_time
async def test_a_directory_with_content_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target/file").write_text("data")

    with pytest.raises(HostError, match="cannot remove"):
        await mounts.unmount(tmp_path / "target")
    assert (tmp_path / "target/file").exists()


@needs_loop_devices
@pytest.mark.real_time
async def test_a_block_device_is_mounted_at_a_file(disk: Path, tmp_path: Path) -> None:
    target = tmp_path / "block"
    for _ in range(2):
        await mounts.bind(disk, target)
    assert mounts.is_device_file(target, disk)
    await mounts.unmount(target)
    assert not target.exists()


@pytest.mark.real_time
async def test_a_failing_command_says_why() -> None:
    with pytest.raises(CommandFailed, match="ls /none: ls: cannot access '/none': No such file"):
        await run("ls", "/none")
    with pytest.raises(CommandFailed, match="no-such-command: No such file or directory; install"):
        await run("no-such-command")
    with pytest.raises(CommandFailed, match=r"did not end within 0\.1 s"):
        await run("sleep", "60", seconds=0.1)
