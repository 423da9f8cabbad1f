"""Start the manager, stop it on a signal, and say with the exit code how it went."""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from random import SystemRandom

from pileus.app.config import Config
from pileus.app.ending import CommandFailed, Fatal
from pileus.app.manager import Manager
from pileus.app.opening import World
from pileus.runtime.failure import leaves
from pileus.runtime.leadership import SYSTEM_TIMES, LeadershipLost
from pileus.telemetry.log import Log
from pileus.telemetry.logs import Verbosity

log = Log(__name__)

STOPPING = (signal.SIGTERM, signal.SIGINT)
LOST = 1
PATIENCE = 25.0
"""Seconds from a signal to the end. A pod that takes longer than 30 is killed without a word."""
_ENDINGS = (LeadershipLost, Fatal, CommandFailed)


def run(config: Config, verbosity: Verbosity) -> int:
    """Run the manager until a signal (0) or the loss of the lease (1) ends it.

    Errors: `CommandFailed` and `Fatal` from the start-up.
    """
    world = World(os.environ, SYSTEM_TIMES, SystemRandom(), verbosity.set)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(until_signalled(Manager(config, world).run))
    except LeadershipLost:  # said already, by who lost it
        return LOST
    return 0


async def until_signalled(
    work: Callable[[], Awaitable[None]], *, patience: float = PATIENCE
) -> None:
    """Work until it ends, or a signal cancels it.

    What does not end within `patience` then, or before a second signal, is left unfinished: the
    process ends at once, with code 1 or with that of the signal.
    """
    loop = asyncio.get_running_loop()
    managing = asyncio.current_task()
    told: list[signal.Signals] = []

    def stop(sign: signal.Signals) -> None:
        if told:
            os._exit(128 + sign)
        told.append(sign)
        log.info("Stopping: the work in hand ends, then the lease is released", signal=sign.name)
        loop.call_later(patience, _give_up, loop, patience)
        if managing is not None:
            managing.cancel()

    for sign in STOPPING:
        loop.add_signal_handler(sign, stop, sign)
    try:
        await work()
    except asyncio.CancelledError:
        if not told:
            raise
    except BaseExceptionGroup as errors:
        raise ending_of(errors) from None


def _give_up(loop: asyncio.AbstractEventLoop, patience: float) -> None:
    left = sorted(task.get_name() for task in asyncio.all_tasks(loop))
    log.error("Ended without waiting any longer", seconds=patience, unfinished=", ".join(left))
    logging.shutdown()
    os._exit(LOST)


def ending_of(error: BaseException) -> BaseException:
    """The one error among several, however deep, that says how the program is to end."""
    errors = list(leaves(error))
    for kind in _ENDINGS:
        for one in errors:
            if isinstance(one, kind):
                return one
    return error


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Prefer uvloop: its TLS connections cost a fifth of the memory."""
    try:
        import uvloop  # noqa: PLC0415 -- not on every system
    except ImportError:
        return None
    return uvloop.new_event_loop
