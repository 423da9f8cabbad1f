"""Ctrl-C, SIGTERM and a closed terminal end the demo, and never hinder its tidying up."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import FrameType, TracebackType
from typing import Self, TypeAlias

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class Interruption:
    """While its block lasts, a signal only asks the work of `guard` to end.

    What runs before that work begins, or after it has ended, is not disturbed; if a signal came
    before, the work does not begin.
    """

    def __init__(self) -> None:
        self.told: signal.Signals | None = None
        self._end: Callable[[], None] | None = None
        self._before: dict[signal.Signals, _Handler] = {}

    def __enter__(self) -> Self:
        for sign in SIGNALS:
            self._before[sign] = signal.signal(sign, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sign, handler in self._before.items():
            signal.signal(sign, handler)

    def reader_gone(self) -> None:
        """Nobody is there any more to see the work."""
        self._hear(signal.SIGPIPE, None)

    def _hear(self, number: int, _: FrameType | None) -> None:
        if self.told is not None:
            return
        self.told = signal.Signals(number)
        if self._end is not None:
            self._end()

    async def guard(self, work: Coroutine[object, object, None]) -> None:
        """Do the work. Errors: its own; `CancelledError` if a signal ended it."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def end() -> None:
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)

        self._end = end
        try:
            if self.told is not None:
                work.close()
                raise asyncio.CancelledError
            await work
        finally:
            self._end = None
