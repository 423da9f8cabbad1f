"""Many seeds, on several cores, and what is to be told about them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import process_time

from pileus_lab.simulation.clouds.loading import load
from pileus_lab.simulation.crew import side_by_side
from pileus_lab.simulation.kinds import DeedKind, FaultKind
from pileus_lab.simulation.memory import tended, tidy
from pileus_lab.simulation.play import play
from pileus_lab.simulation.report import Report
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw

SLOWEST = 3
WORTH_A_PROCESS = 20
"""Seeds for which it pays to start another process: its start takes as long as a few seeds."""


@dataclass(slots=True)
class Summary:
    """What is kept of many."""

    wanted: int = 0
    """Seeds that were to be played."""
    seeds: int = 0
    """Seeds that were played."""
    failed: list[Report] = field(default_factory=list[Report])
    struck: Counter[tuple[FaultKind, str]] = field(default_factory=Counter[tuple[FaultKind, str]])
    done: Counter[DeedKind] = field(default_factory=Counter[DeedKind])
    slowest: list[Report] = field(default_factory=list[Report])
    virtual_seconds: float = 0.0
    busy_seconds: float = 0.0
    """Of all cores together."""

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
    """Play all seeds, or until it is `stopped`; `told` hears of the progress after each.

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
