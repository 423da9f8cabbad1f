"""Devices and mounts, on loop devices where root allows them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.volumes import devices, mounts
from pileus.volumes.commands import CommandFailed, HostError, run
from pileus.volumes.devices import DeviceMissing, ForeignData, System, find_device
from tests.loop_devices import (
    MIB,
    ONE_WORKER,
    devices_of,
    loop_device,
    needs_loop_devices,
    release,
    release_leftovers,
)

ID = "0a6b3c6e-7a53-4c6b-9d2e-1f2b3c4d5e6f"

pytestmark = ONE_WORKER


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with loop_device(tmp_path / "vol-0123456789ab.img") as device:
        yield device


@pytest.fixture(autouse=True)
def nothing_stays_mounted(tmp_path: Path) -> Iterator[None]:
    yield
    release(tmp_path)


@needs_loop_devices
def test_what_a_killed_run_left_behind_is_removed(tmp_path: Path) -> None:
    ended, running = (tmp_path / f"pytest-of-x/pytest-{number}/test" for number in (1, 2))
    for folder in (ended, running):
        folder.mkdir(parents=True)
        (folder / "disk.img").write_bytes(bytes(MIB))
        subprocess.run(["losetup", "--find", str(folder / "disk.img")], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder / ".")], check=True)
    (running.parent / ".lock").write_text(str(os.getpid()))
    (ended.parent / ".lock").write_text("4194305")  # more than the kernel gives to a process

    release_leftovers.__wrapped__()

    assert mounts.mount_at(ended) is None
    assert devices_of(ended / "disk.img") == []
    assert mounts.mount_at(running) is not None
    assert len(devices_of(running / "disk.img")) == 1


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


@pytest.mark.parametrize(
    ("link", "serial"),
    [
        ("scsi-0ACME_Volume_4711", "4711"),
        ("scsi-0ACME_Volume_pvc-shop", "pvc-shop"),
        ("virtio-4711", "4711"),
    ],
)
def test_a_link_of_the_cloud_is_followed_to_the_disk_with_the_serial_it_names(
    tmp_path: Path, link: str, serial: str
) -> None:
    system = system_with(tmp_path, {"sda": "", "sdb": serial}, {link: "sdb"})

    assert find_device("7", str(tmp_path / "dev/disk/by-id" / link), system) == tmp_path / "dev/sdb"
    assert find_device(ID, str(tmp_path / "dev/disk/by-id" / link), system) == tmp_path / "dev/sdb"


@pytest.mark.parametrize(
    ("hint", "serial"),
    [
        pytest.param("disk/by-id/scsi-0ACME_Volume_4711", "4712", id="left behind"),
        pytest.param("disk/by-id/scsi-0ACME_Volume_4711", "", id="no serial"),
        pytest.param("disk/by-id/scsi-0ACME_Volume_4711", "11", id="the end of another serial"),
        pytest.param("disk/by-id/scsi-0ACME_Volume_4711-part1", "4711-part1", id="partition"),
        pytest.param("disk/by-path/scsi-0ACME_Volume_4711", "4711", id="of a place"),
        pytest.param("disk/by-id/none_4711", "4711", id="missing"),
        pytest.param("sdb", "", id="a place without serial"),
        pytest.param("sdb", "4711", id="a place"),
        pytest.param("disk/by-id/../../sdb", "4711", id="a place by a detour"),
    ],
)
def test_a_path_that_does_not_prove_its_disk_is_not_taken(
    tmp_path: Path, hint: str, serial: str
) -> None:
    """A stale path leads to the disk that was attached there before."""
    links = {"scsi-0ACME_Volume_4711": "sdb", "scsi-0ACME_Volume_4711-part1": "sdb"}
    system = system_with(tmp_path, {"sdb": serial}, links)
    path = tmp_path / "dev/disk/by-path/scsi-0ACME_Volume_4711"
    path.parent.mkdir()
    path.symlink_to(tmp_path / "dev/sdb")

    assert find_device("7", str(tmp_path / "dev" / hint), system) is None


@needs_loop_devices
def test_a_disk_that_shows_another_id_is_not_taken(tmp_path: Path, disk: Path) -> None:
    assert find_device("vol-0123456789ab", str(disk)) == disk
    assert find_device("vol-ba9876543210", str(disk)) is None
    assert find_device("vol-0123456789ab") == disk


def test_a_directory_is_found_by_its_path_if_it_has_the_name_of_the_volume(tmp_path: Path) -> None:
    folder = tmp_path / "vol-0123456789ab"
    folder.mkdir()

    assert find_device("vol-0123456789ab", str(folder)) == folder
    assert find_device("vol-0123456789ab", str(tmp_path / "none" / "vol-0123456789ab")) is None


@pytest.mark.parametrize("hint", ["/", "/etc", ".", "vol-0123456789ab", "/etc/../etc"])
def test_another_directory_of_the_node_is_not_taken_for_a_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hint: str
) -> None:
    (tmp_path / "vol-0123456789ab").mkdir()
    monkeypatch.chdir(tmp_path)

    assert find_device("vol-0123456789ab", hint) is None


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
@pytest.mark.parametrize(
    "place",
    [0, 512 * 1024, 2 * MIB, 40 * MIB + 7, 64 * MIB - 512],
    ids=["first", "later", "after the first MiB", "middle", "last"],
)
async def test_a_device_with_any_data_is_never_formatted(disk: Path, place: int) -> None:
    with disk.open("r+b") as out:
        out.seek(place)
        out.write(b"x")
    before = disk.read_bytes()

    with pytest.raises(ForeignData, match="has unknown data instead of ext4: it is not formatted"):
        await devices.make_filesystem(disk, "ext4")

    assert disk.read_bytes() == before


@pytest.mark.real_time
@pytest.mark.parametrize("place", [512 << 10, (300 << 30) - 512, *devices.COPIES])
async def test_the_edges_of_a_large_device_and_copies_of_superblocks_are_data(
    tmp_path: Path, place: int
) -> None:
    """A copy can bring a filesystem back whose beginning was overwritten."""
    disk = tmp_path / "disk"
    with disk.open("wb") as out:
        out.truncate(300 << 30)
        out.seek(place + 0x38)
        out.write(b"\x53\xef")

    assert await devices.content(disk) == devices.UNKNOWN


@given(size=st.integers(1, 1 << 44), part=st.floats(0, 1))
def test_what_is_read_of_a_device_is_little_and_everywhere(size: int, part: float) -> None:
    places = sorted(devices.probed(size))
    at = int(part * (size - 1))

    assert all(first >= 0 and length > 0 and first + length <= size for first, length in places)
    assert sum(length for _, length in places) <= 260 * MIB
    assert any(abs(first - at) <= max(size // 1000, devices.SAMPLE) for first, _ in places)
    if size <= devices.SAMPLE * devices.SAMPLES:
        assert any(first <= at < first + length for first, length in places)


@needs_loop_devices
@pytest.mark.real_time
async def test_a_device_with_another_filesystem_is_not_formatted(disk: Path) -> None:
    await run("mkfs.ext2", "-q", "-F", str(disk))

    with pytest.raises(ForeignData, match="has ext2 instead of ext4"):
        await devices.make_filesystem(disk, "ext4")
    assert await devices.content(disk) == "ext2"


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("code", "printed"),
    [(8, ""), (4, ""), (1, ""), (0, ""), (0, "DEVNAME=/dev/x")],
    ids=["ambivalent", "usage", "failed", "silent", "without a type"],
)
async def test_an_empty_device_is_not_formatted_if_blkid_does_not_say_that_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, printed: str
) -> None:
    """8: several signatures that contradict each other."""
    blkid, disk = tmp_path / "bin/blkid", tmp_path / "disk"
    blkid.parent.mkdir()
    blkid.write_text(f"#!/bin/sh\necho {printed}\nexit {code}\n")
    blkid.chmod(0o755)
    monkeypatch.setenv("PATH", f"{blkid.parent}:{os.environ['PATH']}")
    disk.write_bytes(bytes(2 * MIB))

    with pytest.raises(HostError):
        await devices.make_filesystem(disk, "ext4")

    assert not any(disk.read_bytes())


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


@needs_loop_devices
@pytest.mark.real_time
async def test_a_filesystem_that_others_made_after_an_interruption_is_not_formatted(
    disk: Path,
) -> None:
    await run("mkfs.ext2", "-q", "-F", str(disk))
    with disk.open("r+b") as out:
        out.seek(-len(devices.NOTE), os.SEEK_END)
        out.write(devices.NOTE)

    with pytest.raises(ForeignData, match="has ext2 instead of ext4"):
        await devices.make_filesystem(disk, "ext4")

    assert await devices.content(disk) == "ext2"


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


@pytest.mark.parametrize(
    ("filesystem", "place", "field"),
    [
        ("ext4", 0x418, b"\xff\xff\xff\x7f"),
        ("ext4", 0x418, b"\x07\0\0\0"),
        ("xfs", 4, b"\xff" * 12),
        ("btrfs", 0x10070, b"\xff" * 8),
    ],
)
def test_a_crafted_superblock_costs_nothing_and_lets_nothing_grow(
    tmp_path: Path, filesystem: str, place: int, field: bytes
) -> None:
    disk, marks = tmp_path / "disk", {"ext4": (0x438, b"\x53\xef"), "xfs": (0, b"XFSB")}
    magic_at, magic = marks.get(filesystem, (0x10040, b"_BHRfS_M"))
    head = bytearray(MIB)
    head[0x404:0x408] = b"\1\0\0\0"
    head[magic_at : magic_at + len(magic)] = magic
    head[place : place + len(field)] = field
    disk.write_bytes(head)

    size = devices.filesystem_size(disk, filesystem)

    assert size is None or size.bit_length() <= 96
    assert not devices.can_grow(disk, filesystem)


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
    await mounts.bind(source, target)
    with pytest.raises(mounts.WrongMount, match="is already mounted read-write, not read-only"):
        await mounts.bind(source, target, read_only=True)
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
async def test_a_mounted_device_keeps_its_access_mode(disk: Path, tmp_path: Path) -> None:
    await devices.make_filesystem(disk, "ext4")
    await mounts.mount_device(disk, tmp_path / "m", "ext4")

    with pytest.raises(mounts.WrongMount, match="is already mounted read-write, not read-only"):
        await mounts.mount_device(disk, tmp_path / "m", "ext4", ("ro",))


@pytest.mark.real_time
async def test_a_file_with_content_at_the_target_is_not_removed(tmp_path: Path) -> None:
    """It could be data that was written while nothing was mounted there."""
    target = tmp_path / "target"
    target.write_text("data")

    with pytest.raises(HostError, match="is a file with content: it is not removed"):
        await mounts.unmount(target)

    assert target.read_text() == "data"


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
