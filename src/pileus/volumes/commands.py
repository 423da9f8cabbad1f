"""Runs commands of the node, such as `mount` and `mkfs.ext4`, without a shell."""

import asyncio
import os
import signal
from contextlib import suppress

LONGEST = 600.0
"""Seconds after which a command is ended."""
SYSTEM = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
SHOWN = 400
"""Characters of a command's output in an error."""


class HostError(Exception):
    """Something on this node failed. The message says what, and what the command printed."""


class CommandFailed(HostError):
    """A command ended with an error, did not end in time, or is not installed."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        """Exit code; None if it did not run or was ended."""


def _path() -> str:
    """Returns the folders of programs, with those of administrators, which services often lack."""
    return os.pathsep.join(filter(None, (os.environ.get("PATH", ""), *SYSTEM)))


async def run(*command: str, seconds: float = LONGEST) -> str:
    """Run a command. Returns what it printed on standard output. Raises CommandFailed.

    If the caller is cancelled, or the time is over, the command and its children are killed.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C", "PATH": _path()},
            start_new_session=True,
        )
    except OSError as error:
        raise CommandFailed(f"{command[0]}: {error.strerror}; install it on this node") from error
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    except TimeoutError as error:
        raise CommandFailed(f"{' '.join(command)}: did not end within {seconds:g} s") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        said = " ".join((err or out).decode(errors="replace").split())[:SHOWN]
        message = f"{' '.join(command)}: {said or f'exit code {process.returncode}'}"
        raise CommandFailed(message, process.returncode)
    return out.decode(errors="replace")
