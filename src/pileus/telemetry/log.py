"""Structured logging: a message in sentence case and values as fields.

    log = Log(__name__)
    log.info("Initialized node", node=name)          # always
    log.info("Node is up to date", v=4, node=name)         # from -v=4 on
    log.error("Lookup failed", error=error, node=name)

How lines look, and which are written, is the business of `pileus.telemetry.klog`.
"""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

VALUES = "pileus_values"
"""The attribute of a log record that carries its values."""


_CLOUD: ContextVar[str] = ContextVar("pileus_cloud", default="")


@contextmanager
def logging_cloud(name: str) -> Generator[None]:
    """Add `cloud=name` to every line that is logged in the block and by tasks started in it."""
    token = _CLOUD.set(name)
    try:
        yield
    finally:
        _CLOUD.reset(token)


class Log:
    """A thin face of `logging.getLogger`, with values instead of formatted text."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, message: str, *, v: int = 0, **values: object) -> None:
        self._write(level_of(v), message, values)

    def warning(self, message: str, **values: object) -> None:
        self._write(logging.WARNING, message, values)

    def error(self, message: str, *, error: BaseException | None = None, **values: object) -> None:
        """Say what failed. The error's text becomes a value; no traceback (see `exception`)."""
        self._write(logging.ERROR, message, {"err": error, **values} if error else values)

    def exception(self, message: str, *, error: BaseException, **values: object) -> None:
        """Say that something failed which is a bug, with the traceback."""
        self._write(logging.ERROR, message, {"err": error, **values}, error)

    def fatal(self, message: str, *, error: BaseException | None = None, **values: object) -> None:
        """Say why the process is about to end. It is the caller who ends it."""
        self._write(logging.CRITICAL, message, {"err": error, **values} if error else values)

    def enabled(self, v: int) -> bool:
        return self._logger.isEnabledFor(level_of(v))

    def _write(
        self,
        level: int,
        message: str,
        values: dict[str, object],
        error: BaseException | None = None,
    ) -> None:
        if self._logger.isEnabledFor(level):
            if cloud := _CLOUD.get():
                values = {"cloud": cloud, **values}
            self._logger.log(level, message, exc_info=error, extra={VALUES: values}, stacklevel=3)


def level_of(v: int) -> int:
    """The `logging` level of verbosity v: 20 (INFO) for 0, one less for each step up."""
    return logging.INFO - min(v, 15)
