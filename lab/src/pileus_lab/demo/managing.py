"""The manager on the stage: configured by its own flags, started again when it loses its lease."""

from random import Random

from pileus.app import validate
from pileus.app.config import Config, build_config
from pileus.app.declared.table import TABLE
from pileus.app.ending import CommandFailed
from pileus.app.manager import Manager
from pileus.app.opening import World
from pileus.app.run import ending_of
from pileus.runtime.leadership import SYSTEM_TIMES, LeadershipLost
from pileus.settings.sources import gather
from pileus.telemetry.log import Log
from pileus.telemetry.logs import Verbosity
from pileus_lab.demo.board import Board
from pileus_lab.demo.folder import Folder
from pileus_lab.demo.plans import told_provider

CLUSTER = "demo"

log = Log(__name__)


def flags(folder: Folder) -> tuple[str, ...]:
    """What a user would type after `cloud-controller-manager`.

    Node deletions are as guarded as ever, but for an audience: with seconds instead of minutes.
    """
    return (
        f"--kubeconfig={folder.kubeconfig}",
        "--cloud-provider=local",
        f"--cloud-config={folder.cloud_config}",
        f"--cluster-name={CLUSTER}",
        "--controller-start-interval=0s",
        "--node-monitor-period=1s",
        "--node-deletion-grace=2s",
        "--node-deletion-window=5s",
        "--secure-port=0",
        "--v=2",
    )


def configuration(folder: Folder) -> Config:
    config = build_config(gather(TABLE, "pileus demo", flags(folder), {}).values)
    if wrong := validate.problems(config):
        raise CommandFailed(validate.together(wrong))
    return config


def world_of(random: Random, verbosity: Verbosity, board: Board) -> World:
    return World({}, SYSTEM_TIMES, random, verbosity.set, providers=told_provider(board))


async def manage(config: Config, world: World) -> None:
    """Run until cancelled. A process that slept (Ctrl-Z, a closed lid) finds its lease lost.

    Then a cluster would start the pod again, and so do we. Errors: those of the start-up.
    """
    while True:
        try:
            await Manager(config, world).run()
        except BaseExceptionGroup as errors:
            ending = ending_of(errors)
            if not isinstance(ending, LeadershipLost):
                raise
        except LeadershipLost:
            pass
        log.info("The manager starts again")
