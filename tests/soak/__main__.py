"""`make soak`: the long one, with its progress shown as it goes."""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pileus.telemetry.logs import logging_to
from pileus.telemetry.settings import LogSettings
from pileus.testing.control_plane import ControlPlane
from tests.soak.soak import Size, soak
from tests.soak.table import table


def main() -> None:
    given = _arguments()
    binaries = os.environ.get("PILEUS_CONTROL_PLANE")
    if not binaries:
        sys.exit("make soak needs a real control plane: PILEUS_CONTROL_PLANE is not set")
    began = time.monotonic()

    def tell(line: str) -> None:
        sys.stdout.write(f"{time.monotonic() - began:7.1f}  {line}\n")
        sys.stdout.flush()

    size = Size(
        nodes=given.nodes,
        services=given.services,
        restless=given.minutes * 40,
        calm=given.minutes * 20,
        per_second=given.per_second,
        restart_every=15,
        patience=300,
        slack=12,
        leaves_orphans=True,
    )
    with _folder(given.folder) as folder, (folder / "soak.log").open("w") as log:
        tell(f"seed {given.seed}; starting a control plane ...")
        try:
            with (
                logging_to(LogSettings(), log, log),
                ControlPlane(Path(binaries), folder) as cluster,
            ):
                outcome = asyncio.run(soak(cluster, folder, size, given.seed, tell))
        except AssertionError as error:
            sys.exit(f"FAILED with seed {given.seed}: {error}")
    sys.stdout.write(f"{table(outcome)}\n")


@contextmanager
def _folder(given: Path | None) -> Generator[Path]:
    """The one that is given, which is kept, or one that goes."""
    if given is not None:
        given.mkdir(parents=True)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        yield Path(folder)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--services", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=5, help="of churn")
    parser.add_argument("--per-second", type=float, default=4, help="changes")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--folder", type=Path, help="new one for all logs, which are kept")
    return parser.parse_args()


if __name__ == "__main__":
    main()
