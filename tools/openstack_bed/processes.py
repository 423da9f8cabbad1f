"""The processes of a bed: a log file each, remembered in a file, stopped by process ID."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_LIMIT = 30.0
SHOWN = 3000
"""Characters of a log that an error shows."""
ENDS_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM", "--")
_CHILDREN: list[subprocess.Popen[bytes]] = []
"""Those of this process. One that is dropped while it runs causes a ResourceWarning later."""


class Failed(Exception):
    """A part of the bed failed; the message ends with the last lines of its log."""


class Processes:
    """Those of one bed. The bed's folder is on every command line, so that no other is stopped."""

    def __init__(self, folder: Path, *, is_detached: bool) -> None:
        self._folder = folder
        self._file = folder / "processes.json"
        self._is_detached = is_detached
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts one. Unless the bed is detached, it ends when the process that started it ends."""
        prefix = () if self._is_detached else ENDS_WITH_PARENT
        with (self._folder / "log" / f"{name}.out").open("wb") as log:
            process = subprocess.Popen(
                [*prefix, *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started[name] = process
        _CHILDREN.append(process)
        self._file.write_text(json.dumps(self._known() | {name: process.pid}))

    def check(self, name: str) -> None:
        """Raises Failed if that process has ended."""
        code = self._started[name].poll()
        if code is not None:
            log = (self._folder / "log" / f"{name}.out").read_text(errors="replace")
            raise Failed(f"{name} ended with {code}:\n{log[-SHOWN:]}")

    def stop(self) -> None:
        """Stops all, the database last. Processes that have ended already are not an error."""
        for name, pid in sorted(self._known().items(), key=lambda item: item[0] == "mariadbd"):
            if self._is_ours(pid):
                self._end(name, pid)
        self._file.unlink(missing_ok=True)
        _CHILDREN[:] = [one for one in _CHILDREN if one.poll() is None]

    def are_running(self) -> bool:
        known = self._known()
        return bool(known) and all(self._is_ours(pid) for pid in known.values())

    def _known(self) -> dict[str, int]:
        return json.loads(self._file.read_text()) if self._file.exists() else {}

    def _end(self, name: str, pid: int) -> None:
        deadline = time.monotonic() + STOP_LIMIT
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            while self._is_ours(pid):
                if name in self._started and self._started[name].poll() is not None:
                    return
                if time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
                    return
                time.sleep(0.05)

    def _is_ours(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            return os.fsencode(self._folder) in command
        return False
