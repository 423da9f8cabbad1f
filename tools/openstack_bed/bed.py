"""One running OpenStack: seven services and a database, on free ports of the loopback interface.

    with Bed.started(prepared, folder) as bed:
        print(bed.auth_url)

Everything that the bed writes is in its folder: `log/SERVICE.log`, `log/SERVICE.access.jsonl` (one
line per request), `conf/`. Several beds can run side by side.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import string
import subprocess
import tarfile
import time
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from tools.openstack_bed.cache import ROOT, Prepared
from tools.openstack_bed.mariadb import Database, MariaDB
from tools.openstack_bed.processes import Failed, Processes

from pileus.clock import SystemClock
from pileus.pki import Authority, Subject
from pileus.testing.control_plane import free_ports

SERVICES = ("keystone", "placement", "glance", "neutron", "nova", "octavia", "cinder")
PASSWORD = "openstack"  # noqa: S105 -- of every user of a bed, which listens on loopback only
REGION = "RegionOne"
START_LIMIT = 300.0
FOLDERS = ("conf", "log", "lock", "ca", "fernet", "mysql", "state/nova", "state/cinder")
GLANCE_FOLDERS = ("glance/images", "glance/staging", "glance/tasks", "state/neutron")
IN_IMAGE = ("mysql", "fernet", "glance")
"""What the image of a filled bed consists of; the rest is written again for each bed."""
DRIVERS = {
    "neutron.ml2.mechanism_drivers": "bed = {package}.neutron_driver:BedMechanismDriver",
    "octavia.compute.drivers": "bed = {package}.octavia_driver:BedComputeDriver",
}
PACKAGE = "tools.openstack_bed.services"
NOVA_HOST_ID = "5f0c1b52-3c0a-4b53-9c39-0c9f6b3f5a01"


@dataclasses.dataclass(frozen=True)
class Address:
    """How a running bed is reached, as kept in its folder."""

    ports: dict[str, int]
    venv: str
    mariadb: str

    def write(self, folder: Path) -> None:
        (folder / "bed.json").write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Self:
        return cls(**json.loads((folder / "bed.json").read_text()))


class Bed:
    """A folder with a configuration, a database and processes."""

    def __init__(self, folder: Path, address: Address, *, is_detached: bool = False) -> None:
        self.folder = folder
        self.ports = address.ports
        self.venv = Path(address.venv)
        self.processes = Processes(folder, is_detached=is_detached)
        programs = MariaDB(Path(address.mariadb) if address.mariadb else None)
        self.database = Database(programs, folder, self.processes)
        self.address = address

    @classmethod
    def new(cls, folder: Path, venv: Path, mariadb: MariaDB, *, is_detached: bool = False) -> Self:
        """Returns a bed with free ports and its configuration. Nothing runs yet."""
        ports: dict[str, int] = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
        for name in (*FOLDERS, *GLANCE_FOLDERS):
            (folder / name).mkdir(parents=True, exist_ok=True)
        bed = cls(
            folder,
            Address(ports, str(venv), str(mariadb.root or "")),
            is_detached=is_detached,
        )
        bed.configure()
        return bed

    @classmethod
    def running(cls, folder: Path) -> Self:
        """Returns the bed that was started in that folder. Raises Failed if none runs."""
        if not (folder / "bed.json").exists():
            raise Failed(f"no bed runs in {folder}. Start one: make testbed-openstack")
        bed = cls(folder, Address.read(folder))
        if not bed.processes.are_running():
            raise Failed(f"the bed in {folder} does not run. Start it: make testbed-openstack")
        return bed

    @classmethod
    def start(cls, prepared: Prepared, folder: Path, *, is_detached: bool = False) -> Self:
        """Starts a bed from the filled image in an empty folder."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with tarfile.open(prepared.image) as image:
            image.extractall(folder, filter="data")
        bed = cls.new(folder, prepared.venv, prepared.mariadb, is_detached=is_detached)
        try:
            bed.database.start()
            bed.move_endpoints()
            bed.start_services(SERVICES)
            bed.address.write(folder)
        except BaseException:
            bed.stop()
            raise
        return bed

    @classmethod
    @contextlib.contextmanager
    def started(cls, prepared: Prepared, folder: Path) -> Generator[Self]:
        bed = cls.start(prepared, folder)
        try:
            yield bed
        finally:
            bed.stop()

    @property
    def auth_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['keystone']}/v3"

    @property
    def down_members(self) -> Path:
        """File of names or addresses of members, one per line, that Octavia sees as failed."""
        return self.folder / "down-members"

    def requests(
        self, project: str, services: Iterable[str] = SERVICES
    ) -> Iterator[dict[str, Any]]:
        """Yields the logged requests of a project, in order of time, with their service."""
        found: list[dict[str, Any]] = []
        for service in services:
            log = self.folder / "log" / f"{service}.access.jsonl"
            lines = log.read_text().splitlines() if log.exists() else []
            found += [{"service": service, **json.loads(line)} for line in lines]
        yield from sorted(
            (each for each in found if each["project"] == project), key=lambda each: each["t"]
        )

    def start_services(self, names: Iterable[str]) -> None:
        """Starts services and waits until they answer."""
        names = tuple(names)
        python = str(self.venv / "bin" / "python")
        for name in names:
            (self.folder / f"{name}.ready").unlink(missing_ok=True)
            module = ["-W", "ignore", "-m", f"{PACKAGE}.run"]
            port = str(self.ports[name])
            command = [python, *module, name, str(self.folder), port]
            self.processes.start(name, command, self.environment())
        deadline = time.monotonic() + START_LIMIT
        for name in names:
            while not (self.folder / f"{name}.ready").exists():
                self.processes.check(name)
                if time.monotonic() > deadline:
                    raise Failed(f"{name} did not start within {START_LIMIT:g} s")
                time.sleep(0.1)

    def run(self, *command: str) -> None:
        """Runs a program of the services' virtual environment as administrator."""
        log = self.folder / "log" / "commands.out"
        with log.open("ab") as output:
            done = subprocess.run(
                [str(self.venv / "bin" / command[0]), *command[1:]],
                env=self.environment(),
                cwd=self.folder,
                stdout=output,
                stderr=output,
                check=False,
            )
        if done.returncode:
            raise Failed(f"{' '.join(command)} failed:\n{log.read_text()[-3000:]}")

    def environment(self) -> dict[str, str]:
        """Returns the environment of the services' programs, with the administrator's login."""
        return os.environ | {
            "PYTHONPATH": f"{ROOT}:{self.folder / 'drivers'}",
            "OS_PLACEMENT_CONFIG_DIR": str(self.folder / "conf"),
            **self.login("admin", "admin"),
        }

    def login(self, user: str, project: str) -> dict[str, str]:
        """Returns the variables by which OpenStack's clients log in."""
        return {
            "OS_AUTH_URL": self.auth_url,
            "OS_USERNAME": user,
            "OS_PASSWORD": PASSWORD,
            "OS_PROJECT_NAME": project,
            "OS_USER_DOMAIN_NAME": "Default",
            "OS_PROJECT_DOMAIN_NAME": "Default",
            "OS_REGION_NAME": REGION,
            "OS_IDENTITY_API_VERSION": "3",
        }

    def stop(self) -> None:
        self.processes.stop()

    def save(self, image: Path) -> None:
        """Archives what a new bed can be started from. The bed must have been stopped."""
        with tarfile.open(image, "w:gz", compresslevel=3) as archive:
            for name in IN_IMAGE:
                archive.add(self.folder / name, arcname=name)

    def configure(self) -> None:
        values = {
            "folder": str(self.folder),
            "venv": str(self.venv),
            "socket": str(self.database.socket),
            "database": "mysql+pymysql://root@localhost",
            "identity": f"http://127.0.0.1:{self.ports['keystone']}",
            **{f"port_{name}": str(port) for name, port in self.ports.items()},
            **{f"login_{name}": self._login_section(name) for name in SERVICES},
        }
        for template in sorted((Path(__file__).parent / "etc").iterdir()):
            text = string.Template(template.read_text()).substitute(values)
            (self.folder / "conf" / template.name).write_text(text)
        # Nova looks for this file beside its configuration, and for the identity of its host.
        shutil.copy(self.venv / "etc" / "nova" / "api-paste.ini", self.folder / "conf")
        (self.folder / "state" / "nova" / "compute_id").write_text(f"{NOVA_HOST_ID}\n")
        self._write_authority()
        self._register_drivers()

    def _login_section(self, user: str) -> str:
        values = {
            "auth_url": self.auth_url,
            "auth_type": "password",
            "username": user,
            "password": PASSWORD,
            "project_name": "service",
            "user_domain_name": "Default",
            "project_domain_name": "Default",
            "region_name": REGION,
        }
        return "\n".join(f"{key} = {value}" for key, value in values.items())

    def _write_authority(self) -> None:
        """Writes the pair that Octavia signs the certificates of amphorae with."""
        now = SystemClock().now()
        pair = Authority("openstack-bed", now=now).issue(Subject(common_name="octavia"), now=now)
        (self.folder / "ca" / "ca.pem").write_bytes(pair.certificate)
        (self.folder / "ca" / "ca.key").write_bytes(pair.key)

    def _register_drivers(self) -> None:
        """Registers the bed's drivers as entry points of a package that is on the path only."""
        package = self.folder / "drivers" / "openstack_bed-1.dist-info"
        package.mkdir(parents=True, exist_ok=True)
        (package / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: openstack-bed\nVersion: 1\n"
        )
        points = [
            f"[{group}]\n{entry.format(package=PACKAGE)}\n" for group, entry in DRIVERS.items()
        ]
        (package / "entry_points.txt").write_text("\n".join(points))

    def move_endpoints(self) -> None:
        """Makes the catalogue name the ports of this bed."""
        for name, port in self.ports.items():
            service = f'select id from service where extra like \'%"name": "{name}"%\''  # noqa: S608
            url = f"regexp_replace(url, '127.0.0.1:[0-9]+', '127.0.0.1:{port}')"
            change = f"update endpoint set url = {url} where service_id in ({service})"  # noqa: S608
            self.database.run(change, "keystone")
