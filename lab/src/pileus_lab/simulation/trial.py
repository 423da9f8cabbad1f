"""For the tests of a provider: simulate its cloud in one line.

def test_acme_under_faults():
    assert_everything_holds(SimulatedAcme, seeds=30)
"""

from collections.abc import Iterable

from pileus.suggest import did_you_mean
from pileus_lab.simulation.clouds.interface import MakeCloud
from pileus_lab.simulation.clouds.loading import check, check_volumes
from pileus_lab.simulation.play import Outcome, play
from pileus_lab.simulation.report import repeating
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw

SHOWN = 15
"""Lines of the trace before the violation."""


def assert_everything_holds(
    make_cloud: MakeCloud, *, seeds: int | Iterable[int] = 30, scenario: str = "mixed"
) -> None:
    """Plays that many seeds, or these, with the real manager and this cloud.

    Raises `AssertionError` with the first violation, what led to it, and the command that repeats
    it; `UnusableCloud`; `ValueError` for an unknown scenario.
    """
    if scenario not in SCENARIOS:
        raise ValueError(
            f'no scenario "{scenario}" (known: {", ".join(SCENARIOS)})'
            f"{did_you_mean(scenario, SCENARIOS)}"
        )
    name = _name(make_cloud)
    check(name, make_cloud)
    if SCENARIOS[scenario].has_volumes:
        check_volumes(name, make_cloud)
    for seed in range(1, seeds + 1) if isinstance(seeds, int) else seeds:
        outcome = play(draw(seed, SCENARIOS[scenario]), make_cloud)
        if outcome.violation is not None:
            raise AssertionError(_told(outcome, name))


def _told(outcome: Outcome, cloud: str) -> str:
    schedule = outcome.schedule
    last = [f"    {line}" for line in outcome.lines[-SHOWN:]]
    again = repeating(schedule.seed, schedule.scenario, cloud=cloud)
    how = f"repeat: {again} --trace FILE, or --shrink"
    return "\n".join([f"seed {schedule.seed}: {outcome.violation}", *last, how])


def _name(make_cloud: MakeCloud) -> str:
    return f"{make_cloud.__module__}:{getattr(make_cloud, '__qualname__', '')}"
