"""Tells when the event loop stands still, and which line it stands at.

All of the manager runs in one loop. A provider that blocks it (`time.sleep`, an SDK that is not
async) stops everything: look-ups, the lease, and the answers to health checks, so that probes see
it. What nobody would see is whose fault it is; hence a thread beside the loop that looks.
"""

import asyncio
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager

from pileus.clock import since_boot
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

LIMIT = 5.0
"""Seconds. A standstill of twice as long is always found, a shorter one perhaps."""
FRAMES = 6
"""How many lines are told, from the innermost one outwards."""


@contextmanager
def watched_loop(metrics: Metrics, *, limit: float = LIMIT) -> Generator[None]:
    """Watch the running event loop for as long as the block lasts."""
    watchdog = _Watchdog(asyncio.get_running_loop(), metrics, limit)
    thread = threading.Thread(target=watchdog.run, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watchdog.stop()
        thread.join(limit)


class _Watchdog:
    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: Metrics, limit: float) -> None:
        self._loop = loop
        self._watched = threading.get_ident()
        self._standstills = metrics.loop_standstills
        self._limit = limit
        self._over = threading.Event()
        self._answer = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._limit):
            self._answer.clear()
            asked = since_boot()
            self._loop.call_soon_threadsafe(self._answer.set)
            if self._over.is_set() or self._is_answered():
                continue
            self._standstills.inc()
            self._tell()
            self._answer.wait()
            log.warning("The event loop goes on", stood_still=round(since_boot() - asked, 1))

    def _is_answered(self) -> bool:
        """The second wait is for a process that was frozen as a whole: its loop answers then."""
        return self._answer.wait(self._limit) or self._answer.wait(self._limit / 10)

    def stop(self) -> None:
        self._over.set()
        self._answer.set()

    def _tell(self) -> None:
        frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        frame = frames.get(self._watched)
        stack = traceback.extract_stack(frame)[-FRAMES:] if frame else []
        log.error(
            "The event loop stands still: code that blocks must run in a thread "
            "(asyncio.to_thread); until it returns nothing is done, and no probe is answered",
            seconds=self._limit,
            at=" < ".join(f"{one.filename}:{one.lineno} {one.name}" for one in reversed(stack)),
        )
