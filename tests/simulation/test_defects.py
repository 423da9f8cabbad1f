"""The simulation is able to fail: each planted defect is found, and by what it breaks."""

from pathlib import Path

import pytest

from pileus.simulation.play import play
from pileus.simulation.scenario import SCENARIOS
from pileus.simulation.schedule import draw
from tests.simulation.defects import DEFECTS, Defect, planted


@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_planted_defect_is_found(defect: Defect):
    with planted(defect):
        for seed in range(defect.first, defect.first + defect.within):
            violation = play(draw(seed, SCENARIOS[defect.scenario])).violation
            if violation is not None:
                assert violation.invariant in defect.caught_by, str(violation)
                return
    raise AssertionError(f"none of {defect.within} seeds found it")


def test_the_page_names_every_defect():
    page = Path(__file__).parents[2] / "docs" / "explanation" / "simulation.md"
    rows = [line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    told = {cells[0].removeprefix("| "): cells[-1].removesuffix(" |") for cells in rows}

    for defect in DEFECTS:
        since = f", from {defect.first} on" if defect.first > 1 else ""
        assert told.get(defect.name) == f"{defect.within}{since}", defect.name
