"""Whose the local cloud's socket is: a socket of another user could be another user's cloud."""

import os
import stat
from pathlib import Path

from pileus.cloud.errors import Misconfigured

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0


def check_owner(endpoint: Path, user: int | None = None) -> None:
    """Refuse a socket that someone other than `user` (this process' own) made or could replace.

    The socket and its folder must belong to the user or to root. Others may write to the folder
    only if it is sticky, as /tmp is: then they cannot replace the socket. What does not exist is
    not refused. Raises `Misconfigured`.
    """
    trusted = {os.geteuid() if user is None else user, _ROOT}
    folder = _status(endpoint.parent)
    if folder is None:
        return
    if folder.st_uid not in trusted:
        raise Misconfigured(_refusal(endpoint, f"{endpoint.parent} belongs to another user"))
    if folder.st_mode & _OTHERS_WRITE and not folder.st_mode & stat.S_ISVTX:
        found = f"other users can write to {endpoint.parent}"
        raise Misconfigured(f"{_refusal(endpoint, found)}, or run: chmod go-w {endpoint.parent}")
    socket = _status(endpoint)
    if socket is not None and socket.st_uid not in trusted:
        raise Misconfigured(_refusal(endpoint, "it belongs to another user"))


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _refusal(endpoint: Path, why: str) -> str:
    return f"the socket {endpoint} is not used: {why}. Name another endpoint"
