"""The example for a cloud like EC2 keeps all laws, unmodified, and runs clean in the simulation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pileus_provider_network.connect import ABILITIES, connect
from pileus_provider_network.harness import (
    NetworkBalancersHarness,
    NetworkInstancesHarness,
    NetworkRoutesHarness,
)
from pileus_provider_network.routes import NetworkRoutes
from pileus_provider_network.simulated import SimulatedNetwork

from pileus.cloud.abilities import Affinity
from pileus.cloud.connection import connected
from pileus.cloud.interface import ProviderConfig
from pileus.cloud.model import Route
from pileus.testing.conformance import abilities, routes
from pileus.testing.conformance.balancers import BalancersLaws
from pileus.testing.conformance.harness import run
from pileus.testing.conformance.instances import InstancesLaws
from pileus.testing.conformance.routes import RoutesLaws
from pileus.testing.virtual_time import VirtualTimeLoop
from pileus_lab.simulation.trial import assert_everything_holds


class TestInstances(InstancesLaws):
    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        return NetworkInstancesHarness()


class TestBalancers(BalancersLaws):
    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        return NetworkBalancersHarness()


class TestRoutes(RoutesLaws):
    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        return NetworkRoutesHarness()


def test_the_simulation_finds_nothing():
    assert_everything_holds(SimulatedNetwork, seeds=20)


def test_a_service_without_node_ports_is_refused():
    """It was built with target groups on port 0, and reported as ready."""
    assert_everything_holds(SimulatedNetwork, seeds=[36], scenario="unaided")


async def test_its_declaration_is_accepted():
    async with connected("network", connect, ProviderConfig()) as cloud:
        assert cloud.abilities.members_by_provider_id


class TellsOfNoTable(NetworkRoutes):
    async def list_routes(self, cluster: str) -> Sequence[Route]:
        return [replace(one, missing_in=frozenset()) for one in await super().list_routes(cluster)]


class CreatesInTheFirstTableAlone(NetworkRoutes):
    async def _in_all(self, tables: Sequence[str], request: Any) -> None:
        await super()._in_all(tables[:1], request)


@pytest.mark.parametrize(
    ("defect", "message"),
    [
        (TellsOfNoTable, "is listed as complete"),
        (CreatesInTheFirstTableAlone, "a route that was created is missing in"),
    ],
)
def test_a_route_that_is_not_in_all_tables_is_found(defect: type[NetworkRoutes], message: str):
    with pytest.raises(AssertionError, match=message):
        run(routes.partial_is_completed(NetworkRoutesHarness(defect)), VirtualTimeLoop)


def test_an_ability_that_the_example_does_not_have_is_named():
    harness = NetworkBalancersHarness(abilities=replace(ABILITIES, affinity=Affinity.SECONDS))
    with pytest.raises(AssertionError, match="abilities.affinity is declared as 'seconds'"):
        run(abilities.affinity_is_as_declared(harness), VirtualTimeLoop)
