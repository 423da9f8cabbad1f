"""MariaDB for the bed: Debian's packages, unpacked into a folder and never installed.

Where there is no apt, a MariaDB that is installed on the machine is used.
"""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tools.apt import Unavailable, apt, missing_tool
from tools.apt import unpack as unpack_archive
from tools.openstack_bed.processes import Failed, Processes

PACKAGES = ("mariadb-server-core", "mariadb-client-core")
FOUND_ON_EVERY_MACHINE = ("libc6_",)
"""Never unpacked: it must match the dynamic loader of the machine."""
START_LIMIT = 60.0
SOCKET_PATH_LIMIT = 100
SETTINGS = (
    "--skip-networking",
    "--skip-log-bin",
    "--skip-name-resolve",
    "--performance-schema=off",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--innodb-buffer-pool-size=128M",
    "--innodb-log-file-size=24M",
    "--max-connections=1000",
)


@dataclass(frozen=True)
class MariaDB:
    """The programs: under `root`, or the machine's own if it is None."""

    root: Path | None

    def program(self, name: str) -> str:
        if self.root is None:
            return name
        folder = "sbin" if name == "mariadbd" else "bin"
        return str(self.root / "usr" / folder / name)

    def environment(self) -> dict[str, str]:
        if self.root is None:
            return dict(os.environ)
        libraries = [str(path) for path in self.root.glob("**/*-linux-gnu*") if path.is_dir()]
        programs = f"{self.root}/usr/bin:{self.root}/usr/sbin:{os.environ['PATH']}"
        return os.environ | {"LD_LIBRARY_PATH": ":".join(libraries), "PATH": programs}


def unpack(folder: Path) -> None:
    """Downloads Debian's packages and unpacks them into the folder."""
    if tool := missing_tool():
        raise Unavailable(f"no {tool}, and no mariadbd on the PATH. Fix: install MariaDB 10.6+")
    (folder / "root").mkdir(parents=True, exist_ok=True)
    apt(folder, "update")
    apt(folder, "install", "--download-only", "--yes", "--no-install-recommends", *PACKAGES)
    for package in sorted((folder / "archives").glob("*.deb")):
        if not package.name.startswith(FOUND_ON_EVERY_MACHINE):
            unpack_archive(package, folder / "root")
    for name in ("lists", "archives"):
        shutil.rmtree(folder / name)


class Database:
    """One server on a Unix socket, with all its files in the folder of a bed."""

    def __init__(self, programs: MariaDB, folder: Path, processes: Processes) -> None:
        self._programs = programs
        self._folder = folder
        self._processes = processes
        self.data = folder / "mysql"
        self.socket = folder / "mysql.sock"
        if len(str(self.socket)) > SOCKET_PATH_LIMIT:
            raise Unavailable(f"path too long for a Unix socket: {self.socket}. Fix: PILEUS_CACHE")

    def create(self) -> None:
        """Creates the system tables."""
        base = [f"--basedir={self._programs.root}/usr"] if self._programs.root else []
        command = [
            self._programs.program("mariadb-install-db"),
            "--no-defaults",
            *base,
            *self._user(),
            f"--datadir={self.data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
        with (self._folder / "log" / "mysql-install.log").open("wb") as log:
            subprocess.run(
                command, env=self._programs.environment(), stdout=log, stderr=log, check=True
            )

    def start(self) -> None:
        root = self._programs.root
        self._processes.start(
            "mariadbd",
            [
                self._programs.program("mariadbd"),
                "--no-defaults",
                *([f"--basedir={root}/usr"] if root else []),
                *self._user(),
                f"--datadir={self.data}",
                f"--socket={self.socket}",
                *SETTINGS,
            ],
            self._programs.environment(),
        )
        deadline = time.monotonic() + START_LIMIT
        while not self._answers():
            self._processes.check("mariadbd")
            if time.monotonic() > deadline:
                raise Failed(f"MariaDB did not start within {START_LIMIT:g} s")
            time.sleep(0.1)

    def run(self, statement: str, database: str = "") -> str:
        """Runs SQL and returns its output, one line per row, fields separated by tabs."""
        done = self._client(statement, database)
        if done.returncode:
            raise Failed(f"SQL failed: {done.stderr.strip()}")
        return done.stdout

    def _answers(self) -> bool:
        return self.socket.exists() and self._client("select 1", "").returncode == 0

    def _client(self, statement: str, database: str) -> subprocess.CompletedProcess[str]:
        command = [
            self._programs.program("mariadb"),
            "--no-defaults",
            f"--socket={self.socket}",
            "--user=root",
            "--batch",
            "--skip-column-names",
            *([database] if database else []),
        ]
        return subprocess.run(
            command,
            input=statement,
            env=self._programs.environment(),
            capture_output=True,
            text=True,
            check=False,
        )

    @staticmethod
    def _user() -> list[str]:
        return ["--user=root"] if os.getuid() == 0 else []
