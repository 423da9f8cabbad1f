"""Block devices of this node: find the one of a volume, look what is on it, format, grow.

A device is formatted only if it is empty: blkid finds no signature, and its first and last MiB, the
places of copies of superblocks and 1024 samples are zero (`probed`). Anything else may be data, and
is never overwritten. While a device is being formatted,
its last bytes say so: if that is interrupted, it starts again, because nothing was mounted yet.
"""

import asyncio
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from pileus.dataclass import dataclass
from pileus.volumes.commands import CommandFailed, HostError, run

EDGE = 1 << 20
"""Bytes at the beginning and at the end of a device that must be zero before it is formatted."""
SAMPLE, SAMPLES = 1 << 18, 1024
"""Bytes of each sample between the edges, and how many there are: at most 256 MiB are read, which
is a small device as a whole."""
COPY = 1 << 16
COPIES = (
    *(groups * 8193 << 10 for groups in (1, 3)),
    *(groups * 32 << 20 for groups in (1, 3)),
    *(groups * 128 << 20 for groups in (1, 3)),
    64 << 20,
    256 << 30,
)
"""Where ext (with blocks of 1, 2 and 4 KiB) and btrfs keep copies of their superblocks: they are
left if the beginning of a device was overwritten. Those of XFS are at quarters, which are samples.
"""
NOTHING_FOUND = 2
"""Exit code of blkid if it finds no signature."""
SERIAL_LENGTH = 20
"""virtio shows only so many characters of a volume's ID."""
LEAST_ID = 8
"""IDs that are shorter are not searched for in the names and serials of devices."""
MAKE = {
    "ext2": ("mkfs.ext2", "-F", "-q", "-m0"),
    "ext3": ("mkfs.ext3", "-F", "-q", "-m0"),
    "ext4": ("mkfs.ext4", "-F", "-q", "-m0"),
    "xfs": ("mkfs.xfs", "-q"),
    "btrfs": ("mkfs.btrfs", "-q"),
}
"""How to create each filesystem. `-f` is missing on purpose: xfs and btrfs then check once more."""
EXT = frozenset({"ext2", "ext3", "ext4"})
LARGEST_BLOCK_LOG = 6
"""Blocks of ext have up to 64 KiB: 1 KiB shifted by this. A superblock with more is damaged."""
UNKNOWN = "unknown data"
NOTE = b"pileus is formatting this device".ljust(512, b"\0")
"""At the end of a device while it is being formatted."""
NOT_ENOUGH = 1 << 20
"""Bytes by which a device has to be larger than its filesystem before that is grown."""


SERIALS = ("serial", "device/serial", "device/vpd_pg80")
IDENTITIES = (*SERIALS, "wwid", "loop/backing_file")
"""Files of a disk in /sys with its identity."""
PAGE_HEADER = 4
"""Bytes of a VPD page before the serial."""
CERTAIN = 16
"""Characters of an ID, without hyphens, by which a serial is known to be of the volume."""


class ForeignData(HostError):
    """The device has data that is not the expected filesystem. It is not formatted."""


class DeviceMissing(HostError):
    """The device of the volume does not exist on this node (yet)."""


@dataclass(frozen=True, slots=True)
class System:
    """Where the kernel shows devices. Tests pass other folders."""

    dev: Path = Path("/dev")
    sys: Path = Path("/sys")


SYSTEM = System()


def find_device(volume: str, hint: str = "", system: System = SYSTEM) -> Path | None:
    """Returns the device (or directory) of the volume on this node; None if there is none.

    A disk is known by the volume's ID, which clouds show as its serial. `hint` is the device of the
    attachment. A disk of which it is only a place, such as `/dev/sdb`, is not taken: clouds guess
    it, and the place can still have the disk that was detached last, or an ephemeral one of the
    machine. A link in `/dev/disk/by-id` is taken if the disk shows the serial that the link names.
    A directory is taken if its name is the ID: a pod would see any other folder of the node that
    the hint names.
    """
    if found := _by_id(volume, system) or _by_link(Path(hint), system):
        return found
    path = Path(hint)
    return path if path.is_absolute() and path.name == volume and path.is_dir() else None


