"""A provider's own test in one line: it passes, or tells what happened and how to see it again."""

import pytest

from pileus_lab.simulation.clouds.loading import UnusableCloud
from pileus_lab.simulation.clouds.local import SimulatedLocal
from pileus_lab.simulation.trial import assert_everything_holds
from tests.unit.simulation.clouds.faulty import Incomplete, MachinesAlone, Unsound


def test_a_sound_cloud_holds():
    assert_everything_holds(SimulatedLocal, seeds=2)


def test_of_a_cloud_without_balancers_and_routes_none_are_expected():
    assert_everything_holds(MachinesAlone, seeds=[1, 2, 3, 4])


def test_a_bug_in_a_model_is_told_where_it_is_and_how_to_see_it_again():
    with pytest.raises(AssertionError) as failed:
        assert_everything_holds(Unsound, seeds=[7], scenario="calm")

    told = str(failed.value)
    assert told.startswith("seed 7: nothing_fails_unseen at second ")
    assert "KeyError: 'a machine that is not there'" in told
    assert "faulty.py" in told
    assert "--first-seed 7 --seeds 1 --scenario calm" in told
    assert "--cloud tests.unit.simulation.clouds.faulty:Unsound" in told


def test_what_cannot_be_simulated_is_refused():
    with pytest.raises(UnusableCloud, match="lacks connect"):
        assert_everything_holds(Incomplete)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='did you mean "mixed"'):
        assert_everything_holds(SimulatedLocal, scenario="mixd")
