"""Runs the demo: sets it up, performs the scenario, checks each step, and cleans up."""

import asyncio
import shlex
import socket
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console

from pileus.app.errors import CommandFailed, Fatal
from pileus.cloud.errors import CloudError
from pileus.kube.errors import KubeError
from pileus.runtime.failure import leaves
from pileus.telemetry.logs import Verbosity, logging_to
from pileus.telemetry.settings import LogSettings
from pileus_lab.demo.environment import Props, Stage, props, staged
from pileus_lab.demo.host import Folder, Interruption, Unusable, state_folder
from pileus_lab.demo.scenario import ENCORE, NOW, STORY, Held, Missing, Step
from pileus_lab.demo.state import Board, Progress
from pileus_lab.demo.view import Plain, screen

LOOK_AGAIN = 0.05


class StepFailed(Exception):
    """A step did not succeed in time; the board has it."""


async def run_story(story: Sequence[Step], stage: Stage, board: Board, pause: float) -> None:
    """Performs the steps, with a pause after each; the first one has already begun.

    Raises `StepFailed`.
    """
    for index, step in enumerate(story):
        if index:
            board.begin(index)
        verdict = await _performed(step, stage)
        if isinstance(verdict, Missing):
            why = f"not within {step.within:g} s: {verdict.why}"
            board.end(index, Progress.FAILED, why)
            raise StepFailed(f"{step.title}: {why}")
        board.end(index, Progress.HELD, verdict.evidence)
        await asyncio.sleep(pause)


async def prepare(step: Step, stage: Stage) -> None:
    """Performs a step without showing it. Raises `StepFailed`."""
    verdict = await _performed(step, stage)
    if isinstance(verdict, Missing):
        raise StepFailed(f"{step.title}: not within {step.within:g} s: {verdict.why}")


async def _performed(step: Step, stage: Stage) -> Held | Missing:
    verdict: Held | Missing = Missing("the action failed")
    try:
        async with asyncio.timeout(step.within):
            await step.act(stage)
            verdict = await step.proof(stage)
            while isinstance(verdict, Missing):
                await asyncio.sleep(LOOK_AGAIN)
                verdict = await step.proof(stage)
    except TimeoutError:
        pass
    return verdict


CLOSING = "everything is stopped and cleaned up"
PACE = 0.6
"""Seconds of pause after each step on a terminal."""
VISIT_EVERY = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    once: bool
    """Exit when the scenario ends."""
    folder: Path | None
    out: TextIO
    console: Console | None
    """The terminal to draw on; None: plain lines."""
    program: str = "pileus"
    """The command as the user typed it, for a shell."""


class Performance:
    """One run; its results can be read afterwards, however it ended."""

    def __init__(self, options: Options, given: Props, stop: Callable[[], None]) -> None:
        self._options = options
        self._stop = stop
        self._given = given
        self._stage: Stage | None = None

    def places(self) -> set[tuple[str, int]]:
        """Every address and port on which something listened."""
        return self._stage.places() if self._stage else set()

    async def run(self) -> None:
        """Runs until the scenario ends (with `once`) or until cancelled.

        Raises `StepFailed` and errors of the start-up.
        """
        board = self._given.board
        async with _shown(self._options.console, board, self._stop):
            board.begin(0)
            async with staged(self._given) as self._stage:
                try:
                    await self._play(self._stage)
                finally:
                    board.begin(len(STORY))

    async def _play(self, stage: Stage) -> None:
        board = self._given.board
        await run_story(STORY, stage, board, PACE if self._options.console else 0.0)
        if self._options.once:
            return
        await prepare(ENCORE, stage)
        board.invite(hints(self._given.folder, stage.shop.url(), self._options.program))
        while True:
            await stage.shop.visit(1)
            await asyncio.sleep(VISIT_EVERY)


@asynccontextmanager
async def _shown(
    console: Console | None, board: Board, stop: Callable[[], None]
) -> AsyncGenerator[None]:
    if console is None:
        yield
        return
    async with screen(board, console, stop):
        yield


def hints(folder: Folder, url: str, program: str) -> tuple[str, ...]:
    """Commands that work while the demo runs. `pileus plan` shows what the one before causes.

    In a temporary folder, each fits into 80 columns.
    """
    return (
        f"export KUBECONFIG={shlex.quote(str(folder.kubeconfig))}",
        f"export PILEUS_LOCAL={shlex.quote(str(folder.socket))}",
        "export PILEUS_CLOUD_PROVIDER=local",
        "kubectl get nodes,services",
        "kubectl get events",
        f"curl {url}",
        f"{program} explain service shop",
        f"{program} local instances delete {NOW[0]}",
        f"{program} plan",
    )


LAST_WORDS = 15
"""Lines of the log that are shown after a failure."""
FAILED, SIGNALLED = 1, 128

_EXPECTED = (StepFailed, Unusable, CommandFailed, Fatal, CloudError, KubeError, OSError)


def show(options: Options) -> int:
    """Runs the demo and returns the exit code. Raises `Unusable` before anything has started."""
    board = Board(time.monotonic)
    board.announce([*(step.title for step in STORY), CLOSING])
    last_words: list[str] = []
    with Interruption() as interruption:
        plain = Plain(options.out, options.once, interruption.reader_gone)
        if options.console is None:
            board.seat(plain)
        with state_folder(options.folder) as folder, _logging_to(folder.log) as verbosity:
            given = props(folder, board, verbosity)
            performance = Performance(options, given, interruption.stop)
            failure = _failure_of(performance.run(), interruption)
            if failure:
                board.give_up(failure)
                last_words = folder.log.read_text().splitlines()[-LAST_WORDS:]
        failure = failure or _look_around(board, folder, performance.places())
        if options.console is not None:
            plain.summarize(board.steps)
        if failure:
            plain.confess(failure, last_words)
        return _code(board, interruption, failure)


def _failure_of(work: Coroutine[object, object, None], interruption: Interruption) -> str:
    """Runs the work and returns why it failed, if it did. A signal is no failure."""
    failure = ""
    try:
        with asyncio.Runner() as runner:
            runner.run(interruption.guard(work))
    except* asyncio.CancelledError:
        if interruption.told is None:
            raise
    except* _EXPECTED as errors:
        failure = str(next(leaves(errors)))
    return failure


@contextmanager
def _logging_to(path: Path) -> Generator[Verbosity]:
    """Writes all log lines to a file, because the screen shows the demo."""
    with path.open("x") as file, logging_to(LogSettings(verbosity=2), file, file) as verbosity:
        yield verbosity


def _look_around(board: Board, folder: Folder, places: Iterable[tuple[str, int]]) -> str:
    """Returns what was left behind; empty if nothing was started."""
    if board.steps[-1].progress is Progress.WAITING:
        return ""
    left = [
        *(str(file) for file in folder.files if file.exists()),
        *(f"{address}:{port}" for address, port in sorted(places) if _listens(address, port)),
    ]
    board.end(len(STORY), Progress.FAILED if left else Progress.HELD, ", ".join(left))
    return f"left behind: {', '.join(left)}" if left else ""


def _listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0


def _code(board: Board, interruption: Interruption, failure: str) -> int:
    if failure:
        return FAILED
    is_told = all(step.progress is Progress.HELD for step in board.steps[:-1])
    if interruption.told is not None and not is_told:
        return SIGNALLED + interruption.told
    return 0
