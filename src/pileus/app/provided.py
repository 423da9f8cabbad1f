"""Controllers that the provider brings along: foreign code that may fail, and harms nobody else."""

from pileus.app.context import ManagerContext
from pileus.app.view import Access
from pileus.cloud.interface import OwnController
from pileus.runtime.supervision import Supervised
from pileus.server.health import Health
from pileus.telemetry.log import Log

log = Log(__name__)


async def run_own(own: OwnController, context: ManagerContext, health: Health) -> None:
    """Run it until it returns or is cancelled; one that fails is started again after a while.

    While it waits for that, a health check says so; but not for liveness, since the others work.
    """
    supervised = Supervised(own.name, lambda: own.run(Access(context)), context.random)
    check = f"{context.cloud.name}-{own.name}"
    log.info("Started controller of the provider", controller=own.name)
    health.add(check, supervised.health, live=False)
    try:
        await supervised.run()
    finally:
        health.remove(check)
        log.info("Stopped controller of the provider", controller=own.name)
