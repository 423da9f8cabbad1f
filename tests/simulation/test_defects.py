"""The simulation is able to fail: each planted defect is found, and by what it breaks."""

from pathlib import Path

import pytest

from pileus_lab.simulation.invariants.always import ALWAYS
from pileus_lab.simulation.invariants.eventually import QUIET
from pileus_lab.simulation.judge import AT_REST
from pileus_lab.simulation.play import play
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw
from tests.simulation.defects import DEFECTS
from tests.simulation.planting import Defect, planted


@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_planted_defect_is_found(defect: Defect):
    with planted(defect):
        for seed in defect.seeds():
            violation = play(draw(seed, SCENARIOS[defect.scenario])).violation
            if violation is not None:
                assert violation.invariant in defect.caught_by, str(violation)
                return
    raise AssertionError(f"none of {defect.within} seeds found it")


def test_the_page_names_every_defect():
    page = Path(__file__).parents[2] / "docs" / "explanation" / "simulation.md"
    rows = [line.split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    told = {cells[0].removeprefix("| "): cells for cells in rows}

    for defect in DEFECTS:
        since = f", from {defect.first} on" if defect.first > 1 else ""
        _, by, scenario, at, within = told[defect.name]
        assert by == ", ".join(f"`{one}`" for one in defect.caught_by)
        assert (scenario, at) == (defect.scenario, str(defect.at)), defect.name
        assert within == f"{defect.within}{since} |", defect.name


def test_every_invariant_is_broken_by_a_defect():
    broken = {invariant for defect in DEFECTS for invariant in defect.caught_by}

    assert broken == {*ALWAYS, *QUIET, AT_REST}
