"""Many seeds, on several cores, and what is to be told about them."""

import gc
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from time import process_time

from pileus.objects.chunks import chunks
from pileus.simulation.kinds import DeedKind, FaultKind
from pileus.simulation.play import Outcome, play
from pileus.simulation.scenario import SCENARIOS
from pileus.simulation.schedule import draw

CHUNK = 10
"""Seeds that travel to another process together."""
SLOWEST = 3
TIDY_EVERY = 20
"""Plays after which what they left in memory is cleared away."""


@dataclass(frozen=True, slots=True)
class Report:
    """What is kept of one seed."""

    seed: int
    violation: str
    """Empty: everything held."""
    digest: str
    struck: Counter[tuple[FaultKind, str]]
    done: Counter[DeedKind]
    virtual_seconds: float
    seconds: float
    """Of one core; what others do on it does not count."""


@dataclass(slots=True)
class Summary:
    """What is kept of many."""

    seeds: int = 0
    failed: list[Report] = field(default_factory=list[Report])
    struck: Counter[tuple[FaultKind, str]] = field(default_factory=Counter[tuple[FaultKind, str]])
    done: Counter[DeedKind] = field(default_factory=Counter[DeedKind])
    slowest: list[Report] = field(default_factory=list[Report])
    virtual_seconds: float = 0.0
    busy_seconds: float = 0.0
    """Of all cores together."""

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.struck += report.struck
        self.done += report.done
        self.virtual_seconds += report.virtual_seconds
        self.busy_seconds += report.seconds
        if report.violation:
            self.failed.append(report)
        ranked = sorted((*self.slowest, report), key=lambda one: -one.seconds)
        self.slowest = ranked[:SLOWEST]

    @property
    def per_minute_and_core(self) -> float:
        return self.seeds / self.busy_seconds * 60 if self.busy_seconds else 0.0


def campaign(
    seeds: Sequence[int], scenario: str, *, jobs: int, told: Callable[[Summary], None]
) -> Summary:
    """Play all seeds; `told` hears of the progress after each few."""
    summary = Summary()
    for reports in _played(seeds, scenario, jobs):
        for report in reports:
            summary.add(report)
        told(summary)
    return summary


def _played(seeds: Sequence[int], scenario: str, jobs: int) -> Iterator[list[Report]]:
    parts = list(chunks(seeds, CHUNK))
    if jobs == 1:
        for part in parts:
            yield play_some(part, scenario)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        yield from pool.map(play_some, parts, [scenario] * len(parts))


def play_some(seeds: Sequence[int], scenario: str) -> list[Report]:
    if gc.get_freeze_count() == 0:
        gc.freeze()  # so that clearing away walks through what seeds have left, and nothing else
    return [_reported(seed, scenario) for seed in seeds]


def _reported(seed: int, scenario: str) -> Report:
    if seed % TIDY_EVERY == 0:
        gc.collect()
    started = process_time()
    outcome = play(draw(seed, SCENARIOS[scenario]))
    return _report(outcome, process_time() - started)


def _report(outcome: Outcome, seconds: float) -> Report:
    return Report(
        seed=outcome.schedule.seed,
        violation=str(outcome.violation or ""),
        digest=outcome.digest,
        struck=outcome.struck,
        done=outcome.done,
        virtual_seconds=outcome.virtual_seconds,
        seconds=seconds,
    )
