"""Find a smaller schedule that fails in the same way."""

from collections.abc import Callable, Sequence

from pileus_lab.simulation.clouds.interface import MakeCloud
from pileus_lab.simulation.clouds.local import SimulatedLocal
from pileus_lab.simulation.play import Outcome, play
from pileus_lab.simulation.schedule import Schedule

TRIES = 300
"""Schedules that are tried at most."""


def shrink(
    schedule: Schedule,
    told: Callable[[str], None] = lambda _: None,
    *,
    make_cloud: MakeCloud = SimulatedLocal,
) -> Outcome:
    """The outcome of a schedule none of whose items can be left out, found by leaving out.

    It fails by the same invariant as the whole; one that does not fail comes back as it is.
    """
    smallest = play(schedule, make_cloud)
    if smallest.violation is None:
        return smallest
    size, tries = max(1, len(schedule.items) // 2), 0
    while tries < TRIES:
        tries += 1
        found = _smaller(smallest, size, make_cloud)
        if found is not None:
            smallest = found
            told(f"{len(smallest.schedule.items)} items still fail")
        elif size == 1:
            break
        else:
            size = max(1, size // 2)
    return smallest


def _smaller(failing: Outcome, size: int, make_cloud: MakeCloud) -> Outcome | None:
    """The first that still fails in the same way when `size` neighbours are left out."""
    numbers = [item.number for item in failing.schedule.items]
    for start in range(0, len(numbers), size):
        outcome = play(failing.schedule.only(_without(numbers, start, size)), make_cloud)
        if _invariant(outcome) == _invariant(failing):
            return outcome
    return None


def _invariant(outcome: Outcome) -> str:
    return outcome.violation.invariant if outcome.violation else ""


def _without(numbers: Sequence[int], start: int, size: int) -> list[int]:
    return [*numbers[:start], *numbers[start + size :]]
