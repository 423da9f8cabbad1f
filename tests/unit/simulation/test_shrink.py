"""A failing schedule is made smaller until nothing can be left out."""

from pileus_lab.simulation.play import play, shrink
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw
from tests.simulation.defects import DEFECTS
from tests.simulation.planting import planted

STEALING = next(one for one in DEFECTS if one.name == "a lease is taken though its holder lives")
SEED = 1


def test_what_remains_fails_by_the_same_invariant_and_alone():
    schedule = draw(SEED, SCENARIOS["leaders"])

    with planted(STEALING):
        whole, small = play(schedule), shrink(schedule)
        again = play(schedule.only([item.number for item in small.schedule.items]))

    assert whole.violation is not None
    assert small.violation is not None
    assert small.violation.invariant == whole.violation.invariant
    assert len(small.schedule.items) < len(schedule.items)
    assert again.lines == small.lines


def test_a_schedule_that_does_not_fail_stays_as_it_is():
    schedule = draw(1, SCENARIOS["calm"])

    assert shrink(schedule).schedule == schedule
