"""The version and commit of Pileus, and the Kubernetes version that it implements."""

import sys
from functools import cache
from pathlib import Path

PILEUS = "0.1.0"
KUBERNETES = "v1.37.1"
"""The release of the Go framework whose flags, metrics and events we keep."""
PROGRAM = "cloud-controller-manager"
"""The name that events, metrics, user agents and files know us by."""
INSTALLED = f"pileus-{PROGRAM}"
"""Name of the manager's workload, service account and roles in a cluster. It is not PROGRAM: the
charts of Go managers create objects of that name, and delete them when they are uninstalled."""
PART_OF, COMPONENT = "app.kubernetes.io/part-of", "app.kubernetes.io/component"
"""Labels of all objects of an installation, and of its parts: `rights`, `csi`."""
ON_INDEX = False
"""Whether a version is on PyPI. Until then, the name there is not ours to point to."""


def installing(extra: str, *, again: bool = False) -> str:
    """Returns the command that installs an extra such as `lab`; `again`: that replaces it."""
    pip = "pip install --force-reinstall" if again else "pip install"
    if ON_INDEX:
        return f"{pip} 'pileus[{extra}]'"
    what = ". ./lab" if extra == "lab" else f"'.[{extra}]'"
    return f"{pip} {what} (in a clone of the repository)"


INSTALL_LAB = installing("lab")
"""Adds the laboratory's commands and the provider `local`."""

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


UNKNOWN = "unknown"
_HERE = Path(__file__).parent
_STAMP = "commit.txt"
"""Written into a distribution when it is built."""
_PATIENCE = 5.0


@cache
def commit() -> str:
    """The commit of the running code: 12 digits, with `-modified` if files differ from it.

    It is that of the build, or of the checkout that the code runs from; else `unknown`.
    """
    try:
        return (_HERE / _STAMP).read_text(encoding="ascii").strip() or UNKNOWN
    except (OSError, UnicodeDecodeError):
        return checked_out(_HERE.parent.parent)


def checked_out(root: Path) -> str:
    """The commit of the checkout at `root`, which has this package in src; else `unknown`."""
    if not (root / ".git").exists() or not (root / "src" / "pileus").is_dir():
        return UNKNOWN
    head = _git(root, "rev-parse", "--short=12", "HEAD")
    changed = _git(root, "status", "--porcelain", "--", "src", "lab/src")
    if not head or changed is None:
        return UNKNOWN
    return f"{head}-modified" if changed else head


def _git(root: Path, *arguments: str) -> str | None:
    import subprocess  # noqa: PLC0415 -- slow to import, and needed in a checkout only

    try:
        done = subprocess.run(  # noqa: S603 -- fixed arguments
            ["git", "-C", str(root), *arguments],  # noqa: S607 -- the git of the developer
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def system() -> str:
    """System and machine in Go's words, such as `linux/amd64`."""
    import platform  # noqa: PLC0415 -- slow to import, and needed once

    machine = platform.machine()
    return f"{sys.platform}/{_MACHINES.get(machine, machine)}"
