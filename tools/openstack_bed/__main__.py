"""Starts and stops a real OpenStack on this machine, for tests and experiments.

    python -m tools.openstack_bed               set up (once), start, and print how to reach it
    python -m tools.openstack_bed --stop        stop it
    python -m tools.openstack_bed --set-up-only prepare the cache and print its folder

Keystone, Nova, Neutron, Octavia, Cinder, Glance and Placement run as processes on free ports of the
loopback interface. There are no hypervisors and no agents: servers, ports and load balancers become
active, but nothing answers at their addresses. Exits with 3 if the machine cannot run it.
"""

import argparse
import shutil
import signal
import sys
import time
from pathlib import Path

from tools.apt import Unavailable
from tools.openstack_bed.bed import PASSWORD, Address, Bed
from tools.openstack_bed.cache import Prepared, is_prepared, place, prepare, say
from tools.openstack_bed.image import build
from tools.openstack_bed.processes import Failed

UNAVAILABLE = 3


def main() -> int:
    signal.signal(signal.SIGTERM, _end)
    given = _arguments()
    folder: Path = given.folder.resolve()
    try:
        if given.stop:
            return _stop(folder)
        prepared = _prepare()
        if given.set_up_only:
            print(place())
            return 0
        return _start(prepared, folder)
    except Unavailable as error:
        say(f"not available: {error}")
        return UNAVAILABLE
    except Failed as error:
        say(f"failed: {error}")
        return 1


def _end(_number: int, _frame: object) -> None:
    """Ends the program so that what it has begun is stopped and removed."""
    sys.exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.openstack_bed", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    where = place() / "running"
    parser.add_argument("--folder", type=Path, default=where, help=f"folder of the bed ({where})")
    parser.add_argument("--stop", action="store_true", help="stop the bed of the folder")
    parser.add_argument("--set-up-only", action="store_true", help="prepare the cache, and no more")
    return parser.parse_args()


def _prepare() -> Prepared:
    if not is_prepared():
        say(f"setting up in {place()} (once, two to five minutes)")
    return prepare(build)


def _start(prepared: Prepared, folder: Path) -> int:
    started = time.monotonic()
    try:
        bed = Bed.running(folder)
        say(f"runs already in {folder}")
    except Failed:
        say("starting seven services …")
        bed = Bed.start(prepared, folder, is_detached=True)
        say(f"started in {time.monotonic() - started:.0f} s")
    for name, value in bed.login("admin", "admin").items():
        print(f"export {name}={value}")
    say(f"password of every user: {PASSWORD}; client: {bed.venv}/bin/openstack")
    say(f"logs and one line per request: {folder}/log")
    say("stop it with: make testbed-openstack STOP=1")
    return 0


def _stop(folder: Path) -> int:
    if (folder / "bed.json").exists():
        Bed(folder, Address.read(folder)).stop()
        shutil.rmtree(folder)
        say(f"stopped, and removed {folder}")
    else:
        say(f"no bed in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
