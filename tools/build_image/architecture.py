"""The processor architectures for which the image is built, by the name that images have.

An image for another architecture than the machine's is built on it, too: nothing of it is run. Its
bytecode is written by the Python of the machine's own image, which has the same version.
"""

import platform
from dataclasses import dataclass
from pathlib import Path

from tools.apt import Unavailable

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"


@dataclass(frozen=True)
class Architecture:
    """One architecture; Debian and images use the same name for it."""

    name: str
    machine: str
    """What the kernel and Python's wheels call it."""
    loader: str
    """The dynamic loader, in the folder of the base layer."""

    @property
    def libraries(self) -> tuple[str, str]:
        return (f"lib/{self.machine}-linux-gnu", f"usr/lib/{self.machine}-linux-gnu")

    def lock(self, name: str) -> Path:
        """Returns the lock of Debian packages with this name."""
        return REQUIREMENTS / f"{name}-{self.name}.lock"

    @property
    def apt(self) -> tuple[str, ...]:
        """Returns the options with which apt downloads its packages."""
        return ("-o", f"APT::Architecture={self.name}", "-o", f"APT::Architectures={self.name}")


AMD64 = Architecture("amd64", "x86_64", "lib64/ld-linux-x86-64.so.2")
ARM64 = Architecture("arm64", "aarch64", "lib/ld-linux-aarch64.so.1")
ARCHITECTURES = {each.name: each for each in (AMD64, ARM64)}


def native() -> Architecture:
    """Returns the architecture of this machine. Raises Unavailable if it is another one."""
    for each in ARCHITECTURES.values():
        if platform.machine() == each.machine:
            return each
    known = " and ".join(each.machine for each in ARCHITECTURES.values())
    raise Unavailable(f"the locks are for {known}, and this machine is {platform.machine()}")


def of_lock(lock: Path) -> Architecture:
    """Returns the architecture of a lock of Debian packages; without one in its name: amd64."""
    return ARCHITECTURES.get(lock.stem.rpartition("-")[2], AMD64)
