"""Loop devices for tests: block devices over files, where root and the kernel allow them."""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
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


@contextmanager
def loop_device(file: Path) -> Generator[Path]:
    """Yields an empty block device of 64 MiB over the file; nothing of it stays mounted."""
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
    command = ["losetup", "--associated", str(file), "--output", "NAME", "--noheadings"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def detach(file: Path) -> None:
    for device in devices_of(file):
        subprocess.run(["losetup", "--detach", device], check=True)
