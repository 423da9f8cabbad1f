"""Seeds that found something once find nothing any more."""

import pytest

from pileus_lab.simulation.play import play
from pileus_lab.simulation.scenario import SCENARIOS, first_edition, second_edition
from pileus_lab.simulation.schedule import draw
from tests.simulation.regressions import REGRESSIONS, Found
from tests.simulation.regressions_volumes import VOLUME_REGRESSIONS

FORMER = (first_edition, second_edition)


@pytest.mark.parametrize("found", [*REGRESSIONS, *VOLUME_REGRESSIONS], ids=lambda found: found.what)
def test_what_was_found_once_stays_fixed(found: Found):
    scenario = SCENARIOS[found.scenario]
    if found.edition <= len(FORMER):
        scenario = FORMER[found.edition - 1](scenario)
    violation = play(draw(found.seed, scenario)).violation

    assert violation is None, str(violation)
