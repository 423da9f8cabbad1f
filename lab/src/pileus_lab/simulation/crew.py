"""Processes that play seeds side by side. One that dies is known by the seed that it died at."""

import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import cast

from pileus_lab.simulation.memory import tended
from pileus_lab.simulation.report import Report

AT_ONCE = 5
"""Seeds that are given to a process together."""
LISTEN = 0.3
"""Seconds for which one waits for a report, before one asks whether to stop."""
Play = Callable[[int], Report]


def side_by_side(
    seeds: Sequence[int], play: Play, *, jobs: int, stopped: Callable[[], bool]
) -> Iterator[Report]:
    """The reports as they come, one for each seed; fewer if it is `stopped`."""
    left = deque(seeds)
    with _hired(jobs, play) as crew:
        while not stopped() and (left or any(worker.under_way for worker in crew)):
            for worker in crew:
                worker.keep_busy(left)
            for worker in _heard(crew):
                yield worker.report(left)


@contextmanager
def _hired(jobs: int, play: Play) -> "Generator[list[_Worker]]":
    crew = [_Worker(play) for _ in range(jobs)]
    try:
        yield crew
    finally:
        for worker in crew:
            worker.end()


def _heard(crew: "Sequence[_Worker]") -> "list[_Worker]":
    """Those who have something to report; nobody, if nobody has after a while."""
    busy: dict[object, _Worker] = {one.connection: one for one in crew if one.under_way}
    ready = wait([one.connection for one in busy.values()], timeout=LISTEN)
    return [busy[connection] for connection in ready]


class _Worker:
    """A process, or its successor; and the seeds that it has yet to report of, in their order."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.under_way: deque[int] = deque()
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._play), daemon=True)
        with _spared_from_ctrl_c():
            self._process.start()
        theirs.close()

    def keep_busy(self, left: deque[int]) -> None:
        """Give it more before it runs out of work."""
        if len(self.under_way) > 1 or not left:
            return
        more = [left.popleft() for _ in range(min(AT_ONCE, len(left)))]
        self.under_way.extend(more)
        with suppress(ConnectionError):  # it has died, which its report will tell
            self.connection.send(more)

    def report(self, left: deque[int]) -> Report:
        """What came of the next seed. After a death the seeds behind it are `left` to all."""
        try:
            report = cast("Report", self.connection.recv())
        except (EOFError, ConnectionError):
            self._process.join()
            how = f"the process that played it died, {_ending(self._process.exitcode or 0)}"
            report = Report(seed=self.under_way[0], violation=how)
            left.extendleft(list(self.under_way)[:0:-1])
            self.under_way = deque([report.seed])
            self._start()
        self.under_way.popleft()
        return report

    def end(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.join()


@contextmanager
def _spared_from_ctrl_c() -> Generator[None]:
    """A process that is started now never hears of it: its parent decides what to do."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a new process inherits
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(connection: Connection, play: Play) -> None:
    """What a process does: play what it is given, until nobody listens any more."""
    with suppress(EOFError, ConnectionError), tended():
        while True:
            for seed in cast("list[int]", connection.recv()):
                connection.send(play(seed))


def _ending(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
