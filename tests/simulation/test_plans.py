"""A manager does what a plan announced just before, and nothing else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pileus_provider_network.simulated import SimulatedNetwork

from pileus.cloud.balancer import Part
from pileus.providers.openstack import balancer_plan
from pileus.providers.openstack.balancer_steps import Change
from pileus_lab.simulation.clouds.interface import MakeCloud
from pileus_lab.simulation.clouds.local import SimulatedLocal
from pileus_lab.simulation.clouds.openstack import SimulatedOpenStack
from pileus_lab.simulation.plan_check import LAWS
from pileus_lab.simulation.play import play
from pileus_lab.simulation.report import repeating
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw
from pileus_lab.simulation.trial import assert_everything_holds
from tests.simulation.defects_plans import DEFECTS
from tests.simulation.planting import Defect, planted
from tests.simulation.ported import SimulatedPorted

SEEDS, BLOCK = 60, 10
OF_OTHERS = 8
"""Seeds with the clouds that are not the local one."""
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "simulation.md"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(1, SEEDS + 1, BLOCK))
def test_a_manager_does_for_an_hour_what_plans_announce(first: int):
    for seed in range(first, first + BLOCK):
        violation = play(draw(seed, SCENARIOS["plan"])).violation
        assert violation is None, f"{violation}\n{repeating(seed, 'plan')}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cloud", [SimulatedOpenStack, SimulatedNetwork])
def test_plans_are_kept_with_providers_that_record_a_fingerprint(cloud: MakeCloud):
    assert_everything_holds(cloud, seeds=OF_OTHERS, scenario="plan")


MARKER_DELETED = 170
"""Services reported that the cloud cannot be asked, because the manager had deleted a listener at
the end of a page while it read the list."""


@pytest.mark.timeout(300)
def test_plans_are_kept_while_a_list_changes_between_its_pages():
    assert_everything_holds(SimulatedOpenStack, seeds=[MARKER_DELETED], scenario="plan")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            167,
            id="the route of a node without a machine, of which tables do not say whose it is",
        ),
        pytest.param(
            199,
            id="a manager whose clock was ahead took a new node for an old one",
        ),
    ],
)
def test_plans_are_kept_with_tables_that_do_not_say_whose_a_route_is(seed: int):
    assert_everything_holds(SimulatedNetwork, seeds=[seed], scenario="plan")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            10,
            id="members were updated before an ensure that a plan names alone",
        ),
        pytest.param(
            26,
            id="addresses that were edited between two leaders were restored by a full check",
        ),
        *(
            pytest.param(seed, id=f"a plan would create what exists already ({seed})")
            for seed in (21, 25, 29, 33, 37)
        ),
        *range(1, OF_OTHERS + 1),
    ],
)
def test_plans_are_kept_with_a_ported_provider(seed: int):
    assert_everything_holds(SimulatedPorted, seeds=[seed], scenario="plan")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cloud", [SimulatedLocal, SimulatedOpenStack, SimulatedNetwork])
def test_balancers_of_another_manager_are_taken_over_as_planned(cloud: MakeCloud):
    assert_everything_holds(cloud, seeds=OF_OTHERS, scenario="take-over")


@pytest.mark.timeout(300)
def test_a_service_that_gave_up_its_node_ports_keeps_its_members():
    """OpenStack needs the ports: the load balancer was emptied, and reported as ready."""
    assert_everything_holds(SimulatedOpenStack, seeds=[24], scenario="take-over")


@pytest.mark.timeout(300)
def test_a_take_over_of_which_the_plan_shows_marks_and_members_alone_is_found(
    monkeypatch: pytest.MonkeyPatch,
):
    sound = balancer_plan._adoption

    def mark_and_members(*args: Any) -> Iterator[Change]:
        mark, *others = sound(*args)
        yield mark
        yield from (one for one in others if one.part is Part.MEMBERS)

    monkeypatch.setattr(balancer_plan, "_adoption", mark_and_members)
    with pytest.raises(AssertionError, match="a_plan_of_adoption_is_complete"):
        assert_everything_holds(SimulatedOpenStack, seeds=[2], scenario="take-over")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_wrong_plan_is_found(defect: Defect):
    with planted(defect):
        for seed in defect.seeds():
            violation = play(draw(seed, SCENARIOS[defect.scenario])).violation
            if violation is not None:
                assert violation.invariant in defect.caught_by, str(violation)
                return
    raise AssertionError(f"none of {defect.within} seeds found it")


def test_every_law_is_broken_by_a_defect_and_the_page_names_them():
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    told = {cells[0].removeprefix("| "): cells for cells in rows}

    assert {law for defect in DEFECTS for law in defect.caught_by} == {*LAWS}
    for defect in DEFECTS:
        assert told[defect.name][1:] == [f"`{defect.caught_by[0]}`", f"{defect.at} |"]
