"""Real volumes of the local cloud: one sparse file for each, attached as a loop device.

Without root, or without loop devices, a volume is a directory instead. Files follow the state of
the cloud: `prepare` does before a change is stored what the change promises, and `clean` removes
afterwards what is no longer needed. A crash in between leaves a file too many, never one too few.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace as changed

from pileus.cloud.errors import Conflict, Misconfigured, Unavailable
from pileus_lab.local.model.records import Snapshot, Volume
from pileus_lab.local.model.state import State, with_item

GIB = 1 << 30
LOOP_CONTROL = Path("/dev/loop-control")
T = TypeVar("T", Volume, Snapshot)


class Kind(StrEnum):
    AUTO = "auto"
    LOOP = "loop"
    DIRECTORY = "directory"


@dataclass(frozen=True, slots=True)
class Disks:
    """The files of all volumes and snapshots, in one folder."""

    folder: Path
    is_loop: bool
    """Whether volumes are block devices; otherwise they are directories."""

    @classmethod
    def open(cls, folder: Path, kind: Kind = Kind.AUTO) -> "Disks":
        """Returns the disks in the folder. Raises Misconfigured if it cannot be used."""
        can_loop = os.geteuid() == 0 and LOOP_CONTROL.exists()
        if kind is Kind.LOOP and not can_loop:
            raise Misconfigured(
                f'volumeKind "{Kind.LOOP}" needs root and {LOOP_CONTROL}; use "{Kind.DIRECTORY}"'
            )
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Misconfigured(f"volumeFolder {folder}: {error.strerror}") from error
        return cls(folder.resolve(), can_loop and kind is not Kind.DIRECTORY)

    def prepare(self, before: State, after: State) -> State:
        """Do what the change promises. Returns the new state, with the devices as they are.

        Raises Conflict if a device to be detached is in use, Unavailable if a command fails.
        """
        if before.volumes is after.volumes and before.snapshots is after.snapshots:
            return after
        for volume in _new(before.volumes, after.volumes):
            self._create(volume.id, volume.from_snapshot or volume.from_volume, volume.size_gib)
        for snapshot in _new(before.snapshots, after.snapshots):
            self._copy(snapshot.volume, snapshot.id)
        for volume in before.volumes.values():
            self._release(volume, after.volumes.get(volume.id))
        for volume in tuple(after.volumes.values()):
            device = self._attached(volume, before.volumes.get(volume.id))
            if device != volume.device:
                volumes = with_item(after.volumes, volume.id, changed(volume, device=device))
                after = replace(after, volumes=volumes)
        return after

    def restored(self, state: State) -> State:
        """Returns the state with the devices that attached volumes have now.

        A restart of the machine detaches loop devices, and gives them other numbers.
        """
        for volume in tuple(state.volumes.values()):
            if not volume.machine or not self.path(volume.id).exists():
                continue
            device = self._device(volume.id)
            if device != volume.device:
                volumes = with_item(state.volumes, volume.id, changed(volume, device=device))
                state = replace(state, volumes=volumes)
        return state

    def clean(self, before: State, after: State) -> None:
        """Remove the files of what was deleted."""
        for kind in ("volumes", "snapshots"):
            for identity in getattr(before, kind).keys() - getattr(after, kind).keys():
                path = self.path(identity)
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)

    def path(self, identity: str) -> Path:
        """Returns the file or directory of a volume or snapshot."""
        return self.folder / (f"{identity}.img" if self.is_loop else identity)

    # -- files --------------------------------------------------------------------------------

    def _create(self, identity: str, source: str, size_gib: int) -> None:
        if source:
            self._copy(source, identity)
        elif not self.is_loop:
            self.path(identity).mkdir(exist_ok=True)
        if self.is_loop:
            self._grow(self.path(identity), size_gib)

    def _copy(self, source: str, identity: str) -> None:
        origin, target = self.path(source), self.path(identity)
        for device in self._devices(origin):
            _flush(device)
        flags = ("--sparse=always", "--reflink=auto") if self.is_loop else ("--recursive",)
        place = (str(origin), str(target)) if self.is_loop else (f"{origin}/.", str(target))
        _run("cp", "--preserve=all", *flags, *place)

    @staticmethod
    def _grow(path: Path, size_gib: int) -> None:
        try:
            with path.open("ab") as file:
                if file.tell() < size_gib * GIB:
                    file.truncate(size_gib * GIB)
        except OSError as error:
            raise Unavailable(f"cannot create {path}: {error.strerror}") from error

    # -- devices ------------------------------------------------------------------------------

    def _attached(self, volume: Volume, before: Volume | None) -> str:
        """Returns the device of the volume, which exists and has its size; "" if it has none."""
        path = self.path(volume.id)
        is_same = before is not None and before.machine == volume.machine
        if before is not None and before.size_gib < volume.size_gib and self.is_loop:
            self._grow(path, volume.size_gib)
            for device in self._devices(path):
                _run("losetup", "--set-capacity", device)
        if not volume.machine or is_same:
            return before.device if before is not None and is_same else ""
        if not path.exists():
            raise Unavailable(f"the data of volume {volume.id} is missing: {path}")
        return self._device(volume.id)

    def _device(self, identity: str) -> str:
        """Returns the device of a volume, which is made unless it exists."""
        path = str(self.path(identity))
        if not self.is_loop:
            return path
        return _run("losetup", "--find", "--show", "--nooverlap", path).strip()

    def _release(self, volume: Volume, after: Volume | None) -> None:
        """Detach the device of a volume that no machine has any more, or another one."""
        if not volume.machine or not self.is_loop:
            return
        if after is not None and after.machine == volume.machine:
            return
        for device in self._devices(self.path(volume.id)):
            if _is_in_use(device):
                raise Conflict(f"volume {volume.id} is in use: unmount {device} first")
            _run("losetup", "--detach", device)

    def _devices(self, path: Path) -> Iterable[str]:
        """Returns the loop devices of a file."""
        if not self.is_loop:
            return ()
        listed = _run("losetup", "--associated", str(path), "--output", "NAME", "--noheadings")
        return listed.split()


def _new(before: Mapping[str, T], after: Mapping[str, T]) -> list[T]:
    return [after[identity] for identity in after.keys() - before.keys()]


def _is_in_use(device: str) -> bool:
    """Whether the device is mounted, or used by another device."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
    except OSError:
        return Path(device).exists()
    return False


def _flush(device: str) -> None:
    """Write what the kernel has of the device to its file."""
    opened = os.open(device, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- fixed commands
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}: {' '.join(done.stderr.split())}")
    return done.stdout
