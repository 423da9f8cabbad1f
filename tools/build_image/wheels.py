"""The Python part of the image: locked wheels from PyPI, and those of this checkout.

Wheels are unpacked, not installed, so that no path of the building machine gets into the image.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from configparser import ConfigParser
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from functools import cached_property
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.apt import Unavailable
from tools.build_control_plane import cache_folder
from tools.build_image.architecture import AMD64, Architecture

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements" / "runtime.lock"
PYTHON = "3.11"
GLIBC_MINOR = 36
"""Debian 12 has glibc 2.36: wheels for it and for older ones work."""
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
SOURCES = {"pileus": ROOT, "pileus-lab": ROOT / "lab"}
FIXED_TIME = "315532800"
"""1980-01-01, the earliest time that a wheel can state."""
SCRIPT = """\
#!/usr/bin/python{python}
import sys

from {module} import {function}

sys.exit({function}())
"""


@dataclass(frozen=True)
class Wheel:
    """A wheel on disk."""

    path: Path

    @cached_property
    def metadata(self) -> Message:
        return Parser().parsestr(self._info("METADATA"))

    @property
    def name(self) -> str:
        return canonicalize_name(self.metadata["Name"])

    @property
    def version(self) -> str:
        return self.metadata["Version"]

    @property
    def license(self) -> str | None:
        """The SPDX expression of its license, if the wheel states one."""
        return self.metadata["License-Expression"]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def needs(self, extras: Iterable[str]) -> tuple[Requirement, ...]:
        """Returns what it requires in the image, with these extras of its own."""
        required = [Requirement(each) for each in self.metadata.get_all("Requires-Dist") or ()]
        return tuple(each for each in required if _applies(each, {"", *extras}))

    def scripts(self) -> Mapping[str, str]:
        """Returns the commands of the wheel: name, and `module:function`."""
        declared = ConfigParser()
        declared.read_string(self._info("entry_points.txt"))
        return dict(declared["console_scripts"]) if declared.has_section("console_scripts") else {}

    def unpack(self, root: Path) -> None:
        """Unpacks into the root filesystem. Raises Unavailable if it has files for elsewhere."""
        with zipfile.ZipFile(self.path) as archive:
            for name in archive.namelist():
                if ".data/" in name:
                    raise Unavailable(f"{self.path.name} has files outside site-packages: {name}")
            archive.extractall(root / SITE)

    def _info(self, file: str) -> str:
        with zipfile.ZipFile(self.path) as archive:
            found = [n for n in archive.namelist() if n.endswith(f".dist-info/{file}")]
            return archive.read(found[0]).decode() if found else ""


def locked(architecture: Architecture) -> dict[str, Wheel]:
    """Returns the wheels of the lock by name; downloads them into the cache if they are not there.

    Raises Unavailable if they cannot be had with the hashes of the lock.
    """
    about = f"{PYTHON}{'' if architecture is AMD64 else architecture.name}"
    key = hashlib.sha256(LOCK.read_bytes() + about.encode()).hexdigest()[:16]
    folder = cache_folder() / "wheels" / key
    if not folder.exists():
        _download(folder, architecture.machine)
    return {wheel.name: wheel for wheel in map(Wheel, sorted(folder.glob("*.whl")))}


def own(folder: Path) -> dict[str, Wheel]:
    """Builds the wheels of this checkout into the folder and returns them by name."""
    offline = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    command = [*PIP, "wheel", *offline, "--wheel-dir", str(folder), *map(str, SOURCES.values())]
    _run(command, {"SOURCE_DATE_EPOCH": FIXED_TIME})
    return {wheel.name: wheel for wheel in map(Wheel, sorted(folder.glob("*.whl")))}


def closure(extras: Iterable[str], available: Mapping[str, Wheel]) -> dict[str, Wheel]:
    """Returns pileus with these extras and everything that it needs, by name.

    Raises Unavailable if something is needed that is not available.
    """
    waiting, chosen = [("pileus", frozenset(extras))], set[tuple[str, frozenset[str]]]()
    while waiting:
        one = waiting.pop()
        if one in chosen:
            continue
        chosen.add(one)
        name, wanted = one
        if name not in available:
            raise Unavailable(f"{name} is needed but not in {LOCK.name}. Fix: make lock")
        waiting += [
            (canonicalize_name(each.name), frozenset(each.extras))
            for each in available[name].needs(wanted)
        ]
    return {name: available[name] for name in sorted({name for name, _ in chosen})}


def write_scripts(wheel: Wheel, root: Path) -> None:
    """Writes the commands of a wheel to /usr/local/bin."""
    folder = root / "usr/local/bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name, target in sorted(wheel.scripts().items()):
        module, _, function = target.partition(":")
        script = folder / name
        script.write_text(SCRIPT.format(python=PYTHON, module=module, function=function))
        script.chmod(0o755)


def _download(folder: Path, machine: str) -> None:
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC_MINOR, 4, -1)]
    platforms += [f"manylinux2014_{machine}", "any"]
    choice = ["--implementation=cp", f"--python-version={PYTHON}", "--only-binary=:all:"]
    choice += [f"--platform={each}" for each in platforms]
    command = [*PIP, "download", "--quiet", "--no-deps", "--require-hashes", *choice]
    try:
        _run([*command, "--dest", str(scratch), "--requirement", str(LOCK)], {})
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(command: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(f"pip {command[4]} failed (network?):\n{done.stderr[-2000:]}")


def _applies(needed: Requirement, extras: set[str]) -> bool:
    marker = needed.marker
    return marker is None or any(
        marker.evaluate(_environment() | {"extra": extra}) for extra in extras
    )


def _environment() -> dict[str, str]:
    """Returns the values of markers in the image, whatever Python builds it."""
    return {
        **{name: str(value) for name, value in default_environment().items()},
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "python_version": PYTHON,
        "python_full_version": f"{PYTHON}.2",
    }
