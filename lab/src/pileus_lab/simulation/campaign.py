"""Runs many seeds on several cores and collects their results."""

import gc
import signal
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from time import process_time
from typing import cast

from pileus_lab.simulation.clouds.loading import load
from pileus_lab.simulation.kinds import DeedKind, FaultKind
from pileus_lab.simulation.play import play
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw

TIDY_EVERY = 5
"""Seeds after which garbage is collected."""


@contextmanager
def tended() -> Generator[None]:
    """Turns the garbage collector off and freezes existing objects, so that `tidy` is fast."""
    was = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was:
            gc.enable()


def tidy(seed: int) -> None:
    """Called after each seed; collects garbage now and then."""
    if seed % TIDY_EVERY == 0:
        gc.collect()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One seed and its result."""

    seed: int
    violation: str = ""
    """Empty: all invariants held."""
    digest: str = ""
    struck: Counter[tuple[FaultKind, str]] = field(default_factory=Counter[tuple[FaultKind, str]])
    done: Counter[DeedKind] = field(default_factory=Counter[DeedKind])
    virtual_seconds: float = 0.0
    seconds: float = 0.0
    """CPU seconds of one core."""


AT_ONCE = 5
"""Seeds that a process gets at a time."""
LISTEN = 0.3
"""Seconds to wait for a report before checking whether to stop."""
Play = Callable[[int], Report]


def side_by_side(
    seeds: Sequence[int], play: Play, *, jobs: int, stopped: Callable[[], bool]
) -> Iterator[Report]:
    """Yields the reports as they arrive, one for each seed; fewer if `stopped`."""
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
    """Returns the workers that have reports; none after a while."""
    busy: dict[object, _Worker] = {one.connection: one for one in crew if one.under_way}
    ready = wait([one.connection for one in busy.values()], timeout=LISTEN)
    return [busy[connection] for connection in ready]


class _Worker:
    """A process or its successor, and the seeds that it has yet to report, in order."""

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
        """Sends more seeds before the process runs out of them."""
        if len(self.under_way) > 1 or not left:
            return
        more = [left.popleft() for _ in range(min(AT_ONCE, len(left)))]
        self.under_way.extend(more)
        with suppress(ConnectionError):  # it has died, which its report will tell
            self.connection.send(more)

    def report(self, left: deque[int]) -> Report:
        """Returns the report of the next seed.

        If the process died, the seeds after it are `left` for all.
        """
        try:
            report = cast("Report", self.connection.recv())
        except (EOFError, ConnectionError):
            self._process.join()
            how = f"the process that ran it died, {_ending(self._process.exitcode or 0)}"
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
    """A process that is starting ignores Ctrl-C: its parent decides what to do."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a new process inherits
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(connection: Connection, play: Play) -> None:
    """The worker: plays seeds until its parent closes the pipe."""
    with suppress(EOFError, ConnectionError), tended():
        while True:
            for seed in cast("list[int]", connection.recv()):
                connection.send(play(seed))


def _ending(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


SLOWEST = 3
WORTH_A_PROCESS = 20
"""Seeds for which another process is worth its start-up time."""


@dataclass(slots=True)
class Summary:
    """Results of many seeds."""

    wanted: int = 0
    """Seeds to play."""
    seeds: int = 0
    """Seeds played so far."""
    failed: list[Report] = field(default_factory=list[Report])
    struck: Counter[tuple[FaultKind, str]] = field(default_factory=Counter[tuple[FaultKind, str]])
    done: Counter[DeedKind] = field(default_factory=Counter[DeedKind])
    slowest: list[Report] = field(default_factory=list[Report])
    virtual_seconds: float = 0.0
    busy_seconds: float = 0.0
    """CPU seconds of all cores."""

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.struck.update(report.struck)
        self.done.update(report.done)
        self.virtual_seconds += report.virtual_seconds
        self.busy_seconds += report.seconds
        if report.violation:
            self.failed.append(report)
            self.failed.sort(key=lambda one: one.seed)
        ranked = sorted((*self.slowest, report), key=lambda one: -one.seconds)
        self.slowest = ranked[:SLOWEST]

    @property
    def per_minute_and_core(self) -> float:
        return self.seeds / self.busy_seconds * 60 if self.busy_seconds else 0.0

    @property
    def is_whole(self) -> bool:
        return self.seeds == self.wanted


def campaign(
    seeds: Sequence[int],
    scenario: str,
    *,
    jobs: int,
    told: Callable[[Summary], None],
    stopped: Callable[[], bool] = lambda: False,
    cloud: str = "",
) -> Summary:
    """Plays all seeds, or until `stopped`; calls `told` after each.

    `cloud` is as for `load`.
    """
    summary = Summary(wanted=len(seeds))
    for report in _reports(seeds, partial(played, scenario, cloud), jobs, stopped):
        summary.add(report)
        told(summary)
    return summary


def _reports(
    seeds: Sequence[int], play_one: Callable[[int], Report], jobs: int, stopped: Callable[[], bool]
) -> Iterator[Report]:
    jobs = min(jobs, len(seeds) // WORTH_A_PROCESS)
    if jobs > 1:
        yield from side_by_side(seeds, play_one, jobs=jobs, stopped=stopped)
        return
    with tended():
        for seed in seeds:
            if stopped():
                return
            yield play_one(seed)


def played(scenario: str, cloud: str, seed: int) -> Report:
    make_cloud = load(cloud)
    started = process_time()
    outcome = play(draw(seed, SCENARIOS[scenario]), make_cloud)
    tidy(seed)
    return Report(
        seed=seed,
        violation=str(outcome.violation or ""),
        digest=outcome.digest,
        struck=outcome.struck,
        done=outcome.done,
        virtual_seconds=outcome.virtual_seconds,
        seconds=process_time() - started,
    )
