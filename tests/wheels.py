"""The wheels of both distributions, and virtual environments as pip would set them up.

Nothing is downloaded: what the wheels depend on is copied from the environment of the tests, which
was installed from the lock. pip then checks that every declared dependency is there.
"""

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
OURS = {"pileus", "pileus-lab"}
LIMIT = 240


def build_wheels(folder: Path) -> dict[str, Path]:
    """Build both and return them by the name of the distribution."""
    offline = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    command = [*PIP, "wheel", *offline, "--wheel-dir", str(folder), str(ROOT), str(ROOT / "lab")]
    subprocess.run(command, check=True, timeout=LIMIT)
    return {name: _wheel(folder, name) for name in sorted(OURS)}


def _wheel(folder: Path, name: str) -> Path:
    (found,) = folder.glob(f"{name.replace('-', '_')}-*.whl")
    return found


class FreshVenv:
    """A virtual environment with nothing but what is installed here."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.bin = folder / "bin"
        (self.packages,) = folder.glob("lib/python*/site-packages")

    def install(self, requirement: str, *wheels: Path) -> None:
        """Install from those wheels, with what they and their extras need.

        Raises if the requirement needs anything that is not declared or not in the lock.
        """
        offline = ["--quiet", "--no-index", *(f"--find-links={each.parent}" for each in wheels)]
        for each in closure(requirement):
            _copy(each, self.packages)
        command = [*PIP, "--python", str(self.bin / "python"), "install", *offline, requirement]
        subprocess.run(command, check=True, timeout=LIMIT)

    def run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a program of the environment, far away from the checkout."""
        return subprocess.run(
            [str(self.bin / program), *arguments],
            cwd=self.packages,
            env={"PATH": str(self.bin), "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )


def closure(requirement: str) -> Iterator[Distribution]:
    """What that needs, directly or not; our own distributions are left out."""
    waiting, known = [Requirement(requirement)], set[str]()
    while waiting:
        one = waiting.pop()
        key = f"{canonicalize_name(one.name)}[{','.join(sorted(one.extras))}]"
        if key in known:
            continue
        known.add(key)
        found = distribution(one.name)
        waiting.extend(
            Requirement(each) for each in found.requires or () if _applies(Requirement(each), one)
        )
        if canonicalize_name(one.name) not in OURS:
            yield found


def _applies(needed: Requirement, by: Requirement) -> bool:
    extras = by.extras or {""}
    return needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in extras)


def _copy(found: Distribution, packages: Path) -> None:
    for file in found.files or ():
        if ".." in file.parts or file.suffix == ".pyc":
            continue
        (packages / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(file.locate()), packages / file)
