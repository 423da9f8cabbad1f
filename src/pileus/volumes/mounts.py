"""Mounts of this node, read from the kernel. Nothing is kept in memory: a restart loses nothing.

Every function is idempotent. A mount is known by where it is, and by the device or directory of
which it is.
"""

import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from pileus.dataclass import dataclass
from pileus.volumes.commands import HostError, run

MOUNTINFO = Path("/proc/self/mountinfo")


class WrongMount(HostError):
    """Something else is mounted at the path. It is not changed."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of mountinfo."""

    target: str
    root: str
    """Path within the filesystem that is mounted: "/" unless it is a bind mount of a part."""
    number: tuple[int, int]
    """Major and minor number of the filesystem."""
    filesystem: str
    source: str
    options: frozenset[str]
    """Options of the mount and of the filesystem."""

    @property
    def is_read_only(self) -> bool:
        return "ro" in self.options


def parsed(text: str) -> tuple[Mount, ...]:
    """Returns the mounts of a mountinfo file, in its order: the last one at a path is on top."""
    return tuple(_mount(line) for line in text.splitlines() if line)


def _mount(line: str) -> Mount:
    before, _, after = line.partition(" - ")
    _, _, number, root, target, options, *_ = before.split(" ")
    filesystem, source, *of_filesystem = after.split(" ")
    major, _, minor = number.partition(":")
    return Mount(
        target=_unescaped(target),
        root=_unescaped(root),
        number=(int(major), int(minor)),
        filesystem=filesystem,
        source=_unescaped(source),
        options=frozenset((*options.split(","), *",".join(of_filesystem).split(","))),
    )


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def all_mounts() -> tuple[Mount, ...]:
    return parsed(MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape"))


def mount_at(path: Path) -> Mount | None:
    """Returns the mount at this path; the one on top if there are several."""
    real = os.path.realpath(path)
    return next((one for one in reversed(all_mounts()) if one.target == real), None)


def is_of_device(mount: Mount, device: Path) -> bool:
    """Whether the mount is of the filesystem on this block device."""
    try:
        status = device.stat()
    except OSError:
        return False
    return stat.S_ISBLK(status.st_mode) and _numbers(status.st_rdev) == mount.number


def is_device_file(path: Path, device: Path) -> bool:
    """Whether the path is a block device, and the same one as `device`."""
    try:
        one, other = path.stat(), device.stat()
    except OSError:
        return False
    return (
        stat.S_ISBLK(one.st_mode) and stat.S_ISBLK(other.st_mode) and one.st_rdev == other.st_rdev
    )


def is_same_file(path: Path, other: Path) -> bool:
    """Whether both paths lead to the same directory or file."""
    try:
        return os.path.samestat(path.stat(), other.stat())
    except OSError:
        return False


def mounts_of_device(device: Path) -> tuple[Mount, ...]:
    """Returns all mounts of the filesystem on this block device."""
    return tuple(one for one in all_mounts() if is_of_device(one, device))


def _numbers(device: int) -> tuple[int, int]:
    return os.major(device), os.minor(device)


async def mount_device(
    device: Path, target: Path, filesystem: str, options: Iterable[str] = ()
) -> None:
    """Mount the filesystem on the device.

    Raises WrongMount if the path has another mount, or the same with another access mode.
    """
    chosen, existing = tuple(options), mount_at(target)
    if existing is not None:
        if not is_of_device(existing, device):
            raise WrongMount(f"{target} is already a mount of {existing.source}, not of {device}")
        check_access(existing, target, read_only="ro" in chosen)
        return
    _make_directory(target)
    await run("mount", "-t", filesystem, *_option(chosen), str(device), str(target))


async def bind(
    source: Path, target: Path, *, read_only: bool = False, options: Sequence[str] = ()
) -> None:
    """Mount a directory or a file (such as a block device) at another path as well.

    Raises WrongMount if the path has another mount, or the same with another access mode.
    """
    existing = mount_at(target)
    if existing is not None:
        _check_bind(existing, source, target, read_only=read_only)
        return
    _make_place(source, target)
    chosen = ["bind", *options, *(["ro"] if read_only else [])]
    await run("mount", *_option(chosen), str(source), str(target))


def _check_bind(existing: Mount, source: Path, target: Path, *, read_only: bool) -> None:
    if not is_same_file(source, target):
        raise WrongMount(f"{target} is already a mount of {existing.source}, not of {source}")
    check_access(existing, target, read_only=read_only)


def check_access(existing: Mount, target: Path, *, read_only: bool) -> None:
    """Raises WrongMount if the mount has another access mode."""
    if existing.is_read_only != read_only:
        words = ("read-write", "read-only")
        raise WrongMount(
            f"{target} is already mounted {words[existing.is_read_only]}, not {words[read_only]}"
        )


async def unmount(target: Path, *, remove: bool = True) -> None:
    """Unmount everything at the path, and remove the empty directory or file below it.

    A path that does not exist, or is no mount, succeeds. A directory with content is kept: it
    could be data.
    """
    while mount_at(target) is not None:
        await run("umount", str(target))
    if remove:
        remove_empty(target)


def remove_empty(target: Path) -> None:
    """Remove an empty directory or an empty file. Raises HostError if it has content."""
    try:
        if target.is_dir() and not target.is_symlink():
            target.rmdir()
        elif target.is_file() and target.stat().st_size:
            raise HostError(f"{target} is a file with content: it is not removed")
        else:
            target.unlink(missing_ok=True)
    except OSError as error:
        raise HostError(f"cannot remove {target}: {error.strerror}") from error


def _make_place(source: Path, target: Path) -> None:
    """Create the directory, or the file, at which the source is to be mounted."""
    if source.is_dir():
        _make_directory(target)
    else:
        _make_file(target)


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(f"cannot create the directory {path}: {error.strerror}") from error


def _make_file(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=True)
    except OSError as error:
        raise HostError(f"cannot create the file {path}: {error.strerror}") from error


def _option(options: Iterable[str]) -> tuple[str, ...]:
    joined = ",".join(dict.fromkeys(each for each in options if each))
    return ("-o", joined) if joined else ()
