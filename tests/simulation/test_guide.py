"""The provider of our guide holds under simulation, and its likely mistakes are found."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from pileus_lab.simulation.play import play
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw
from pileus_lab.simulation.trial import assert_everything_holds
from tests.guides import GUIDES, module
from tests.simulation.planting import Defect, Patch, planted

PAGE = "simulate-your-provider.md"
BALANCERS = module(PAGE, "acme_balancers")
MODEL = module(PAGE, "acme_model")
CLIENT = module(PAGE, "acme_client")
SIMULATED = module(PAGE, "acme_simulated")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", ["mixed", "services", "cloud"])
def test_everything_holds_for_the_provider_of_the_guide(scenario: str):
    assert_everything_holds(SIMULATED.SimulatedAcme, seeds=12, scenario=scenario)


def _clusters_mixed() -> Iterable[Patch]:
    async def observe(self: Any, wishes: Any, *, deep: bool) -> Any:
        by_uid = {one.owner.uid: one for one in await self.api.list() if one.owner}
        return {w.owner: BALANCERS.Seen(w.owner, by_uid.get(w.owner.uid)) for w in wishes}

    yield BALANCERS.AcmeBalancers, "observe", observe


def _first_page() -> Iterable[Patch]:
    async def first(self: Any) -> Any:
        return (await self.api.call(MODEL.ListBalancers())).items

    yield CLIENT.AcmeClient, "list", first


def _marked_later() -> Iterable[Patch]:
    async def put(self: Any, record: Any) -> Any:
        if not record.id:
            made = await self.api.call(MODEL.PutBalancer(replace(record, owner=None)))
            record = replace(record, id=made.id)
        return await self.api.call(MODEL.PutBalancer(record))

    yield CLIENT.AcmeClient, "put", put


def _by_name() -> Iterable[Patch]:
    sound: Callable[..., Any] = CLIENT.AcmeInstances.answer

    def answer(self: Any, node: Any, machines: Any) -> Any:
        same = next((one for one in machines if one.name == node.name), None)
        meant = f"acme://{same.id}" if same else "acme://nobody"
        return sound(self, replace(node, provider_id=meant), machines)

    yield CLIENT.AcmeInstances, "answer", answer


def _kept() -> Iterable[Patch]:
    kept: list[tuple[Any, Any]] = []

    async def find(self: Any, nodes: Any, *, fresh: bool) -> Any:
        known = next((machines for api, machines in kept if api is self.api), None)
        if known is None:
            known = (await self.api.call(MODEL.ListMachines())).items
            kept.append((self.api, known))
        return {node.name: self.answer(node, known) for node in nodes}

    yield CLIENT.AcmeInstances, "find", find


MISTAKES = (
    Defect(
        "load balancers are looked up by the UID of the Service, without the cluster ID",
        _clusters_mixed,
        ("no_balancer_is_left_behind", "services_have_what_they_want"),
        30,
        "services",
    ),
    Defect(
        "only the first page of a list is read",
        _first_page,
        ("the_finalizer_goes_when_nothing_is_left", "no_balancer_is_left_behind"),
        50,
        "services",
    ),
    Defect(
        "a load balancer is created first and tagged with its owner by a second call",
        _marked_later,
        ("the_finalizer_comes_before_the_balancer",),
    ),
    Defect(
        "machines are looked up by name only",
        _by_name,
        ("nodes_get_the_id_of_their_own_machine", "nodes_of_no_machine_are_gone"),
        20,
    ),
    Defect(
        "machines are cached and never read again",
        _kept,
        ("nodes_are_as_their_machines", "stopped_nodes_are_tainted"),
    ),
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_likely_mistake_of_a_provider_is_found(mistake: Defect):
    with planted(mistake):
        for seed in range(1, mistake.within + 1):
            schedule = draw(seed, SCENARIOS[mistake.scenario])
            violation = play(schedule, SIMULATED.SimulatedAcme).violation
            if violation is not None:
                assert violation.invariant in mistake.caught_by, str(violation)
                return
    raise AssertionError(f"none of {mistake.within} seeds found it")


def test_the_guide_names_every_mistake_and_what_finds_it():
    page = (GUIDES / PAGE).read_text()

    for mistake in MISTAKES:
        assert f"| {mistake.name} | `{mistake.caught_by[0]}` |\n" in page
