"""Processes that play side by side: every seed is reported once, come what may."""

import os
import signal

import pytest

from pileus_lab.simulation.campaign import Report, side_by_side

pytestmark = pytest.mark.real_time

DEADLY = 7


def play(seed: int) -> Report:
    if seed == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    return Report(seed=seed, digest="played")


@pytest.mark.timeout(120)
def test_a_process_that_dies_is_named_by_its_seed_and_the_others_are_played():
    found = list(side_by_side(range(1, 20), play, jobs=2, stopped=lambda: False))

    assert sorted(one.seed for one in found) == list(range(1, 20))
    assert {one.seed: one.violation for one in found if one.violation} == {
        DEADLY: "the process that ran it died, by SIGKILL"
    }
    assert {one.digest for one in found if not one.violation} == {"played"}


@pytest.mark.timeout(120)
def test_it_stops_when_it_is_told_to():
    found: list[Report] = []

    for report in side_by_side(range(100, 10_000), play, jobs=1, stopped=lambda: len(found) > 2):
        found.append(report)  # noqa: PERF402 -- `stopped` looks at what has come so far

    assert len(found) == 3


def hears_ctrl_c(seed: int) -> Report:
    return Report(seed=seed, violation=str(signal.getsignal(signal.SIGINT)))


@pytest.mark.timeout(120)
def test_ctrl_c_is_the_parents_to_hear():
    found = list(side_by_side([1], hears_ctrl_c, jobs=1, stopped=lambda: False))

    assert [one.violation for one in found] == [str(signal.SIG_IGN)]
