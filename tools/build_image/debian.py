"""Debian packages by name, version and hash: downloaded into the cache, unpacked, never installed.

The lock is a text file with one package per line: name, version, SHA-256 of the archive.
"""

import hashlib
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.apt import Unavailable, apt, missing_tool
from tools.build_control_plane import cache_folder
from tools.build_image.architecture import Architecture, of_lock


@dataclass(frozen=True)
class Package:
    """One line of a lock."""

    name: str
    version: str
    sha256: str


def read_lock(lock: Path) -> tuple[Package, ...]:
    lines = (line.split() for line in lock.read_text().splitlines() if not line.startswith("#"))
    return tuple(Package(*line) for line in lines if line)


def renew_lock(lock: Path) -> None:
    """Writes the versions that Debian's archive has now; the comments of the lock are kept."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        architecture = of_lock(lock)
        _apt(folder, architecture, "update")
        names = [package.name for package in read_lock(lock)]
        _apt(folder, architecture, "download", *names)
        renewed = {name: _described(folder, name) for name in names}
    lines = [line for line in lock.read_text().splitlines() if line.startswith("#")]
    lines += [f"{p.name} {p.version} {p.sha256}" for _, p in sorted(renewed.items())]
    lock.write_text("\n".join(lines) + "\n")


def archives(lock: Path) -> dict[Package, Path]:
    """Returns the archive of every package of the lock; downloads what the cache does not have.

    Raises Unavailable if a package cannot be had, or not with that hash.
    """
    packages = read_lock(lock)
    cache = cache_folder() / "debian"
    cache.mkdir(parents=True, exist_ok=True)
    missing = [each for each in packages if not (cache / f"{each.sha256}.deb").exists()]
    if missing:
        _download(missing, cache, lock)
    return {each: cache / f"{each.sha256}.deb" for each in packages}


def control(archive: Path) -> str:
    """Returns the control file of a package, as `dpkg` keeps it in its status."""
    shown = subprocess.run(
        ["dpkg-deb", "--field", archive], capture_output=True, text=True, check=True
    )
    return shown.stdout


def _download(missing: list[Package], cache: Path, lock: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        folder = Path(scratch)
        architecture = of_lock(lock)
        _apt(folder, architecture, "update")
        _apt(folder, architecture, "download", *(f"{one.name}={one.version}" for one in missing))
        for each in missing:
            (found,) = folder.glob(f"{each.name}_*.deb")
            if _hash(found) != each.sha256:
                raise Unavailable(f"{each.name} {each.version} has another SHA-256 than {lock}")
            found.rename(cache / f"{each.sha256}.deb")


def _described(folder: Path, name: str) -> Package:
    (found,) = folder.glob(f"{name}_*.deb")
    shown = subprocess.run(
        ["dpkg-deb", "--field", found, "Version"], capture_output=True, text=True, check=True
    )
    return Package(name, shown.stdout.strip(), _hash(found))


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _apt(folder: Path, architecture: Architecture, *arguments: str) -> None:
    if tool := missing_tool():
        raise Unavailable(f"no {tool} on the PATH. Fix: build on Debian or Ubuntu")
    try:
        apt(folder, *arguments, options=architecture.apt)
    except Unavailable as error:
        raise Unavailable(f"{error}\nIf Debian's archive has newer versions: make lock") from error
