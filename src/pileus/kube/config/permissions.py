"""Warn of files with secrets that every user of the machine can read."""

import functools
import os
import stat
from pathlib import Path

from pileus.telemetry.log import Log

_log = Log(__name__)


def warn_if_world_readable(path: Path, what: str) -> None:
    """Log a warning, once for each file, if others than owner and group can read it."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # the read that follows says so
        return
    if mode & stat.S_IROTH:
        _warn(str(path), what, stat.S_IMODE(mode))


@functools.cache
def _warn(path: str, what: str, mode: int) -> None:
    _log.warning(
        "File with credentials is world-readable",
        file=path,
        content=what,
        mode=f"{mode:04o}",
        fix=f"chmod o-r {path} (for a volume of a pod: defaultMode: 0440)",
    )
