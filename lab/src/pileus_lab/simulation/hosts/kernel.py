"""The kernel of one machine: its devices, its mounts, and the commands that change them.

Devices follow the attachments of the cloud, some time later and under names of their own. A machine
that stops loses its kernel with all mounts.
"""

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random

from pileus.volumes.commands import CommandFailed
from pileus_lab.simulation.environment.steps import HostEvent, HostStep
from pileus_lab.simulation.hosts.disk import GIB, Disk
from pileus_lab.simulation.kinds import FaultKind, Place
from pileus_lab.simulation.schedule import Weather

MAJOR, MINORS = 252, 16
ROOT_DEVICE = (8, 1)
LETTERS = "bcdefghijklmnopqrstuvwxyz"
BY_ID = "/dev/disk/by-id"
SERIAL_LENGTH = 20
SLOWEST = 2.0
"""Seconds that a command takes, and that a device needs to appear."""
OVERLOADED = 40.0
"""As `SLOWEST`, while the machine is overloaded."""
NOTHING_FOUND, BUSY = 2, 32
LEFT_BEHIND = "left-behind"
"""A disk that is no volume, and whose mount is at the staging path of one."""


@dataclass(slots=True)
class Device:
    name: str
    disk: Disk
    appears: float
    is_gone: bool = False
    """Unplugged while it was mounted: the name stays taken, and reads fail."""

    @property
    def number(self) -> tuple[int, int]:
        return MAJOR, MINORS * (1 + LETTERS.index(self.name[-1]))


@dataclass(frozen=True, slots=True)
class Mounted:
    target: str
    device: Device
    is_read_only: bool = False


