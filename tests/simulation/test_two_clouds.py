"""Two clouds in one manager: trouble of the second does not delay the first, and both converge."""

import asyncio

import pytest
from pileus_provider_network.simulated import SimulatedNetwork

from pileus.app.node_assignment import NodeAssignment
from pileus_lab.simulation.clouds.interface import MakeCloud
from pileus_lab.simulation.clouds.local import SimulatedLocal
from pileus_lab.simulation.clouds.openstack import SimulatedOpenStack
from pileus_lab.simulation.play import play
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw
from pileus_lab.simulation.trial import assert_everything_holds
from tests.simulation.ported import SimulatedPorted

SCENARIO = SCENARIOS["two-clouds"]


@pytest.mark.parametrize("seed", range(1, 21))
def test_trouble_of_one_cloud_does_not_delay_another(seed: int) -> None:
    assert play(draw(seed, SCENARIO)).violation is None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cloud", [SimulatedOpenStack, SimulatedNetwork, SimulatedPorted])
def test_trouble_of_one_cloud_does_not_delay_any_provider(cloud: MakeCloud) -> None:
    assert_everything_holds(cloud, seeds=8, scenario="two-clouds")


def test_a_service_that_is_gone_is_not_reported_as_an_orphan_of_a_ported_provider() -> None:
    """The check that precedes the removal of its finalizer had made it known once more."""
    assert play(draw(25, SCENARIO), SimulatedPorted).violation is None


@pytest.mark.parametrize(
    ("cloud", "seed"),
    [
        pytest.param(
            SimulatedLocal,
            380,
            id="all nodes registered again while no manager ran, and lost their load balancers",
        ),
        pytest.param(
            SimulatedPorted,
            451,
            id="the last node of a cloud was gone after a restart, and those of the other cloud "
            "seemed to be nodes that the provider does not recognise",
        ),
        pytest.param(
            SimulatedPorted,
            948,
            id="a new leader ensured a load balancer without members before it had assigned nodes "
            "that had registered again to their cloud",
        ),
        pytest.param(
            SimulatedNetwork,
            897,
            id="a creation was answered with the load balancer that one empty list had hidden, and "
            "its ports were replaced by ports without members",
        ),
    ],
)
def test_what_was_found_once_stays_fixed(cloud: MakeCloud, seed: int) -> None:
    violation = play(draw(seed, SCENARIO), cloud).violation

    assert violation is None, str(violation)


def test_a_ported_provider_whose_deletion_found_nothing_is_asked_again() -> None:
    """Its lookup was stale: the finalizer was removed while the load balancer was left."""
    assert play(draw(190, SCENARIO), SimulatedPorted).violation is None


def test_a_note_is_not_removed_again_before_the_end_of_a_pause_of_the_api_server() -> None:
    """The error of the ported provider's call had lost its Retry-After."""
    assert play(draw(172, SCENARIO), SimulatedPorted).violation is None


def test_nodes_that_are_never_assigned_to_a_cloud_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(_: NodeAssignment) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(NodeAssignment, "run", never)

    violations = [play(draw(seed, SCENARIO)).violation for seed in range(1, 6)]

    assert any(violation is not None for violation in violations)
