"""What every bed needs and what is made once: programs, libraries, and a filled database.

All of it is kept outside the clone, in folders named by a hash of what shapes them. A set-up that
was interrupted is resumed; of several at once, one works and the others wait.
"""

import contextlib
import fcntl
import hashlib
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from tools.apt import Unavailable
from tools.build_control_plane import cache_folder
from tools.openstack_bed.mariadb import MariaDB, unpack

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LOCK = HERE / "requirements.lock"
UV_LOCK = HERE / "uv.lock"
SHAPE_THE_IMAGE = (LOCK, HERE / "image.py", HERE / "services" / "content.py")
"""The rest of this folder has effect when a bed starts."""
PYTHON = (3, 11)
"""The lock of the services was made for this version."""
DONE = "done"
BUILDING = "building-"
"""Prefix of folders that exist during a set-up only."""


@dataclass(frozen=True)
class Prepared:
    """What a bed is started from."""

    venv: Path
    mariadb: MariaDB
    image: Path
    """Archive of the folders of a bed whose database is migrated and filled."""


def is_prepared() -> bool:
    return (image_folder() / DONE).exists()


def place() -> Path:
    return cache_folder() / "openstack-bed"


def venv_folder() -> Path:
    return place() / f"venv-{_hash(LOCK.read_bytes() + UV_LOCK.read_bytes())}"


def mariadb_folder() -> Path:
    release = Path("/etc/debian_version")
    name = release.read_text() if release.exists() else platform.platform()
    return place() / f"mariadb-{_hash((name + platform.machine()).encode())}"


def image_folder() -> Path:
    return place() / f"image-{_hash(b''.join(path.read_bytes() for path in SHAPE_THE_IMAGE))}"


def prepare(build_image: Callable[[Path, MariaDB, Path], None]) -> Prepared:
    """Returns what a bed is started from; makes what is missing.

    Raises Unavailable if this machine cannot make it.
    """
    place().mkdir(parents=True, exist_ok=True)
    with _only_one():
        for interrupted in place().glob(f"{BUILDING}*"):
            shutil.rmtree(interrupted)
        what = "installing the OpenStack services (190 packages)"
        venv = _folder(venv_folder(), what, _install) / "venv"
        programs = _mariadb()
        image = _folder(
            image_folder(),
            "creating and filling the databases",
            lambda folder: build_image(venv, programs, folder),
        )
    return Prepared(venv, programs, image / "image.tar.gz")


def say(text: str) -> None:
    print(f"openstack bed: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _only_one() -> Generator[None]:
    with (place() / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up of this user")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _folder(folder: Path, what: str, fill: Callable[[Path], None]) -> Path:
    """Fills a folder once. The file `done` is written last; without it the folder is remade."""
    if not (folder / DONE).exists():
        started = time.monotonic()
        say(f"{what} …")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        fill(folder)
        (folder / DONE).write_text("")
        say(f"{what}: done in {time.monotonic() - started:.0f} s")
    return folder


def _mariadb() -> MariaDB:
    if not shutil.which("apt-get") and shutil.which("mariadbd"):
        return MariaDB(None)
    what = "downloading MariaDB from Debian (17 MB, not installed)"
    return MariaDB(_folder(mariadb_folder(), what, unpack) / "root")


def _install(folder: Path) -> None:
    python = _python()
    uv = folder / "uv"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--require-hashes", "--no-deps", "--target", str(uv), "-r", str(UV_LOCK)])
    command = [str(uv / "bin" / "uv"), "--quiet"]
    _run([*command, "venv", "--clear", "--python", python, str(folder / "venv")])
    install = ["pip", "install", "--python", str(folder / "venv" / "bin" / "python")]
    _run([*command, *install, "--no-deps", "--require-hashes", "-r", str(LOCK)])
    shutil.rmtree(uv)


def _python() -> str:
    """Returns a Python of the version that the lock was made for."""
    if sys.version_info[:2] == PYTHON:
        return sys.executable
    name = f"python{PYTHON[0]}.{PYTHON[1]}"
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"the services need {name}, which is not on the PATH")
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(command[:4])} … failed (network?):\n{done.stderr[-2000:]}")


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
