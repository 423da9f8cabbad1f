"""The clocks of simulated managers: wrong within bounds, and never backwards where it matters."""

import pytest

from pileus_lab.simulation.managers import PacedClock


def test_a_clock_goes_on_from_where_it_was_when_its_pace_changes():
    now = [10.0]
    clock = PacedClock(lambda: now[0], 1.1)

    now[0] = 20.0
    clock.run_at(0.9)
    shown = clock()
    now[0] = 30.0

    assert shown == pytest.approx(11.0)
    assert clock() == pytest.approx(20.0)
