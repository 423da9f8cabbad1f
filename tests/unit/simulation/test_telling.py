"""What is written down about outcomes, and read again."""

from dataclasses import replace

import pytest

from pileus_lab.simulation.play import Outcome
from pileus_lab.simulation.report import (
    TraceHead,
    UnusableTrace,
    first_difference,
    read_head,
    repeating,
    written_trace,
)
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw

OUTCOME = Outcome(
    schedule=draw(3, SCENARIOS["calm"]), violation=None, lines=("one", "two"), digest=""
)


@pytest.mark.parametrize("only", [None, (1, 5), ()])
def test_a_trace_says_how_to_play_it_again(only: tuple[int, ...] | None):
    assert read_head(written_trace(OUTCOME, only)) == TraceHead(3, "calm", only)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("pileus simulation", "some other", "not a trace"),
        ("pileus 0", "pileus 99", "written by pileus 99"),
        ("seed 3", "seed three", "third line is damaged"),
        ("pileus 0", "0", "first lines are damaged"),
    ],
)
def test_a_trace_that_cannot_be_compared_is_refused_with_the_reason(old: str, new: str, told: str):
    with pytest.raises(UnusableTrace, match=told):
        read_head(written_trace(OUTCOME, None).replace(old, new, 1))


def test_the_first_line_that_differs_is_told():
    other = replace(OUTCOME, lines=("one", "three"))

    told = first_difference(written_trace(OUTCOME, None), written_trace(other, None))

    assert "then: two" in told
    assert "now:  three" in told
    assert first_difference("a\nb", "a") == "line 2: 2 lines then, 1 now"
    assert first_difference("a", "a") == ""


def test_the_command_that_repeats_names_all_that_matters():
    assert repeating(9, "cloud", [1, 2]) == (
        "pileus simulate --first-seed 9 --seeds 1 --scenario cloud --only 1,2"
    )
