"""A bed leaves nothing on the machine: no process, mount, interface, cgroup, device or file."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.node_bed.janitor import cgroup_folders

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="THE NODE BED WAS NOT TRIED: namespaces need root"),
    pytest.mark.xdist_group("node bed"),
]
LIMIT = 40.0
OUTSIDE = """
import signal, sys
from tools.node_bed.__main__ import contain
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if tests run in the background
"""
INSIDE = """
set -eu
name=$(basename "$PILEUS_NODE_BED")
truncate --size=1M "$PILEUS_NODE_BED/disk.img"
if [ -e /dev/loop-control ]; then losetup --find "$PILEUS_NODE_BED/disk.img"; fi
ip link set lo up; ip link add left type bridge; mount -t tmpfs tmpfs "$PILEUS_NODE_BED"
python3 -c 'import sys; from tools.node_bed.janitor import create_cgroups as create
create(sys.argv[1]); create(sys.argv[1] + "/pod")' "$name"
sleep 1000.25 & for file in /sys/fs/cgroup/*/"$name"/pod/cgroup.procs; do echo $! > "$file"; done
setsid sleep 1000.25 &
echo ready "$PILEUS_NODE_BED"
wait
"""


class Running:
    """A command in the namespaces of a bed. It prints a word and the folder of the bed."""

    def __init__(self, command: str) -> None:
        code = f"{OUTSIDE}sys.exit(contain(['bash', '-c', {command!r}], lambda _: None))"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT}/src"},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout
        with self.process.stdout as said:
            _, folder = said.readline().split()
        self.folder = Path(folder)


def leftovers(folder: Path) -> list[str]:
    """Returns what of a bed is still there."""
    cgroups = [str(each) for each in cgroup_folders(folder.name) if each.exists()]
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
    processes = [
        str(each) for each in Path("/proc").glob("[0-9]*/cmdline") if b"1000.25" in _read(each)
    ]
    files = [str(folder)] if folder.exists() else []
    return [*cgroups, *mounts, *processes, *devices(folder), *files]


def devices(folder: Path) -> list[str]:
    """Returns the loop devices of files in the folder."""
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return [str(each) for each in files if f"{folder}/".encode() in _read(each)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running(INSIDE)
    yield made
    made.process.kill()
    made.process.wait()
    assert until_nothing_is_left(made.folder) == []  # the next test looks for the same processes


def until_nothing_is_left(folder: Path) -> list[str]:
    deadline = time.monotonic() + LIMIT
    while (found := leftovers(folder)) and time.monotonic() < deadline:
        threading.Event().wait(0.1)
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_bed_whose_run_is_interrupted(running: Running, how: signal.Signals):
    assert len(leftovers(running.folder)) > len(cgroup_folders(""))
    assert devices(running.folder) or not Path("/dev/loop-control").exists()
    if how is signal.SIGINT:
        os.killpg(running.process.pid, how)
    else:
        running.process.kill()
    assert until_nothing_is_left(running.folder) == []


def test_the_network_of_the_machine_is_not_changed(running: Running):
    shown = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True)
    assert "left" not in shown.stdout


def test_a_bed_returns_the_exit_code_of_its_command_and_leaves_nothing():
    ended = Running("echo ready $PILEUS_NODE_BED; exit 7")
    assert ended.process.wait(LIMIT) == 7
    assert leftovers(ended.folder) == []
