"""How far the seeds are: one line that fits."""

import io

import pytest

from pileus.cli.terminal import Terminal
from pileus_lab.cli.simulate import SeedsProgress, drawn_bar, duration_text, progress_text
from pileus_lab.simulation.campaign import Report, Summary


def test_the_line_tells_how_many_how_fast_and_how_long():
    assert progress_text(Summary(wanted=1000, seeds=250), seconds=30.0) == (
        "250/1000 seeds, 0 failed, 500 a minute, 90 s left"
    )


@pytest.mark.parametrize("width", [20, 79, 119])
def test_the_bar_takes_the_room_that_is_left(width: int):
    summary = Summary(wanted=10_000, seeds=5_000)
    text = progress_text(summary, seconds=600.0)

    drawn = drawn_bar(summary, text, width)

    assert len(drawn) <= width
    bar = drawn.partition("]")[0]
    assert width == 20 or abs(bar.count("#") - bar.count(" ")) <= 1


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0 s"), (119, "119 s"), (121, "2 min"), (3599, "1 h 00 min"), (7500, "2 h 05 min")],
)
def test_a_duration_is_as_exact_as_one_wants_to_know(seconds: float, told: str):
    assert duration_text(seconds) == told


def test_a_seed_that_fails_is_named_at_once_and_once_only():
    err = io.StringIO()
    progress = SeedsProgress(Terminal(io.StringIO(), err, {}))
    summary = Summary(wanted=9)

    for report in (Report(seed=7, violation="no_good: so it is\nand more"), Report(seed=8)):
        summary.add(report)
        progress.tell(summary)

    assert err.getvalue() == "seed 7 failed: no_good: so it is\n"
