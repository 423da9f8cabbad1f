"""The simulation is able to fail: each planted defect is found, and by what it breaks."""

import pytest

from pileus.simulation.play import play
from pileus.simulation.scenario import SCENARIOS
from pileus.simulation.schedule import draw
from tests.simulation.defects import DEFECTS, Defect, planted


@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_planted_defect_is_found(defect: Defect):
    with planted(defect):
        for seed in range(1, defect.within + 1):
            violation = play(draw(seed, SCENARIOS[defect.scenario])).violation
            if violation is not None:
                assert violation.invariant in defect.caught_by, str(violation)
                return
    raise AssertionError(f"no seed up to {defect.within} found it")
