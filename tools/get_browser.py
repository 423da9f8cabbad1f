"""Prints the path of a headless Chromium for the tests of the history page.

Debian's packages are downloaded and unpacked into a cache, not installed. Needs apt on Debian or a
relative of it. Exits with 1 and a reason where that is not possible, and with `--cached` where it
was not downloaded before.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.build_control_plane import cache_folder

PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core")
CACHE = cache_folder() / "browser"
PROGRAM = Path("usr/lib/chromium/chromium-headless-shell")


def main() -> int:
    if not (CACHE / "ready").exists():
        if "--cached" in sys.argv:
            return 1
        try:
            fetch(CACHE)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"no browser: {error}", file=sys.stderr)
            return 1
    print(CACHE / "browser")
    return 0


def fetch(folder: Path) -> None:
    """Download the packages and what they need, unpack them, and write a script that starts it."""
    shutil.rmtree(folder, ignore_errors=True)
    packages, root = folder / "packages", folder / "root"
    packages.mkdir(parents=True)
    root.mkdir()
    asked = ["apt-get", "install", "--print-uris", "--yes", "--no-install-recommends", *PACKAGES]
    listed = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    names = re.findall(r"^'[^']+' ([^_ ]+)_", listed, re.MULTILINE)
    get = ["apt-get", "download", "-q", *(names or PACKAGES)]
    subprocess.run(get, cwd=packages, check=True, capture_output=True)
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True, capture_output=True)
    shutil.rmtree(packages)
    binary = root / PROGRAM
    libraries = ":".join(sorted({str(path.parent) for path in root.rglob("lib*.so*")}))
    script = folder / "browser"
    script.write_text(
        f"#!/bin/sh\nexport LD_LIBRARY_PATH={libraries}\nexport XDG_DATA_DIRS={root}/usr/share\n"
        f'exec {binary} "$@"\n'
    )
    script.chmod(0o755)
    (folder / "ready").touch()


if __name__ == "__main__":
    sys.exit(main())
