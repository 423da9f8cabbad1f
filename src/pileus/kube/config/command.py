"""Run a foreign command to its end: with a deadline, a limit on its output, and no way to stay."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from pileus.kube.config.errors import reason
from pileus.kube.errors import CredentialsError

OUTPUT_LIMIT = 2**20
ERROR_LIMIT = 2**12


@dataclass(frozen=True, slots=True)
class Command:
    path: str
    """Absolute, or a name to be found on the PATH of the environment."""
    args: tuple[str, ...] = field(default=(), repr=False)
    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True)
class Finished:
    status: int
    output: bytes = field(repr=False)
    errors: str = field(repr=False)
    """The end of what it wrote to its standard error."""


class Missing(CredentialsError):
    """There is no such command."""


async def run(command: Command, deadline: float) -> Finished:
    """Return how it ended. Who stops waiting for it kills it, with all that it has started.

    Errors: `Missing`; `CredentialsError` if it cannot be started, says too much or takes too long.
    """
    process = await _start(command)
    try:
        async with asyncio.timeout(deadline):
            return await _finish(process, command)
    except TimeoutError:
        await _kill(process)
        raise CredentialsError(f"{command.path}: no answer within {deadline:g} s") from None
    except asyncio.CancelledError:
        await _kill(process)
        raise


async def _start(command: Command) -> asyncio.subprocess.Process:
    found = shutil.which(command.path, path=command.environ.get("PATH", os.defpath))
    if found is None:
        where = "there is no such file" if os.sep in command.path else "it is not on the PATH"
        raise Missing(f"{command.path}: {where}, or it is not executable")
    try:
        return await asyncio.create_subprocess_exec(
            found,
            *command.args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=command.environ,
            start_new_session=True,
        )
    except OSError as e:
        raise CredentialsError(f"{command.path}: cannot be started: {reason(e)}") from None


async def _finish(process: asyncio.subprocess.Process, command: Command) -> Finished:
    if process.stdout is None or process.stderr is None:
        raise AssertionError("both were asked for as pipes")
    async with asyncio.TaskGroup() as tasks:
        output = tasks.create_task(_head(process.stdout))
        errors = tasks.create_task(_tail(process.stderr))
        status = tasks.create_task(process.wait())
    if len(output.result()) > OUTPUT_LIMIT:
        raise CredentialsError(f"{command.path}: printed more than {OUTPUT_LIMIT} bytes")
    text = errors.result().decode(errors="replace").strip()
    return Finished(status.result(), output.result(), text)


async def _head(stream: asyncio.StreamReader) -> bytes:
    """The first bytes, up to one more than the limit; the rest is read and forgotten."""
    head = b""
    while chunk := await stream.read(2**16):
        head = (head + chunk)[: OUTPUT_LIMIT + 1]
    return head


async def _tail(stream: asyncio.StreamReader) -> bytes:
    tail = b""
    while chunk := await stream.read(2**16):
        tail = (tail + chunk)[-ERROR_LIMIT:]
    return tail


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
