"""Start the manager, stop it on a signal, and say with the exit code how it went."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from random import SystemRandom
from typing import Any

from pileus.app.errors import CommandFailed, Fatal
from pileus.app.manager import Manager
from pileus.app.startup import World
from pileus.runtime.failure import leaves
from pileus.runtime.leadership import SYSTEM_TIMES, LeadershipLost
from pileus.settings.config import Config
from pileus.telemetry.log import Log
from pileus.telemetry.logs import Verbosity

log = Log(__name__)

STOPPING = (signal.SIGTERM, signal.SIGINT)
LOST = 1
PATIENCE = 25.0
"""Seconds from a signal to the end. A pod that takes longer than 30 is killed without a word."""
LOST_PATIENCE = 10.0
"""Seconds from the loss of the lease to the end. Less: nothing may be written any more."""
CLOSED = "the handler is closed"
"""How uvloop words the use of a closed connection."""
_ENDINGS = (LeadershipLost, Fatal, CommandFailed)


def run(config: Config, verbosity: Verbosity) -> int:
    """Run the manager until a signal (0) or the loss of the lease (1) ends it.

    Errors: `CommandFailed` and `Fatal` from the start-up.
    """
    last_resort = LastResort()
    world = World(
        os.environ,
        SYSTEM_TIMES,
        SystemRandom(),
        verbosity.set,
        lost=lambda: last_resort.ends_within(LOST_PATIENCE),
    )
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(until_signalled(Manager(config, world).run, last_resort=last_resort))
    except LeadershipLost:  # said already, by who lost it
        return LOST
    return 0


class LastResort:
    """Ends the process if it does not end by itself: code 1.

    A thread does it, because a provider may swallow its cancellation, block the event loop, or
    leave a thread behind that the interpreter would wait for.
    """

    def __init__(self) -> None:
        self._is_waiting = False

    def ends_within(self, seconds: float) -> None:
        """The process has to end within so many seconds. The first call counts."""
        if self._is_waiting:
            return
        self._is_waiting = True
        end = partial(_end_after, seconds, asyncio.get_running_loop())
        threading.Thread(target=end, name="last-resort", daemon=True).start()


def _end_after(seconds: float, loop: asyncio.AbstractEventLoop) -> None:
    threading.Event().wait(seconds)
    # In a thread of its own: whatever hangs may hold a lock of the log.
    words = threading.Thread(target=_say_what_is_left, args=(seconds, loop), daemon=True)
    words.start()
    words.join(1.0)
    os._exit(LOST)


def _say_what_is_left(seconds: float, loop: asyncio.AbstractEventLoop) -> None:
    left = sorted(task.get_name() for task in asyncio.all_tasks(loop))
    log.error(
        "Exiting without waiting for unfinished tasks", seconds=seconds, unfinished=", ".join(left)
    )
    logging.shutdown()


async def until_signalled(
    work: Callable[[], Awaitable[None]],
    *,
    patience: float = PATIENCE,
    last_resort: LastResort | None = None,
) -> None:
    """Work until it ends, or a signal cancels it.

    What does not end within `patience` then, or before a second signal, is left unfinished: the
    process ends at once, with code 1 or with that of the signal.
    """
    end = last_resort or LastResort()
    loop = asyncio.get_running_loop()
    managing = asyncio.current_task()
    told: list[signal.Signals] = []

    def stop(sign: signal.Signals) -> None:
        if told:
            os._exit(128 + sign)
        told.append(sign)
        log.info("Stopping: finishing running passes, then releasing the Lease", signal=sign.name)
        end.ends_within(patience)
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

    def new_loop() -> asyncio.AbstractEventLoop:
        loop = uvloop.new_event_loop()
        loop.set_exception_handler(_report)
        return loop

    return new_loop


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an error of the loop, unless a TLS connection got bytes while it was closed.

    uvloop calls that a fatal error of the connection. Nothing is lost: its user closed it before.
    """
    error = context.get("exception")
    if isinstance(error, RuntimeError) and CLOSED in str(error) and "protocol" in context:
        log.info("TLS connection got bytes after it was closed", v=4, err=error)
    else:
        loop.default_exception_handler(context)
