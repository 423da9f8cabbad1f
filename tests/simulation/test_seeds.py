"""Two hundred schedules of faults, and everything holds; `make soak` plays many more."""

import gc

import pytest

from pileus.runtime.queue import WorkQueue
from pileus_lab.simulation.play import play
from pileus_lab.simulation.report import repeating
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw

SEEDS = 200
BLOCK = 10


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(1, SEEDS + 1, BLOCK))
def test_everything_holds(first: int):
    for seed in range(first, first + BLOCK):
        outcome = play(draw(seed, SCENARIOS["mixed"]))
        assert outcome.violation is None, f"{outcome.violation}\n{repeating(seed, 'mixed')}"


def queues() -> int:
    gc.unfreeze()
    gc.collect()
    return sum(isinstance(each, WorkQueue) for each in gc.get_objects())


def test_a_seed_leaves_no_manager_in_memory():
    """Otherwise a process that plays a thousand seeds becomes slower with each."""
    before = queues()

    for seed in (2, 3):
        play(draw(seed, SCENARIOS["mixed"]))

    assert queues() <= before
