"""The root filesystem of the image, in the folders of its layers.

base     Debian's Python, its libraries and certificates: changes when the Debian lock changes
library  the wheels that Pileus needs: changes when the runtime lock changes
program  Pileus and its bill of materials: a few megabytes
"""

import fnmatch
import os
import shutil
import subprocess
from pathlib import Path

from tools.apt import Unavailable, unpack
from tools.build_image import debian
from tools.build_image.architecture import native
from tools.build_image.debian import Package
from tools.build_image.wheels import PYTHON

USER = 65532
KEPT = ("usr/lib/os-release", "etc/debian_version")
"""What is taken from base-files: scanners identify the distribution by these files."""
DROPPED = (
    "usr/share/man/*",
    "usr/share/locale/*",
    "usr/share/lintian/*",
    "usr/share/bug/*",
    "usr/share/applications/*",
    "usr/share/binfmts/*",
    "usr/share/pixmaps/*",
    "usr/share/python3/*",
    "usr/lib/python3/*",
    "usr/lib/*/gconv/*",
    "usr/lib/*/audit/*",
    "lib/*/gconv/*",
    "usr/sbin/*",
    "etc/ca-certificates/*",
    "usr/lib/python3.11/ensurepip/*",
    "usr/lib/python3.11/lib2to3/*",
    "usr/lib/python3.11/pydoc_data/*",
    "usr/lib/python3.11/idlelib/*",
    "usr/lib/python3.11/turtledemo/*",
    "usr/lib/python3.11/curses/*",
    "usr/lib/python3.11/dbm/*",
    "usr/lib/python3.11/turtle.py",
    "usr/lib/python3.11/crypt.py",
    "usr/lib/python3.11/lib-dynload/_crypt.*",
    "usr/lib/python3.11/lib-dynload/_curses*",
    "usr/lib/python3.11/lib-dynload/_dbm.*",
    "usr/lib/python3.11/lib-dynload/nis.*",
    "usr/lib/python3.11/lib-dynload/readline.*",
    "usr/lib/python3.11/lib-dynload/_test*",
    "usr/lib/python3.11/lib-dynload/_xxtest*",
    "usr/lib/python3.11/lib-dynload/xx*",
)
"""Not needed to run a server; the modules of Python need libraries that the image has not."""
NEEDED = frozenset({"usr/sbin/xfs_growfs"})
"""Kept of what is dropped: it grows XFS in an image with the CSI driver."""
DOCUMENTS = "usr/share/doc/"
BUNDLE = "etc/ssl/certs/ca-certificates.crt"
FILES = {
    "etc/passwd": f"root:x:0:0::/:/sbin/nologin\npileus:x:{USER}:{USER}::/:/sbin/nologin\n",
    "etc/group": f"root:x:0:\npileus:x:{USER}:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


def fill_base(root: Path, packages: dict[Package, Path]) -> None:
    """Unpacks Debian's packages into the folder and adds what their scripts would have made."""
    status = root / "var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    for package, archive in packages.items():
        (status / package.name).write_text(debian.control(archive))
        if package.name == "base-files":
            _unpack_some(archive, root)
        else:
            unpack(archive, root)
    _drop(root)
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    _write(root, BUNDLE, "".join(path.read_text() for path in certificates))
    shutil.rmtree(root / "usr/share/ca-certificates")
    for name, content in FILES.items():
        _write(root, name, content)
    _link(root, "etc/os-release", "../usr/lib/os-release")
    _link(root, "usr/lib/ssl/cert.pem", f"/{BUNDLE}")
    _link(root, "usr/bin/python3", f"python{PYTHON}")
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)


def compile_all(root: Path, folder: str, base: Path) -> None:
    """Writes the bytecode of a folder, since a read-only root cannot cache it.

    Runs the Python in `base`, that of an image for this machine, without a container: by its own
    loader, with its own libraries.
    The bytecode is valid without a check of the source's time, and the same at every build.
    """
    machine = native()
    libraries = ":".join(str(base / each) for each in machine.libraries)
    python = [
        base / machine.loader,
        "--library-path",
        libraries,
        base / f"usr/bin/python{PYTHON}",
        "-S",
    ]
    options = ["-q", "-j", "1", "--invalidation-mode", "unchecked-hash", "-s", root, "-p", "/"]
    done = subprocess.run(
        [*python, "-m", "compileall", *options, root / folder],
        env={"PYTHONHOME": f"{base}/usr", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Unavailable(f"the bytecode of {folder} cannot be written:\n{done.stdout[-2000:]}")


def _unpack_some(archive: Path, root: Path) -> None:
    scratch = root.with_name("base-files")
    unpack(archive, scratch)
    for name in KEPT:
        _write(root, name, (scratch / name).read_text())
    shutil.rmtree(scratch)


def _drop(root: Path) -> None:
    """Removes what a server does not need, and then folders without content."""
    for folder, _, files in os.walk(root, topdown=False):
        for file in files:
            path = Path(folder, file)
            name = str(path.relative_to(root))
            is_other_document = name.startswith(DOCUMENTS) and path.name != "copyright"
            is_dropped = any(fnmatch.fnmatch(name, each) for each in DROPPED)
            if is_other_document or (is_dropped and name not in NEEDED):
                path.unlink()
            elif not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o777)  # no setuid
        if not os.listdir(folder) and Path(folder) != root:
            Path(folder).rmdir()


def _write(root: Path, name: str, content: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def _link(root: Path, name: str, target: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)
