"""Deleted Services leave nothing in the memory of the process, in whatever order answers come."""

import asyncio

import pytest

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Rejected
from pileus.runtime.memory import LINGER, remembering
from tests.unit.controllers.service.plain import Change
from tests.unit.controllers.service.world import World

LIVE = {"nodes": 1, "services": 0, "objects": 1}
"""One node is left."""


@pytest.mark.parametrize("answer_takes", [0.0, 0.5], ids=["answer first", "watch first"])
@pytest.mark.parametrize("refuses", [False, True], ids=["served", "refused"])
async def test_forty_deleted_services_are_forgotten(answer_takes: float, refuses: bool):
    world = World()
    world.wire.answer_takes = answer_takes
    cloud = world.plainly()
    await world.add_node("a")

    def refuse(owner: Owner, change: Change) -> None:
        if refuses and change.spec is not None:
            raise Rejected("no such network")

    cloud.changing = refuse
    with remembering(world.metrics) as memories:
        async with world.managed():
            for number in range(40):
                await world.add(f"web-{number}")
            await asyncio.sleep(60)
            assert memories.sizes()["services/notes"] == 40
            for number in range(40):
                await world.delete(f"web-{number}")
            await asyncio.sleep(60 + LINGER)

            sizes = memories.sizes()

    assert await world.services() == {}
    kept = {name: size for name, size in sizes.items() if size > LIVE[name.partition("/")[0]]}
    assert kept == {}
