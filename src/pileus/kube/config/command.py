"""Run a foreign command to its end: with a deadline, a limit on its output, and no way to stay."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import IO

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
    # Not asyncio's own: cancelled while it starts, that kills the command but not its children,
    # and then waits for them.
    process = _start(command)
    try:
        async with asyncio.timeout(deadline):
            finished = await _finish(process)
    except TimeoutError:
        _kill(process)
        raise CredentialsError(f"{command.path}: no answer within {deadline:g} s") from None
    except asyncio.CancelledError:
        _kill(process)
        raise
    if len(finished.output) > OUTPUT_LIMIT:
        raise CredentialsError(f"{command.path}: printed more than {OUTPUT_LIMIT} bytes")
    return finished


def _start(command: Command) -> "subprocess.Popen[bytes]":
    found = shutil.which(command.path, path=command.environ.get("PATH", os.defpath))
    if found is None:
        where = "there is no such file" if os.sep in command.path else "it is not on the PATH"
        raise Missing(f"{command.path}: {where}, or it is not executable")
    if not os.path.isabs(found):
        raise CredentialsError(
            f"{command.path}: PATH leads to {found!r} in the current folder; remove the entry of "
            "PATH that is no absolute path, or give the command's whole path"
        )
    try:
        return subprocess.Popen(  # noqa: S603 -- to run what the user's file names is the task
            [found, *command.args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=command.environ,
            start_new_session=True,
        )
    except OSError as e:
        raise CredentialsError(f"{command.path}: cannot be started: {reason(e)}") from None
    except ValueError as e:  # a text that no system call takes
        raise CredentialsError(f"{command.path!r}: cannot be started: {e}") from None


async def _finish(process: "subprocess.Popen[bytes]") -> Finished:
    async with asyncio.TaskGroup() as tasks:
        output = tasks.create_task(_head(process.stdout))
        errors = tasks.create_task(_tail(process.stderr))
        status = tasks.create_task(asyncio.to_thread(process.wait))
    text = errors.result().decode(errors="replace").strip()
    return Finished(status.result(), output.result(), text)


async def _head(pipe: IO[bytes] | None) -> bytes:
    """The first bytes, up to one more than the limit; the rest is read and forgotten."""
    head = b""
    async for chunk in _chunks(pipe):
        head = (head + chunk)[: OUTPUT_LIMIT + 1]
    return head


async def _tail(pipe: IO[bytes] | None) -> bytes:
    tail = b""
    async for chunk in _chunks(pipe):
        tail = (tail + chunk)[-ERROR_LIMIT:]
    return tail


async def _chunks(pipe: IO[bytes] | None) -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while chunk := await reader.read(2**16):
            yield chunk
    finally:
        transport.close()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()  # returns at once: nobody survives that signal
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