@dataclass(slots=True)
class Kernel:
    """Created at each start of the machine."""

    machine: str
    chance: Random
    now: Callable[[], float]
    weather: Weather
    told: Callable[[HostStep], None]
    unknown: Disk | None = None
    """A disk of the machine that shows no ID, such as an ephemeral one."""
    is_off: bool = False
    overloaded_until: float = 0.0
    devices: dict[str, Device] = field(default_factory=dict[str, Device])
    mounts: list[Mounted] = field(default_factory=list[Mounted])
    folders: dict[str, int] = field(default_factory=dict[str, int])
    """Directories and their inodes."""

    def __post_init__(self) -> None:
        if self.unknown is not None:
            self.devices["vdb"] = Device("vdb", self.unknown, 0.0)

    # -- devices ------------------------------------------------------------------------------

    def plug(self, attached: Mapping[str, Disk]) -> None:
        """Make the devices those of the attached volumes."""
        for name, device in [*self.devices.items()]:
            if device.disk is self.unknown or attached.get(device.disk.volume) is device.disk:
                continue
            device.is_gone = True
            if all(one.device is not device for one in self.mounts):
                del self.devices[name]
        known = {one.disk.volume for one in self.devices.values() if not one.is_gone}
        for volume in sorted(attached.keys() - known):
            free = next(each for each in LETTERS if f"vd{each}" not in self.devices)
            appears = self.now() + self.chance.uniform(0, SLOWEST)
            self.devices[f"vd{free}"] = Device(f"vd{free}", attached[volume], appears)

    def visible(self) -> list[Device]:
        return [one for one in self.devices.values() if one.appears <= self.now()]

    def device_at(self, path: str) -> Device | None:
        if path.startswith(f"{BY_ID}/"):
            serial = path.rpartition("virtio-")[2]
            return next((one for one in self.visible() if self.serial(one) == serial), None)
        name = path.removeprefix("/dev/")
        return next((one for one in self.visible() if one.name == name), None)

    def serial(self, device: Device) -> str:
        return "" if device.disk is self.unknown else device.disk.volume[:SERIAL_LENGTH]

    def is_mounted(self, volume: str) -> bool:
        return not self.is_off and any(one.device.disk.volume == volume for one in self.mounts)

    def fails(self, kind: FaultKind, who: str) -> bool:
        return self.weather.strike(Place.HOST, who, may=lambda each: each is kind) is not None

    # -- files --------------------------------------------------------------------------------

    def mount_at(self, path: str) -> Mounted | None:
        return next((one for one in reversed(self.mounts) if one.target == path), None)

    def status(self, path: str) -> os.stat_result:
        """As `stat` returns it. Raises OSError."""
        mount, device = self.mount_at(path), self.device_at(path)
        if mount is not None:
            return _status(stat.S_IFDIR, os.makedev(*mount.device.number), 2)
        if device is not None:
            minor = device.number[1]
            return _status(stat.S_IFBLK, 5, minor, os.makedev(*device.number))
        if path in self.folders:
            return _status(stat.S_IFDIR, os.makedev(*ROOT_DEVICE), self.folders[path])
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def make_folder(self, path: str) -> None:
        self.folders.setdefault(path, 100 + len(self.folders))

    def mountinfo(self) -> str:
        lines = [f"1 0 {_numbers(ROOT_DEVICE)} / / rw - ext4 /dev/root rw"]
        for number, one in enumerate(self.mounts, 2):
            mode = "ro" if one.is_read_only else "rw"
            where = f"{number} 1 {_numbers(one.device.number)} / {one.target}"
            lines.append(f"{where} {mode} - ext4 /dev/{one.device.name} {mode}")
        return "\n".join(lines)

    def leave_mount(self, target: str) -> None:
        """Something was mounted there before, and was not unmounted."""
        disk = Disk(LEFT_BEHIND, GIB)
        disk.grow_filesystem()
        self.mounts.append(Mounted(target, Device("vdz", disk, 0.0)))

    def clear_mounts(self) -> None:
        """Remove what was left behind."""
        self.mounts = [one for one in self.mounts if one.device.disk.volume != LEFT_BEHIND]

    # -- commands -----------------------------------------------------------------------------

    async def run(self, *command: str) -> str:
        """Run a command. Raises CommandFailed. One that is killed stops where it is."""
        slowest = OVERLOADED if self.now() < self.overloaded_until else SLOWEST
        await asyncio.sleep(self.chance.uniform(0, slowest) / 4)
        self._check_alive()
        name, path = command[0], command[-1]
        if name == "mount":
            return self._mount(command[-2], path, command)
        if name == "umount":
            return self._unmount(path)
        device = self.device_at(path)
        if device is None or device.is_gone:
            raise CommandFailed(f"{name}: {path}: No such device", 1)
        if name == "blkid":
            return self._blkid(device.disk)
        if name.startswith("mkfs."):
            return await self._format(device)
        if name == "resize2fs":
            self._report(HostEvent.GROW, device.disk, "")
            device.disk.grow_filesystem()
        return ""

    def _blkid(self, disk: Disk) -> str:
        if self.fails(FaultKind.HOST_BLKID_FAILS, "blkid"):
            raise CommandFailed("blkid: input/output error", 4)
        if disk.strange is not None and disk.strange.shown:
            return disk.strange.shown
        blind = self.fails(FaultKind.HOST_BLKID_BLIND, "blkid")
        if blind or not disk.has_filesystem:
            raise CommandFailed("blkid: nothing found", NOTHING_FOUND)
        return "TYPE=ext4\n"

    async def _format(self, device: Device) -> str:
        disk = device.disk
        self._report(HostEvent.FORMAT, disk, f"{len(disk.records)} records are on it")
        disk.begin_format()
        await asyncio.sleep(self.chance.uniform(0, SLOWEST))
        self._check_alive()
        if self.fails(FaultKind.HOST_MKFS_FAILS, "mkfs"):
            raise CommandFailed("mkfs.ext4: input/output error", 1)
        if device.is_gone:
            raise CommandFailed("mkfs.ext4: No such device", 1)
        if disk.records or self.is_mounted(disk.volume):
            self._report(HostEvent.FORMAT, disk, "after it was mounted")
        disk.end_format()
        return ""

    def _mount(self, source: str, target: str, command: Sequence[str]) -> str:
        options = command[command.index("-o") + 1].split(",") if "-o" in command else []
        bound = self.mount_at(source)
        device = bound.device if bound is not None and "bind" in options else None
        if device is None:
            device = self.device_at(source)
        if device is None or device.is_gone or not device.disk.has_filesystem:
            raise CommandFailed(f"mount: {source}: wrong fs type, bad option, bad superblock", BUSY)
        if self.fails(FaultKind.HOST_MOUNT_FAILS, "mount"):
            raise CommandFailed(f"mount: {target}: input/output error", BUSY)
        is_read_only = "ro" in options or (bound is not None and bound.is_read_only)
        self.mounts.append(Mounted(target, device, is_read_only))
        self._report(HostEvent.MOUNT, device.disk, target)
        return ""

    def _unmount(self, target: str) -> str:
        mount = self.mount_at(target)
        if mount is None or self.fails(FaultKind.HOST_MOUNT_FAILS, "umount"):
            raise CommandFailed(f"umount: {target}: target is busy", BUSY)
        self.mounts.remove(mount)
        return ""

    def _check_alive(self) -> None:
        if self.is_off:
            raise CommandFailed("the machine is off")

    def _report(self, event: HostEvent, disk: Disk, what: str) -> None:
        step = HostStep(self.machine, event, disk.volume, what, for_readers=FOR_READERS.get())
        self.told(step)


KERNEL: ContextVar[Kernel] = ContextVar("kernel")
"""Of the machine on which the code runs."""
FOR_READERS: ContextVar[bool] = ContextVar("for readers", default=False)
"""Whether the request is for a pod with whose volume nothing may write to the filesystem."""


def _status(kind: int, device: int, inode: int, number: int = 0) -> os.stat_result:
    return os.stat_result((kind | 0o750, inode, device, 1, 0, 0, 0, 0, 0, 0), {"st_rdev": number})


def _numbers(number: tuple[int, int]) -> str:
    return f"{number[0]}:{number[1]}"
