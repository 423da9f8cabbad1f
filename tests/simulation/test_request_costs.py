"""A provider whose calls make more requests than it declares is found by the first seeds."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from pileus_provider_network import connect
from pileus_provider_network.client import Client
from pileus_provider_network.simulated import SimulatedNetwork

from pileus.cloud.abilities import Abilities, Requests
from pileus.cloud.interface import Cloud
from pileus.providers.openstack import routes
from pileus_lab.simulation.clouds.interface import MakeCloud
from pileus_lab.simulation.clouds.local import SimulatedLocal
from pileus_lab.simulation.clouds.openstack import SimulatedOpenStack
from pileus_lab.simulation.play import play
from pileus_lab.simulation.request_costs import LAW
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw
from tests.guides import module

SEEDS = range(1, 7)


class ReadsGroupsThreeTimes(Client):
    async def groups(self) -> Any:
        await super().groups()
        await super().groups()
        return await super().groups()


class ReadsMachinesAfterEachWrite(Client):
    async def send(self, operation: Any) -> Any:
        answer = await super().send(operation)
        if operation.WRITES and operation.NAME.startswith("balancers."):
            for _ in range(6):
                await self.machines()
        return answer


class ListsPortsAgain(routes.OpenStackRoutes):
    async def _ports(self, next_hops: Any = ()) -> Any:
        for _ in range(3):
            await super()._ports(next_hops)
        return await super()._ports(next_hops)


PAGE = "simulate-your-provider.md"
ACME, MODEL = module(PAGE, "acme_balancers"), module(PAGE, "acme_model")
CLIENT, SIMULATED = module(PAGE, "acme_client"), module(PAGE, "acme_simulated")


class WritesEachNewMember(ACME.AcmeBalancers):
    """One more request for each member that joins or leaves."""

    async def apply(self, change: Any, seen: Any) -> Any:
        before = seen.found.members if seen.found else frozenset[str]()
        for _ in self.written(before, change.record.members):
            await self.api.api.call(MODEL.ListMachines())
        return await super().apply(change, seen)

    def written(self, before: frozenset[str], after: frozenset[str]) -> frozenset[str]:
        return before ^ after


class WritesAllMembers(WritesEachNewMember):
    def written(self, before: frozenset[str], after: frozenset[str]) -> frozenset[str]:
        return before | after


def acme(balancers: Any) -> MakeCloud:
    """Returns the cloud of the guide with such load balancers."""

    class CountedAcme(SIMULATED.SimulatedAcme):
        @asynccontextmanager
        async def connect(self, api: Any) -> AsyncGenerator[Cloud]:
            costs = Requests(page_size=MODEL.PER_PAGE, per_change=1, per_member_change=1)
            async with super().connect(api) as cloud:
                made = balancers(CLIENT.AcmeClient(api))
                yield replace(cloud, balancers=made, abilities=Abilities(requests=costs))

    return cast("MakeCloud", CountedAcme)


def _broken(cloud: MakeCloud) -> list[str]:
    found = (play(draw(seed, SCENARIOS["services"]), cloud).violation for seed in SEEDS)
    return [str(one) for one in found if one is not None and one.invariant == LAW]


@pytest.mark.parametrize(
    ("client", "text"),
    [
        (ReadsGroupsThreeTimes, "check of 1 load balancers made 6 requests; abilities.requests"),
        (ReadsMachinesAfterEachWrite, "requests; abilities.requests allows 6"),
    ],
)
def test_a_provider_that_asks_more_often_than_declared_is_found(
    monkeypatch: pytest.MonkeyPatch, client: type[Client], text: str
):
    monkeypatch.setattr(connect, "Client", client)

    assert any(text in one for one in _broken(SimulatedNetwork))


def test_a_change_that_writes_members_again_that_stay_is_found():
    assert _broken(acme(WritesEachNewMember)) == []

    assert any(
        "requests; abilities.requests allows" in one for one in _broken(acme(WritesAllMembers))
    )


def test_a_list_of_routes_that_costs_more_than_declared_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(routes, "OpenStackRoutes", ListsPortsAgain)

    assert any("a list of all routes made" in one for one in _broken(SimulatedOpenStack))


@pytest.mark.parametrize("cloud", [SimulatedNetwork, SimulatedOpenStack, SimulatedLocal])
def test_the_providers_keep_what_they_declare(cloud: MakeCloud):
    assert not _broken(cloud)
