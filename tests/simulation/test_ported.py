"""A provider in the shape of the Go framework holds under simulation, as our own does."""

import pytest

from pileus_lab.simulation.play import play
from pileus_lab.simulation.scenario import SCENARIOS, first_edition
from pileus_lab.simulation.schedule import draw
from pileus_lab.simulation.trial import assert_everything_holds
from tests.simulation.ported import SimulatedPorted


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", ["calm", "mixed", "services"])
def test_everything_holds_for_a_ported_provider(scenario: str):
    """The first of calm found a Service that never got a balancer after one of its name."""
    assert_everything_holds(SimulatedPorted, seeds=12, scenario=scenario)


def test_a_member_that_registered_again_is_known_by_its_machine():
    """The Node lacked its provider ID when it was passed, and no update followed."""
    assert_everything_holds(SimulatedPorted, seeds=[7], scenario="dual-stack")


@pytest.mark.parametrize(
    ("scenario", "seed"),
    [
        pytest.param(
            "cloud",
            118,
            id="a Service was released after one empty answer, because its note had been removed",
        ),
        pytest.param(
            "cloud",
            142,
            id="a change that failed twice in a row was not at work the second time (the cloud's)",
        ),
        pytest.param(
            "mixed",
            287,
            id="a Service deleted by force after a restart was not cleaned up: nobody knew it",
        ),
        pytest.param(
            "mixed",
            248,
            id="a Service that went by force after its balancer kept the next of its name waiting",
        ),
    ],
)
def test_what_was_found_once_with_a_ported_provider_stays_fixed(scenario: str, seed: int):
    violation = play(draw(seed, first_edition(SCENARIOS[scenario])), SimulatedPorted).violation

    assert violation is None, str(violation)
