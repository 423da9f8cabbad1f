"""Creates the image that beds are started from: migrated databases, filled with what all share."""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tools.openstack_bed.bed import PACKAGE, PASSWORD, REGION, SERVICES, Bed
from tools.openstack_bed.cache import BUILDING, place, say
from tools.openstack_bed.mariadb import MariaDB

DATABASES = (
    "keystone",
    "placement",
    "glance",
    "neutron",
    "nova_api",
    "nova",
    "nova_cell0",
    "cinder",
    "octavia",
)
CELL = "{scheme}://{username}@{hostname}/nova_cell0?{query}"
MAIN_CELL = "{scheme}://{username}@{hostname}/{path}?{query}"
"""Templates of Nova: the address of the database is taken from the configuration of each bed."""


def build(venv: Path, mariadb: MariaDB, folder: Path) -> None:
    """Writes `image.tar.gz` into the folder."""
    with tempfile.TemporaryDirectory(dir=place(), prefix=BUILDING) as scratch:
        bed = Bed.new(Path(scratch), venv, mariadb)
        try:
            _fill(bed)
        finally:
            bed.stop()
        bed.save(folder / "image.tar.gz")


def _fill(bed: Bed) -> None:
    bed.database.create()
    bed.database.start()
    for name in DATABASES:
        bed.database.run(f"create database {name} character set utf8mb3")
    say("  migrating the databases …")
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(chain, bed) for chain in (_identity_and_compute, _others)]
        for each in running:
            each.result()
    say("  starting the services for the first time …")
    bed.start_services(["keystone"])
    content = ("python", "-m", f"{PACKAGE}.content")
    bed.run(*content, "catalogue", *(f"{name}={port}" for name, port in bed.ports.items()))
    bed.start_services(name for name in SERVICES if name != "keystone")
    bed.run("nova-manage", *_configured(bed, "nova"), "cell_v2", "discover_hosts")
    say("  creating the external network, image, flavors and zones …")
    bed.run(*content, "base")


def _identity_and_compute(bed: Bed) -> None:
    keystone = partial(bed.run, "keystone-manage", *_configured(bed, "keystone"))
    keystone("db_sync")
    owner = ("--keystone-user", "root", "--keystone-group", "root") if os.getuid() == 0 else ()
    keystone("fernet_setup", *owner)
    urls = [
        part
        for interface in ("public", "internal", "admin")
        for part in (f"--bootstrap-{interface}-url", bed.auth_url)
    ]
    keystone("bootstrap", "--bootstrap-password", PASSWORD, "--bootstrap-region-id", REGION, *urls)
    nova = partial(bed.run, "nova-manage", *_configured(bed, "nova"))
    nova("api_db", "sync")
    nova("cell_v2", "map_cell0", "--database_connection", CELL)
    nova("db", "sync")
    main = ("--transport-url", "fake://", "--database_connection", MAIN_CELL)
    nova("cell_v2", "create_cell", "--name", "cell1", *main)


def _others(bed: Bed) -> None:
    commands: dict[str, tuple[str, ...]] = {
        "neutron": ("neutron-db-manage", "upgrade", "head"),
        "octavia": ("octavia-db-manage", "upgrade", "head"),
        "cinder": ("cinder-manage", "db", "sync"),
        "glance-api": ("glance-manage", "db_sync"),
        "placement": ("placement-manage", "db", "sync"),
    }
    for name, (program, *arguments) in commands.items():
        bed.run(program, *_configured(bed, name), *arguments)


def _configured(bed: Bed, name: str) -> tuple[str, str]:
    return "--config-file", str(bed.folder / "conf" / f"{name}.conf")
