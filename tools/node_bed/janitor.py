"""Removes what outlives the namespaces of a bed, however it ended: cgroups, devices and files.

    python -m tools.node_bed.janitor PIPE FOLDER CGROUP

PIPE is the reading end of a pipe that the bed's processes keep open. Its end means that they ended.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
LIMIT = 30.0
POLL = 0.2


def main(pipe: int, folder: Path, name: str) -> int:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    while os.read(pipe, 1):
        pass
    deadline = time.monotonic() + LIMIT
    while not remove_cgroups(name) and time.monotonic() < deadline:
        time.sleep(POLL)
    release_devices(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def release_devices(folder: Path) -> None:
    """Detaches the loop devices of files in the folder."""
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            is_ours = file.read_text().startswith(f"{folder}/")
        except OSError:
            continue
        if is_ours:
            device = f"/dev/{file.parent.parent.name}"
            subprocess.run(["losetup", "--detach", device], check=False)


def cgroup_folders(name: str) -> list[Path]:
    """Returns the folder of that cgroup in each hierarchy: of cgroup v1, or the one of v2."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS / name]
    hierarchies = [path for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists()]
    return [path / name for path in sorted(hierarchies)]


def create_cgroups(name: str) -> None:
    for folder in cgroup_folders(name):
        folder.mkdir()
        for file in ("cpuset.cpus", "cpuset.mems"):  # cgroup v1 starts with empty sets
            if (folder / file).exists() and (folder.parent / "cgroup.clone_children").exists():
                (folder / file).write_text((folder.parent / file).read_text())


def remove_cgroups(name: str) -> bool:
    """Removes the cgroup and those in it; returns whether all are removed."""
    for root in cgroup_folders(name):
        for folder, _, _ in os.walk(root, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                continue
    return not any(folder.exists() for folder in cgroup_folders(name))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
