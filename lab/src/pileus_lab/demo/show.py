"""From the command's options to its exit code: one performance, and a look at what it left."""

import asyncio
import socket
import time
from collections.abc import Coroutine, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from pileus.app.ending import CommandFailed, Fatal
from pileus.cloud.errors import CloudError
from pileus.kube.errors import KubeError
from pileus.runtime.failure import leaves
from pileus.telemetry.logs import LogSettings, Verbosity, logging_to
from pileus_lab.demo.board import Board
from pileus_lab.demo.folder import Folder, Unusable, state_folder
from pileus_lab.demo.interruption import Interruption
from pileus_lab.demo.performance import CLOSING, Options, Performance
from pileus_lab.demo.plain import Plain
from pileus_lab.demo.scene import Progress
from pileus_lab.demo.stage import props
from pileus_lab.demo.story import STORY
from pileus_lab.demo.telling import StepFailed

LAST_WORDS = 15
"""Lines of the log that are shown after a failure."""
FAILED, SIGNALLED = 1, 128

_EXPECTED = (StepFailed, Unusable, CommandFailed, Fatal, CloudError, KubeError, OSError)


def show(options: Options) -> int:
    """Perform once, and return the exit code. Errors: `Unusable`, before anything has begun."""
    board = Board(time.monotonic)
    board.announce([*(step.title for step in STORY), CLOSING])
    last_words: list[str] = []
    with Interruption() as interruption:
        plain = Plain(options.out, options.once, interruption.reader_gone)
        if options.console is None:
            board.seat(plain)
        with state_folder(options.folder) as folder, _logging_to(folder.log) as verbosity:
            performance = Performance(options, props(folder, board, verbosity))
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
    """Do the work; what made it fail, if anything did. A signal is no failure."""
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
    """All log lines, the manager's above all, go to a file: the screen has another use."""
    with path.open("x") as file, logging_to(LogSettings(verbosity=2), file, file) as verbosity:
        yield verbosity


def _look_around(board: Board, folder: Folder, places: Iterable[tuple[str, int]]) -> str:
    """What was left behind, if anything was; nothing is, if the stage was never set."""
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
