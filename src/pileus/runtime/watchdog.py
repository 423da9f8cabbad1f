"""Logs when code blocks the event loop, and the line of code that blocks it.

The whole manager runs in one event loop. A provider that blocks it (`time.sleep`, a blocking SDK)
stops everything: lookups, the lease, and answers to health checks. Probes notice this, but do not
show the cause. A separate thread therefore watches the loop.
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
"""Seconds. A block of twice this length is always detected, a shorter one perhaps."""
FRAMES = 6
"""The number of stack frames that are logged, innermost first."""


@contextmanager
def watched_loop(metrics: Metrics, *, limit: float = LIMIT) -> Generator[None]:
    """Watch the running event loop during the block."""
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
            self._log()
            self._answer.wait()
            log.warning(
                "Event loop is no longer blocked", blocked_seconds=round(since_boot() - asked, 1)
            )

    def _is_answered(self) -> bool:
        """The second wait is for a process that was suspended as a whole: its loop answers then."""
        return self._answer.wait(self._limit) or self._answer.wait(self._limit / 10)

    def stop(self) -> None:
        self._over.set()
        self._answer.set()

    def _log(self) -> None:
        frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        frame = frames.get(self._watched)
        stack = traceback.extract_stack(frame)[-FRAMES:] if frame else []
        log.error(
            "Event loop is blocked: blocking code must run in a thread (asyncio.to_thread); "
            "until it returns, no work is done and no probe is answered",
            seconds=self._limit,
            at=" < ".join(f"{one.filename}:{one.lineno} {one.name}" for one in reversed(stack)),
        )