async def wait_for_device(
    volume: str, hint: str = "", *, seconds: float = 30.0, system: System = SYSTEM
) -> Path:
    """Returns the device of the volume when the kernel shows it. Raises DeviceMissing."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        found = find_device(volume, hint, system)
        if found is not None:
            return found
        if loop.time() >= end:
            place = f" (the cloud names {hint})" if hint else ""
            raise DeviceMissing(
                f"no disk with the ID of volume {volume}{place} after {seconds:g} s. Check that it "
                "is attached to this node: ls -l /dev/disk/by-id"
            )
        await asyncio.sleep(0.5)


def _by_id(volume: str, system: System) -> Path | None:
    folder = system.dev / "disk" / "by-id"
    names = sorted(folder.iterdir()) if folder.is_dir() else []
    for link in names:
        if "-part" in link.name or not _names(link.name, volume) or not link.exists():
            continue
        if not _shows_other_serial(link.resolve(), volume, system):
            return link.resolve()
    block = system.sys / "class" / "block"
    for disk in sorted(block.iterdir()) if block.is_dir() else []:
        if any(_names(text, volume) for text in _identities(disk, system)):
            return system.dev / disk.name
    return None


def _by_link(link: Path, system: System) -> Path | None:
    """Returns the disk of a link that ends with its serial; None without that proof."""
    if link.parent != system.dev / "disk" / "by-id" or "-part" in link.name or not link.exists():
        return None
    disk = link.resolve()
    _, separator, last = link.name.removeprefix("virtio-").rpartition("_")
    named = last if separator else link.name.removeprefix("virtio-")
    return disk if named and named in _identities(disk, system, SERIALS) else None


def _shows_other_serial(device: Path, volume: str, system: System) -> bool:
    """Whether the kernel knows the disk as that of another volume.

    udev may not have removed the link of a volume that was detached, when its place has another.
    """
    serials = [each.replace("-", "") for each in _identities(device, system, SERIALS)]
    return any(serials) and all(volume.replace("-", "")[:CERTAIN] not in each for each in serials)


def _identities(device: Path, system: System, names: Iterable[str] = IDENTITIES) -> Iterator[str]:
    """Yields what a disk shows of its identity: its serial, or the file behind a loop device."""
    block = system.sys / "class" / "block" / device.name
    for name in names:
        try:
            content = (block / name).read_bytes()
        except OSError:
            continue
        serial = content[PAGE_HEADER:] if name.endswith("vpd_pg80") else content
        shown = serial.decode(errors="replace").strip("\0\n ")
        yield Path(shown).name if name == "loop/backing_file" else shown


def _names(text: str, volume: str) -> bool:
    """Whether a serial or the name of a link is of the volume: its ID, or its beginning."""
    if len(volume) < LEAST_ID:
        return False
    words = (volume, volume[:SERIAL_LENGTH], volume.replace("-", "")[:SERIAL_LENGTH])
    stem = text.removesuffix(".img").rpartition("_")[2]
    bare = stem.removeprefix("virtio-").rpartition("QEMU_HARDDISK_")[2]
    return any(word in {text, stem, bare} for word in words)


# -- what is on a device -----------------------------------------------------------------------


def is_block_device(path: Path) -> bool:
    try:
        return stat.S_ISBLK(path.stat().st_mode)
    except OSError:
        return False


def numbered(major: int, minor: int, system: System = SYSTEM) -> Path:
    """Returns the device with these numbers."""
    return system.dev / (system.sys / "dev" / "block" / f"{major}:{minor}").resolve().name


def device_size(device: Path) -> int:
    """Returns the size of the device in bytes. Raises HostError."""
    try:
        with device.open("rb") as file:
            return file.seek(0, os.SEEK_END)
    except OSError as error:
        raise HostError(f"cannot read {device}: {error.strerror}") from error


def rescanned_size(device: Path, wanted: int, system: System = SYSTEM) -> int:
    """Returns the size of the device, which is asked for it again if it is less than wanted."""
    rescan = system.sys / "class" / "block" / device.name / "device" / "rescan"
    if device_size(device) < wanted and rescan.exists():
        try:
            rescan.write_text("1")
        except OSError as error:
            raise HostError(f"cannot rescan {device}: {error.strerror}") from error
    return device_size(device)


async def content(device: Path) -> str:
    """Returns what is on the device: "" if it is empty, else the name of the signature.

    The name is that of blkid ("ext4", "LVM2_member", "gpt"), or "unknown data". Raises HostError if
    the device cannot be read: it is never reported as empty then.
    """
    found = await _signature(device)
    if found:
        return found
    is_empty = await asyncio.to_thread(_is_empty, device)
    return "" if is_empty else UNKNOWN


async def _signature(device: Path) -> str:
    command = ("blkid", "-p", "-o", "export", "-s", "TYPE", "-s", "PTTYPE", str(device))
    try:
        text = await run(*command)
    except CommandFailed as error:
        if error.code == NOTHING_FOUND:
            return ""
        raise
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        found[name] = value
    return found.get("TYPE") or found.get("PTTYPE") or UNKNOWN


def probed(size: int) -> Iterator[tuple[int, int]]:
    """Yields offset and length of what has to be zero in an empty device of this size."""
    edge = min(EDGE, size)
    yield 0, edge
    yield size - edge, edge
    yield from ((at, COPY) for at in COPIES if at + COPY <= size)
    step = max(SAMPLE, size // SAMPLES)
    yield from ((at, min(SAMPLE, size - at)) for at in range(0, size, step))


def _is_empty(device: Path) -> bool:
    try:
        with device.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            return size > 0 and all(_is_zero(file, at, length) for at, length in probed(size))
    except OSError as error:
        raise HostError(f"cannot read {device}: {error.strerror}") from error


def _is_zero(file: BinaryIO, offset: int, length: int) -> bool:
    """Whether so many bytes can be read, and all of them are zero."""
    file.seek(offset)
    return file.read(length) == bytes(length)


async def make_filesystem(device: Path, filesystem: str) -> bool:
    """Create the filesystem on an empty device. Returns whether it did; False: it has it already.

    Raises ForeignData if there is anything else on the device, and HostError if the command fails.
    """
    found = await content(device)
    is_begun = await asyncio.to_thread(_has_note, device)
    if found == filesystem:
        if is_begun:
            await asyncio.to_thread(_write_note, device, bytes(len(NOTE)))
        return False
    if found and not (is_begun and found == UNKNOWN):
        raise ForeignData(
            f"{device} has {found} instead of {filesystem}: it is not formatted, since it may be "
            f"data. Fix: use a StorageClass or PersistentVolume with fsType {found}, or, if the "
            f"data is not needed, run on the node: wipefs --all {device}"
        )
    await asyncio.to_thread(_write_note, device, NOTE)
    await run(*MAKE[filesystem], str(device))
    if await asyncio.to_thread(_has_note, device):
        await asyncio.to_thread(_write_note, device, bytes(len(NOTE)))
    return True


def _has_note(device: Path) -> bool:
    """Whether the device says that formatting it was begun and not completed."""
    try:
        with device.open("rb") as file:
            file.seek(-len(NOTE), os.SEEK_END)
            return file.read() == NOTE
    except OSError as error:
        raise HostError(f"cannot read {device}: {error.strerror}") from error


def _write_note(device: Path, note: bytes) -> None:
    try:
        with device.open("r+b") as file:
            file.seek(-len(note), os.SEEK_END)
            file.write(note)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise HostError(f"cannot write to {device}: {error.strerror}") from error


# -- size of a filesystem ----------------------------------------------------------------------


def filesystem_size(device: Path, filesystem: str) -> int | None:
    """Returns the size in bytes that the filesystem on the device has; None if it is unknown."""
    try:
        with device.open("rb") as file:
            head = file.read(EDGE)
    except OSError as error:
        raise HostError(f"cannot read {device}: {error.strerror}") from error
    try:
        return _size_in(head, filesystem)
    except struct.error:
        return None


def _size_in(head: bytes, filesystem: str) -> int | None:
    if filesystem in EXT and head[0x438:0x43A] == b"\x53\xef":
        (low,), (log,) = (
            struct.unpack_from("<I", head, 0x404),
            struct.unpack_from("<I", head, 0x418),
        )
        if log > LARGEST_BLOCK_LOG:
            return None
        (features,) = struct.unpack_from("<I", head, 0x460)
        (high,) = struct.unpack_from("<I", head, 0x550) if features & 0x80 else (0,)
        return ((high << 32) | low) * (1024 << log)
    if filesystem == "xfs" and head.startswith(b"XFSB"):
        block, blocks = struct.unpack_from(">IQ", head, 4)
        return block * blocks
    if filesystem == "btrfs" and head[0x10040:0x10048] == b"_BHRfS_M":
        (total,) = struct.unpack_from("<Q", head, 0x10070)
        return total
    return None


def can_grow(device: Path, filesystem: str) -> bool:
    """Whether the device is larger than the filesystem on it."""
    size = filesystem_size(device, filesystem)
    return size is not None and device_size(device) - size >= NOT_ENOUGH


async def grow_unmounted(device: Path, filesystem: str) -> None:
    """Grow an ext filesystem that is not mounted to the size of its device, after a check of it.

    Other filesystems can only grow while mounted (`grow_mounted`): nothing happens.
    """
    if filesystem in EXT and can_grow(device, filesystem):
        await _check_ext(device)
        await run("resize2fs", str(device))


async def _check_ext(device: Path) -> None:
    try:
        await run("e2fsck", "-f", "-p", str(device))
    except CommandFailed as error:
        if error.code != 1:  # 1: errors were corrected
            raise


async def grow_mounted(device: Path, target: Path, filesystem: str) -> None:
    """Grow a mounted filesystem to the size of its device. Nothing happens if it has that size."""
    if not can_grow(device, filesystem):
        return
    if filesystem in EXT:
        await run("resize2fs", str(device))
    elif filesystem == "xfs":
        await run("xfs_growfs", str(target))
    else:
        await run("btrfs", "filesystem", "resize", "max", str(target))
