"""Clouds that cannot be simulated, or only badly."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

from pileus.cloud.abilities import Abilities
from pileus.cloud.interface import Cloud
from pileus_lab.simulation.clouds.interface import Api
from pileus_lab.simulation.clouds.local import SimulatedLocal

NOT_A_CLOUD = "local"


class Unsound(SimulatedLocal):
    """Its model has a bug."""

    def step(self, state: Any, operation: Any, moment: Any) -> Any:
        if operation.NAME == "instances.list":
            raise KeyError("a machine that is not there")
        return super().step(state, operation, moment)


class HalfMade(SimulatedLocal):
    """Its provider lacks a method."""

    @asynccontextmanager
    async def connect(self, api: Api) -> AsyncGenerator[Cloud]:
        async with super().connect(api) as cloud:
            yield replace(cloud, instances=object())


class MachinesAlone(SimulatedLocal):
    """Its provider has neither balancers nor routes."""

    @asynccontextmanager
    async def connect(self, api: Api) -> AsyncGenerator[Cloud]:
        async with super().connect(api) as cloud:
            yield replace(cloud, balancers=None, routes=None, abilities=Abilities())


class Choosy(SimulatedLocal):
    def __init__(self, chance: Random, region: str) -> None:
        super().__init__(chance)


class Incomplete:
    impossible_address = ""
    gives_free_addresses = False
    shares_by = ""
    annotations = ()

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def start(self) -> None:
        return None
