"""What the demo uses of this machine: a folder, free ports, signals."""

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self, TypeAlias

LONGEST_SOCKET = 100
"""Bytes; the maximum for the path of a socket."""


class Unusable(Exception):
    """The folder cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Folder:
    path: Path

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def cloud_config(self) -> Path:
        return self.path / "cloud.yaml"

    @property
    def socket(self) -> Path:
        return self.path / "local.sock"

    @property
    def log(self) -> Path:
        return self.path / "manager.log"

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that the demo creates."""
        return (self.kubeconfig, self.cloud_config, self.socket, self.log)


@contextmanager
def state_folder(wanted: Path | None) -> Generator[Folder]:
    """Yields a folder for the demo; None: a new temporary one.

    At the end the demo's files are deleted, and the folder if it is empty and the demo created it;
    other files stay. Raises `Unusable`.
    """
    made, path = _make(wanted)
    folder = Folder(path)
    try:
        if len(os.fsencode(folder.socket)) > LONGEST_SOCKET:
            raise Unusable(
                f"{path} is too long a path for a socket; choose a shorter one with --state-dir"
            )
        yield folder
    finally:
        for file in folder.files:
            file.unlink(missing_ok=True)
        if made:
            with suppress(OSError):
                path.rmdir()


def _make(wanted: Path | None) -> tuple[bool, Path]:
    try:
        if wanted is None:
            return True, Path(tempfile.mkdtemp(prefix="pileus-demo-"))
        path = wanted.absolute()
        made = not path.exists()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if found := sorted(file.name for file in path.iterdir()):
            raise Unusable(
                f"{path} is not empty ({found[0]}): another demo may be running there; "
                "stop it, or choose another folder with --state-dir"
            )
    except OSError as error:
        where = wanted or tempfile.gettempdir()
        raise Unusable(f"cannot use {where}: {error.strerror}; try --state-dir") from error
    return made, path


FRONT_PORTS = range(8080, 8180)
NODE_PORTS = range(30080, 30180)


def free_port(spare: str, wanted: Iterable[int]) -> int:
    """Returns the first port that no program has taken on all addresses, as many servers do.

    `spare` is an address on which nothing else listens. Raises `Unusable`.
    """
    tried: list[int] = []
    for port in wanted:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((spare, port))
            except OSError:
                tried.append(port)
                continue
            return port
    raise Unusable(
        f"every port from {tried[0]} to {tried[-1]} is in use; stop a program that uses one of them"
    )


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class Interruption:
    """While its block lasts, a signal only ends the work of `guard`.

    Code before and after that work is not interrupted. If a signal arrived before, the work does
    not start.
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

    def stop(self) -> None:
        """The user asked for the end, as with Ctrl-C."""
        self._hear(signal.SIGINT, None)

    def reader_gone(self) -> None:
        """The terminal was closed."""
        self._hear(signal.SIGPIPE, None)

    def _hear(self, number: int, _: FrameType | None) -> None:
        if self.told is not None:
            return
        self.told = signal.Signals(number)
        if self._end is not None:
            self._end()

    async def guard(self, work: Coroutine[object, object, None]) -> None:
        """Runs the work. Raises what it raises, or `CancelledError` after a signal."""
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
