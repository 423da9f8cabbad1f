"""A provider in the shape of the Go framework holds under simulation, as our own does."""

import pytest

from pileus.simulation.trial import assert_everything_holds
from tests.simulation.ported import SimulatedPorted


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", ["calm", "mixed", "services"])
def test_everything_holds_for_a_ported_provider(scenario: str):
    """The first of calm found a Service that never got a balancer after one of its name."""
    assert_everything_holds(SimulatedPorted, seeds=12, scenario=scenario)
