"""What is decided again from the node that is read right before its deletion."""

import asyncio

from pileus.kube.transport import Request
from tests.unit.controllers.lifecycle.world import World

FEW = ("n1", "n2", "n3", "n4", "n5", "n6")


async def test_a_veto_that_comes_just_before_the_deletion_is_obeyed() -> None:
    """The watch has not shown it yet: only the node that is read for the deletion has it."""
    world = World()
    await world.add(*FEW)

    async def veto(request: Request) -> None:
        if request.method == "GET" and request.path.endswith("/nodes/n1"):
            world.wire.before = lambda _: None
            await world.annotate("n1", deletion="never")

    world.wire.before = veto
    async with world.running():
        await asyncio.sleep(1)
        await world.lose("n1")
        await asyncio.sleep(600)

    assert not world.wire.writes("DELETE")
    assert await world.condition("n1") == ("True", "DeletionVetoed")


async def test_a_breaker_that_opens_just_before_the_deletion_keeps_the_node() -> None:
    world = World()
    await world.add(*FEW)

    async def lose_others(request: Request) -> None:
        if request.method == "GET" and request.path.endswith("/nodes/n1"):
            world.wire.before = lambda _: None
            await world.lose("n2", "n3")
            await asyncio.sleep(20)

    world.wire.before = lose_others
    async with world.running():
        await asyncio.sleep(1)
        await world.lose("n1")
        await asyncio.sleep(600)

    assert not world.wire.writes("DELETE")
    assert await world.condition("n1") == ("True", "TooManyNodesGone")
