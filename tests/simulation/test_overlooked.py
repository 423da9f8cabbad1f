"""A list that is empty for a moment leaves no part of a load balancer behind."""

import pytest
from pileus_provider_network.simulated import SimulatedNetwork

from pileus.controllers.service import plan
from pileus_lab.simulation.clouds.interface import MakeCloud
from pileus_lab.simulation.clouds.local import SimulatedLocal
from pileus_lab.simulation.clouds.openstack import SimulatedOpenStack
from pileus_lab.simulation.trial import assert_everything_holds

SEEDS = 20
"""Of each cloud. Seed 9 on OpenStack: Octavia refuses changes of a load balancer in ERROR, and
without `cascade-delete` its parts could never be deleted."""
GROUP_OVERLOOKED = 6
"""The list of target groups was empty when the load balancer was deleted."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cloud", [SimulatedLocal, SimulatedOpenStack, SimulatedNetwork])
def test_nothing_is_left_when_one_list_is_empty(cloud: MakeCloud) -> None:
    assert_everything_holds(cloud, seeds=SEEDS, scenario="overlooked")


@pytest.mark.timeout(300)
def test_a_finalizer_that_goes_without_a_check_after_the_deletion_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "_until_last_check", lambda _seen, _observed: 0.0)
    with pytest.raises(AssertionError, match="the_finalizer_goes_when_nothing_is_left"):
        assert_everything_holds(
            SimulatedNetwork, seeds=[GROUP_OVERLOOKED, *range(1, 21)], scenario="overlooked"
        )
