"""Controllers that the provider brings along: foreign code that may fail, and harms nobody else."""

import asyncio

from pileus.app.view import Access
from pileus.app.work import Post
from pileus.cloud.interface import OwnController
from pileus.runtime.backoff import Exponential
from pileus.runtime.failure import is_expected
from pileus.telemetry.log import Log

log = Log(__name__)

DELAYS = Exponential(1.0, 300.0)
LASTED = 600.0
"""Seconds after which a run counts as a good one: the next delay is the first again."""


async def run_own(own: OwnController, post: Post) -> None:
    """Run it until it returns or is cancelled; one that fails is started again after a while."""
    now = asyncio.get_running_loop().time
    log.info("Started controller of the provider", controller=own.name)
    failures = 0
    try:
        while True:
            began = now()
            try:
                await own.run(Access(post))
            except Exception as error:  # noqa: BLE001 -- whatever foreign code raises
                failures = 1 if now() - began > LASTED else failures + 1
                delay = DELAYS.delay(failures)
                write = log.error if is_expected(error) else log.exception
                write(
                    "Controller of the provider failed, and is started again",
                    error=error,
                    controller=own.name,
                    seconds=delay,
                )
                await asyncio.sleep(delay)
            else:
                return
    finally:
        log.info("Stopped controller of the provider", controller=own.name)
