"""What a provider declares decides how it is judged: the same cloud holds, or is found.

The clouds are variants of the network example: one accepts only running machines as members, as EC2
does, one has IPv4 only, and one has one family at a time.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from pileus_provider_network.balancers import NetworkBalancers
from pileus_provider_network.client import Client
from pileus_provider_network.connect import ABILITIES, cloud_of
from pileus_provider_network.model import Account, Operation, RegisterTargets
from pileus_provider_network.simulated import SimulatedNetwork

from pileus.cloud.abilities import Abilities
from pileus.cloud.balancer import Wish
from pileus.cloud.errors import Rejected, Unsupported
from pileus.cloud.interface import Cloud
from pileus_lab.simulation.clouds.interface import Api, MakeCloud, Moment
from pileus_lab.simulation.play import play
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw
from pileus_lab.simulation.trial import assert_everything_holds

SEEDS = 12


class OfRunningMachines(Client):
    async def machines(self) -> Any:
        return tuple(one for one in await super().machines() if one.is_running)


class RunningMembers(SimulatedNetwork):
    """Targets are refused while their machine does not run."""

    abilities = replace(ABILITIES, members_running=True)

    @asynccontextmanager
    async def connect(self, api: Api) -> AsyncGenerator[Cloud]:
        balancers = NetworkBalancers(OfRunningMachines(api))
        yield replace(cloud_of(api), balancers=balancers, abilities=self.abilities)

    def step(self, state: Account, operation: Operation, moment: Moment) -> tuple[Account, object]:
        if isinstance(operation, RegisterTargets):
            found = (state.machines.get(one) for one in operation.targets)
            if any(one is not None and not one.is_running for one in found):
                raise Rejected("InvalidTarget: not in a running state")
        return super().step(state, operation, moment)


class Undeclared(RunningMembers):
    abilities = ABILITIES


@dataclass(frozen=True, slots=True)
class Limited(NetworkBalancers):
    able: Abilities

    def changes(self, wish: Wish, seen: Any) -> Any:
        if wish.spec is not None and not self.able.serves(wish.spec.families):
            raise Unsupported(f"no load balancer with {wish.spec.families} here")
        return super(Limited, self).changes(wish, seen)


def limited(declared: Abilities, *, has: Abilities) -> MakeCloud:
    """Returns a cloud whose load balancers have these families, and declare others."""

    class LimitedNetwork(SimulatedNetwork):
        @asynccontextmanager
        async def connect(self, api: Api) -> AsyncGenerator[Cloud]:
            balancers = Limited(Client(api), has)
            yield replace(cloud_of(api), balancers=balancers, abilities=declared)

    def make(chance: Random) -> LimitedNetwork:
        return LimitedNetwork(chance)

    return make


WITHOUT_IPV6 = replace(ABILITIES, families=frozenset({"IPv4"}))
ONE_AT_A_TIME = replace(ABILITIES, dual_stack=False)


def _broken(cloud: MakeCloud, scenario: str) -> Iterator[str]:
    seeds = range(1, SEEDS + 1)
    found = (play(draw(seed, SCENARIOS[scenario]), cloud).violation for seed in seeds)
    return (str(one) for one in found if one is not None)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", ["mixed", "services", "unaided"])
def test_members_that_have_to_run_join_when_they_do(scenario: str):
    assert_everything_holds(RunningMembers, seeds=SEEDS, scenario=scenario)


@pytest.mark.timeout(300)
def test_a_cloud_that_refuses_stopped_machines_has_to_say_so():
    assert any("services_have_what_they_want" in one for one in _broken(Undeclared, "mixed"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("able", [WITHOUT_IPV6, ONE_AT_A_TIME], ids=["IPv4", "one at a time"])
def test_families_that_are_not_declared_are_not_asked_for(able: Abilities):
    assert not [*_broken(limited(able, has=able), "dual-stack")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("able", [WITHOUT_IPV6, ONE_AT_A_TIME], ids=["IPv4", "one at a time"])
def test_families_that_are_declared_and_refused_are_found(able: Abilities):
    broken = _broken(limited(ABILITIES, has=able), "dual-stack")

    assert any("services_have_what_they_want" in one for one in broken)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("able", [WITHOUT_IPV6, ONE_AT_A_TIME], ids=["IPv4", "one at a time"])
def test_families_that_are_built_and_not_declared_are_found(able: Abilities):
    broken = _broken(limited(able, has=ABILITIES), "dual-stack")

    assert any("what_cannot_be_done_is_told" in one for one in broken)
