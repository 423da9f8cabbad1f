"""One seed, one course of events; whatever the machine, the hash seed, or the past."""

import os
import subprocess
import sys

import pytest

from pileus_lab.simulation.play import play
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw
from tests.simulation.defects import DEFECTS
from tests.simulation.planting import planted

PROGRAM = """
from pileus_lab.simulation.play import play
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw
for seed in (11, 12, 13):
    print(play(draw(seed, SCENARIOS["mixed"])).digest)
"""
LOST_WAKE_UP = next(one for one in DEFECTS if "wake-up" in one.name)


def digests(hash_seed: int) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_the_trace_is_the_same_in_every_process():
    here = [play(draw(seed, SCENARIOS["mixed"])).digest for seed in (11, 12, 13)]

    assert digests(1) == here
    assert digests(2) == here


def test_different_seeds_do_different_things():
    assert play(draw(1, SCENARIOS["mixed"])).digest != play(draw(2, SCENARIOS["mixed"])).digest


def test_the_trace_tells_who_did_what_and_ends_with_the_verdict():
    with planted(LOST_WAKE_UP):
        outcome = play(draw(1, SCENARIOS["mixed"]))

    assert outcome.violation is not None
    assert outcome.lines[-1].endswith(str(outcome.violation).partition("\n")[0])
    whole = "\n".join(outcome.lines)
    assert all(who in whole for who in ("schedule", "manager-1", "people", "kubelets"))


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_can_be_played(name: str):
    assert play(draw(1, SCENARIOS[name])).violation is None
