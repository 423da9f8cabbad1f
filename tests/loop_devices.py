"""Loop devices for tests: block devices over files, where root and the kernel allow them.

A test run that is killed leaves mounts and devices in its folder. The next one removes them.
"""

import os
import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest

from pileus.volumes import mounts

MIB = 1 << 20
ONE_WORKER = pytest.mark.xdist_group("loop devices")
"""For every test with loop devices: two at a time find each other's devices."""
needs_loop_devices = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/loop-control").exists(),
    reason="loop devices and mounts need root, and a kernel that has them",
)


RUN = re.compile(r"^(.*/pytest-of-[^/]+/(?:pytest|garbage)-[^/]+)/")
"""The folder of a test run, at the beginning of a path in it."""


@cache
def release_leftovers() -> None:
    """Unmount and detach, once for each process, what runs that have ended left behind."""
    targets = [Path(each.target) for each in mounts.all_mounts()]
    for folder in {*map(_run_of, (*targets, *_backing_files()))} - {None}:
        if folder is not None and not _is_running(folder):
            release(folder)


def release(folder: Path) -> None:
    """Unmount and detach everything below the folder."""
    for mount in reversed(mounts.all_mounts()):
        if Path(mount.target).is_relative_to(folder):
            subprocess.run(["umount", mount.target], check=True)
    for file in _backing_files():
        if file.is_relative_to(folder):
            detach(file)


def _run_of(path: Path) -> Path | None:
    found = RUN.match(str(path))
    return Path(found[1]) if found else None


def _is_running(folder: Path) -> bool:
    """Whether the process that pytest named in the lock of its folder runs."""
    with suppress(OSError, ValueError):
        os.kill(int((folder / ".lock").read_text()), 0)
        return True
    return False


def _backing_files() -> list[Path]:
    """Returns the files of all loop devices, also those that were deleted."""
    block = Path("/sys/class/block")
    names = block.glob("loop*/loop/backing_file")
    return [Path(each.read_text().strip().removesuffix(" (deleted)")) for each in names]


@contextmanager
def loop_device(file: Path) -> Generator[Path]:
    """Yields an empty block device of 64 MiB over the file; nothing of it stays mounted."""
    release_leftovers()
    with file.open("wb") as out:
        out.truncate(64 * MIB)
    command = ["losetup", "--find", "--show", str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    device = Path(done.stdout.strip())
    try:
        yield device
    finally:
        for mount in reversed(mounts.mounts_of_device(device)):
            subprocess.run(["umount", mount.target], check=True)
        detach(file)


def devices_of(file: Path) -> list[str]:
    """Returns the devices over the file, also if it was deleted."""
    block, texts = Path("/sys/class/block"), {str(file), f"{file} (deleted)"}
    found = block.glob("loop*/loop/backing_file")
    return [f"/dev/{one.parts[4]}" for one in found if one.read_text().strip() in texts]


def detach(file: Path) -> None:
    for device in devices_of(file):
        subprocess.run(["losetup", "--detach", device], check=True)
