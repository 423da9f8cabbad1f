"""Stops the background work of a provider, threads and tasks, and waits for its end."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import SystemRandom
from threading import Event

from pileus.cloud.threads import in_thread
from pileus.runtime.supervision import Supervised
from pileus.telemetry.log import Log

log = Log(__name__)

GRACE = 10.0
"""Seconds that background work has to end."""


class Stop:
    """The stop channel of Go: `wait()` blocks a thread, `await stopped()` a task."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._event = Event()
        self._stopped = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], Supervised] = {}

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Block this thread until the stop, or for so many seconds. Returns whether it is set."""
        return self._event.wait(seconds)

    async def stopped(self) -> None:
        await self._stopped.wait()

    def background(self, work: Callable[[], Awaitable[None] | None]) -> None:
        """Run work until the stop. May be called in any thread; a plain function gets a thread.

        It must return within 10 s after the stop, and is abandoned then. If it raises, it is
        called again with exponential backoff.
        """
        self._loop.call_soon_threadsafe(self._start, work)

    def _start(self, work: Callable[[], Awaitable[None] | None]) -> None:
        name = getattr(work, "__qualname__", "background work")
        supervised = Supervised(name, partial(self._run, work), SystemRandom())
        task = self._group.create_task(supervised.run(), name=name)
        self._tasks[task] = supervised
        task.add_done_callback(self._tasks.pop)

    async def _run(self, work: Callable[[], Awaitable[None] | None]) -> None:
        try:
            answer = work() if inspect.iscoroutinefunction(work) else await in_thread(work)
            if answer is not None:
                await answer
        except Exception as error:
            if not self.is_set():
                raise
            log.error("Background work of the cloud provider failed while stopping", error=error)

    async def set(self) -> None:
        """Set the stop and wait for the end of the work."""
        self._event.set()
        self._stopped.set()
        await asyncio.sleep(0)  # work handed over from a thread just now is in `_tasks` then
        for task, supervised in self._tasks.items():
            if supervised.health() is not None:  # it failed and waits for its restart
                task.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=GRACE)
            for task in late:
                log.warning("Background work of the cloud provider did not stop, abandoning it")
                task.cancel()


@asynccontextmanager
async def stopping() -> AsyncGenerator[Stop]:
    """A `Stop`. At the end of the block it is set, and its work has ended."""
    raised: Exception | None = None
    async with asyncio.TaskGroup() as group:
        stop = Stop(group)
        try:
            yield stop
        except Exception as error:  # noqa: BLE001 -- raised below, without the group's wrapping
            raised = error
        finally:
            await stop.set()
    if raised is not None:
        raise raised
