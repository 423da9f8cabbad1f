"""Debian's packages, downloaded by apt and unpacked, never installed.

Needs no root and changes nothing on the machine: apt keeps its state in a folder that is given.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path


class Unavailable(Exception):
    """Something cannot be had on this machine; the message names what is missing."""


def missing_tool() -> str:
    """Returns the first of the programs that is not on the PATH; empty if all are."""
    return next((tool for tool in ("apt-get", "dpkg-deb") if not shutil.which(tool)), "")


def apt(folder: Path, *arguments: str, options: Sequence[str] = ()) -> None:
    """Run apt-get in the folder, with its state there and archives in `archives`."""
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    places = {
        "Dir::State": folder,
        "Dir::State::status": folder / "status",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder,
        "Dir::Cache::archives": folder / "archives",
        "Dir::Log": folder,
        "Debug::NoLocking": "true",
        "APT::Sandbox::User": "",
        "APT::Update::Post-Invoke": "",
        "DPkg::Post-Invoke": "",
    }
    given = [part for key, value in places.items() for part in ("-o", f"{key}={value}")]
    done = subprocess.run(
        ["apt-get", "-qq", *given, *options, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Unavailable(
            f"apt-get {arguments[0]} failed (network, or /etc/apt/sources.list?):\n"
            f"{done.stderr.strip()}"
        )


def unpack(archive: Path, into: Path) -> None:
    subprocess.run(["dpkg-deb", "-x", archive, into], check=True)
