"""Where decisions are sent besides memory: a file with a line of JSON for each, and traces."""

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from pathlib import Path

import msgspec

from pileus.telemetry.journal import Entry
from pileus.telemetry.journal_settings import JournalSettings
from pileus.telemetry.log import Log
from pileus.telemetry.passes import Pass, Sink
from pileus.version import installing

log = Log(__name__)

MOST_WAITING = 10_000
"""Lines that wait for a slow disk; of more, the oldest are dropped."""

PRIVATE = 0o600
"""The file is for the user of the process alone: it says what runs in the cluster."""


class SinkUnavailable(Exception):
    """A sink that the settings ask for cannot be used; the text says why."""


class JournalFile:
    """A sink of passes. Lines are written by `run`, in a thread: the disk may be slow."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._waiting = deque[bytes](maxlen=MOST_WAITING)
        self._added = asyncio.Event()
        self._is_failing = False

    def __call__(self, _: Pass, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._waiting.append(msgspec.json.encode(entry) + b"\n")
        if entries:
            self._added.set()

    def check(self) -> None:
        """Raises `SinkUnavailable` if the file cannot be written.

        Files of an earlier run may be readable for others; those of another user stay as they are.
        """
        try:
            self._write([b""])
            _make_private(self._path)
            _make_private(Path(f"{self._path}.1"))
        except OSError as error:
            raise SinkUnavailable(
                f"--history-file={self._path} cannot be written: {error.strerror}. "
                "Fix: create its folder, and let the process write there"
            ) from error

    async def run(self) -> None:
        """Write lines until cancelled."""
        while True:
            await self._added.wait()
            self._added.clear()
            await self.flush()

    async def flush(self) -> None:
        """Write what is waiting. A failure is logged once, and the lines are dropped."""
        lines = [*self._waiting]
        self._waiting.clear()
        try:
            await asyncio.to_thread(self._write, lines)
        except OSError as error:
            if not self._is_failing:
                log.warning("Cannot write history file", file=str(self._path), err=error)
            self._is_failing = True
        else:
            self._is_failing = False

    def _write(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            with suppress(FileNotFoundError):
                if self._path.stat().st_size + len(line) > self._limit:
                    self._path.replace(f"{self._path}.1")
            with open(self._path, "ab", opener=_private) as file:
                file.write(line)


def _make_private(path: Path) -> None:
    if path.is_file():
        with suppress(PermissionError):
            path.chmod(PRIVATE)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


@asynccontextmanager
async def journal_sinks(settings: JournalSettings) -> AsyncGenerator[Sequence[Sink]]:
    """The sinks that the settings ask for, while the block lasts; it ends with the last lines.

    Raises `SinkUnavailable`.
    """
    async with AsyncExitStack() as stack:
        sinks: list[Sink] = []
        if settings.file:
            file = JournalFile(Path(settings.file), settings.file_size)
            await asyncio.to_thread(file.check)
            sinks.append(await stack.enter_async_context(_written(file)))
        if settings.otlp_endpoint:
            sinks.append(await stack.enter_async_context(_traced(settings.otlp_endpoint)))
        yield sinks


def _traced(endpoint: str) -> AbstractAsyncContextManager[Sink]:
    try:
        from pileus.telemetry.traces import traces  # noqa: PLC0415 -- needs an extra
    except ImportError as error:
        raise SinkUnavailable(f"--otlp-endpoint: {error}. Fix: {installing('otlp')}") from error
    return traces(endpoint)


@asynccontextmanager
async def _written(file: JournalFile) -> AsyncGenerator[JournalFile]:
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(file.run())
        try:
            yield file
        finally:
            writing.cancel()
            await file.flush()
