"""Seeds that found something once find nothing any more."""

import pytest

from pileus_lab.simulation.play import play
from pileus_lab.simulation.scenario import SCENARIOS, first_edition, second_edition
from pileus_lab.simulation.schedule import draw
from tests.simulation.regressions import REGRESSIONS, Found
from tests.simulation.regressions_volumes import VOLUME_REGRESSIONS


@pytest.mark.parametrize("found", [*REGRESSIONS, *VOLUME_REGRESSIONS], ids=lambda found: found.what)
def test_what_was_found_once_stays_fixed(found: Found):
    edition = {1: first_edition, 2: second_edition}[found.edition]
    violation = play(draw(found.seed, edition(SCENARIOS[found.scenario]))).violation

    assert violation is None, str(violation)
