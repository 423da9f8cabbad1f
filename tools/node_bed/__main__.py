"""Runs a command with a real Kubernetes node on this machine, in namespaces of its own.

    python -m tools.node_bed -- COMMAND …       run a command in the namespaces of a bed
    python -m tools.node_bed --set-up-only      prepare the cache

The command gets its own network, mount and process namespaces, and variables that name what was
prepared; `tools.node_bed.bed` starts the cluster in them. When the command ends or is killed, the
kernel ends every process, mount and network interface, and another process removes the cgroups and
files. Needs root. Exits with 3 if the machine cannot run it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tools.apt import Unavailable
from tools.node_bed.janitor import CGROUPS
from tools.node_bed.prepare import commands, packages, prepare, say

from pileus.testing.control_plane import leash

VARIABLE = "PILEUS_NODE_BED"
"""Names the folder of a bed, to the command that runs in its namespaces."""
UNAVAILABLE = 3
INIT = '"$@"; exit $?'
"""The first process of the namespace: it waits for the command and for orphans."""


def main() -> int:
    given = _arguments()
    try:
        _check_machine()
        if given.set_up_only:
            commands()
            packages()
            return 0
        return run(given.command)
    except Unavailable as error:
        say(f"not available: {error}")
        return UNAVAILABLE


def run(command: list[str]) -> int:
    """Runs the command in a bed and returns its exit code."""

    def fill(folder: Path) -> None:
        prepared = asdict(prepare(folder))
        (folder / "prepared.json").write_text(json.dumps(prepared, default=str))

    return contain(command, fill)


def contain(command: list[str], fill: Callable[[Path], None]) -> int:
    """Runs the command in namespaces of its own, with a new folder that `fill` has filled.

    Nothing is left when it ends, or when this process is killed.
    """
    folder = Path(tempfile.mkdtemp(prefix="pileus-node-"))
    folder.chmod(0o711)
    reading, writing = os.pipe()
    cleaner = [sys.executable, "-m", "tools.node_bed.janitor", str(reading), str(folder)]
    with subprocess.Popen(
        [*cleaner, folder.name], pass_fds=(reading,), start_new_session=True
    ) as janitor:
        os.close(reading)
        try:
            fill(folder)
            return _contained(command, folder, writing)
        finally:
            os.close(writing)
            janitor.wait()


def _contained(command: list[str], folder: Path, pipe: int) -> int:
    namespaces = ["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    done = subprocess.run(
        [*leash(), "unshare", *namespaces, "bash", "-c", INIT, "init", *command],
        env=os.environ | {VARIABLE: str(folder)},
        pass_fds=(pipe,),
        check=False,
    )
    return done.returncode


def _check_machine() -> None:
    if os.getuid() != 0:
        raise Unavailable("a node needs root. Fix: sudo make e2e")
    missing = [name for name in ("unshare", "ip", "mount") if not shutil.which(name)]
    if missing:
        raise Unavailable(f"not on the PATH: {', '.join(missing)}")
    if not os.access(CGROUPS, os.W_OK):
        raise Unavailable(f"{CGROUPS} is not writable")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.node_bed", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--set-up-only", action="store_true", help="prepare the cache, and no more")
    parser.add_argument("command", nargs="*", help="command to run")
    given = parser.parse_args()
    if not given.set_up_only and not given.command:
        parser.error("no command. Run the tests with: make e2e")
    return given


if __name__ == "__main__":
    sys.exit(main())
