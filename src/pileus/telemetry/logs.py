"""Which log lines are written, and where: verbosity, exceptions for some files, streams."""

import fnmatch  # noqa: TID251 -- patterns of the operator's flag
import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import PurePath
from typing import TextIO

from pileus.telemetry.klog import JsonFormat, TextFormat, values_of
from pileus.telemetry.log import level_of
from pileus.telemetry.settings import LogSettings, ModuleLevel

_LIBRARY_INFO = 2
_LIBRARY_DEBUG = 8


class Verbosity:
    """How much is written; can be changed while the program runs."""

    def __init__(self, level: int, modules: tuple[ModuleLevel, ...] = ()) -> None:
        self._modules = modules
        self._level = level
        self.set(level)

    @property
    def level(self) -> int:
        return self._level

    def set(self, level: int) -> None:
        """Write lines up to this verbosity from now on."""
        self._level = level
        most = max([level, *(one.level for one in self._modules)])
        logging.getLogger().setLevel(level_of(max(most, 0)))

    def admits(self, record: logging.LogRecord) -> bool:
        """Returns whether a line is written. Libraries need a higher verbosity."""
        allowed = self._level_for(record.pathname)
        if record.levelno >= logging.WARNING:
            return True
        if values_of(record) is None:
            return allowed >= (_LIBRARY_INFO if record.levelno >= logging.INFO else _LIBRARY_DEBUG)
        return record.levelno >= level_of(allowed)

    def _level_for(self, pathname: str) -> int:
        if not self._modules:
            return self._level
        path = PurePath(pathname).with_suffix("")
        for one in self._modules:
            subject = path.as_posix() if "/" in one.pattern else path.name
            if fnmatch.fnmatchcase(subject, one.pattern):
                return one.level
        return self._level


@contextmanager
def logging_to(settings: LogSettings, out: TextIO, err: TextIO) -> Generator[Verbosity]:
    """Write all log lines of the process to `err`, or information to `out` if streams are split.

    Guarantees: on leaving, everything is written and logging is as it was before.
    """
    root = logging.getLogger()
    level_before, handlers_before = root.level, root.handlers[:]
    verbosity = Verbosity(settings.verbosity, settings.modules)
    handler = _Handler(settings, verbosity, out, err)
    root.handlers[:] = [handler]
    try:
        yield verbosity
    finally:
        handler.close()
        root.handlers[:] = handlers_before
        root.setLevel(level_before)


class _Handler(logging.Handler):
    def __init__(
        self, settings: LogSettings, verbosity: Verbosity, out: TextIO, err: TextIO
    ) -> None:
        super().__init__()
        self.setFormatter(JsonFormat() if settings.format == "json" else TextFormat())
        self.addFilter(verbosity.admits)
        self._errors = err
        split = settings.split_streams
        self._news = _Waiting(out, settings) if split and settings.buffer_size else None
        self._plain = out if split else err

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
            if record.levelno >= logging.ERROR:
                self.flush()
                _write(self._errors, line)
            elif self._news:
                self._news.write(line)
            else:
                _write(self._plain, line)
        except Exception:  # noqa: BLE001 -- logging must never break its caller
            self.handleError(record)

    def flush(self) -> None:
        if self._news:
            self._news.flush()

    def close(self) -> None:
        self.flush()
        super().close()


class _Waiting:
    """Lines that are written together: when there are enough, or when the first is old enough."""

    def __init__(self, stream: TextIO, settings: LogSettings) -> None:
        self._stream = stream
        self._settings = settings
        self._lines: list[str] = []
        self._size = 0
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None

    def write(self, line: str) -> None:
        with self._lock:
            self._lines.append(line)
            self._size += len(line)
            if self._size >= self._settings.buffer_size:
                self.flush()
            elif self._timer is None:
                self._timer = threading.Timer(self._settings.flush_frequency, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        with self._lock:
            if self._timer:
                self._timer.cancel()
                self._timer = None
            text, self._lines, self._size = "".join(self._lines), [], 0
            if text:
                _write(self._stream, text)


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()
