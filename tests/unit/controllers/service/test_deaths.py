"""The process dies at any await; the next process continues without its memory."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pileus.kube.transport import Request
from tests.unit.controllers.service.world import FINALIZER, World

Act = Callable[[World], Awaitable[None]]
MOST = 60


class Mortal:
    """Counts the effects of a process, and ends it before or after the n-th.

    A process that has ended has no effects any more, whatever its tasks still try.
    """

    def __init__(self, world: World, dies_at: int) -> None:
        self.left = dies_at
        self.is_dead = False
        self._wire = world.wire.send
        self._cloud = world.front.call
        world.wire.send = self.send
        world.front.call = self.call

    async def _pass(self) -> None:
        if not self.is_dead:
            self.left -= 1
            self.is_dead = self.left < 0
        if self.is_dead:
            await asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[Any]:
        if request.method == "GET":
            async with self._wire(request) as reply:
                yield reply
            return
        await self._pass()
        async with self._wire(request) as reply:
            await self._pass()
            yield reply

    async def call(self, operation: Any) -> Any:
        if operation.NAME == "cloud.describe":  # before it leads
            return await self._cloud(operation)
        await self._pass()
        answer = await self._cloud(operation)
        await self._pass()
        return answer


async def begun(world: World) -> None:
    for name in "abc":
        await world.add_node(name)
    await world.add(ports=[{"name": "one", "port": 80}])


async def served(world: World) -> None:
    await begun(world)
    async with world.managed():
        await asyncio.sleep(20)


async def change(world: World) -> None:
    ports = [{"name": "one", "port": 80}, {"name": "two", "port": 443}]
    await world.change(spec={"ports": ports, "sessionAffinity": "ClientIP"})
    await world.remove_node("c")
    await world.add_node("d")


async def delete(world: World) -> None:
    await world.delete()


async def change_type(world: World) -> None:
    await world.change(spec={"type": "ClusterIP"})


async def is_as_wanted(world: World) -> None:
    (service,) = (await world.services()).values()
    wanted = {port["port"] for port in service["spec"]["ports"]}
    nodes = sorted(await world.node_names())
    (balancer,) = world.cloud.state.balancers.values()
    assert {port.port for port in balancer.ports} == wanted
    assert world.members() == nodes
    assert balancer.mark.owner == service["metadata"]["uid"]
    assert service["metadata"]["finalizers"] == [FINALIZER]
    assert [each["ip"] for each in await world.ingress()] == list(balancer.addresses)
    assert (await world.condition())[0] == "True"


async def is_gone(world: World) -> None:
    assert await world.services() == {}
    assert world.balancers == {}


async def is_plain(world: World) -> None:
    assert world.balancers == {}
    assert "finalizers" not in (await world.service())["metadata"]


async def nothing(world: World) -> None:
    pass


@pytest.mark.parametrize(
    ("before", "act", "meanwhile", "holds"),
    [
        pytest.param(begun, nothing, nothing, is_as_wanted, id="new"),
        pytest.param(begun, nothing, delete, is_gone, id="new, and deleted while nobody looked"),
        pytest.param(served, change, nothing, is_as_wanted, id="changed"),
        pytest.param(served, change, delete, is_gone, id="changed, and deleted meanwhile"),
        pytest.param(served, delete, nothing, is_gone, id="deleted"),
        pytest.param(served, change_type, nothing, is_plain, id="of another type"),
    ],
)
async def test_whoever_dies_at_any_moment_is_succeeded(
    before: Act, act: Act, meanwhile: Act, holds: Act
):
    for moment in range(MOST):
        world = World()
        await before(world)
        mortal = Mortal(world, moment)
        await act(world)
        async with world.managed():
            await asyncio.sleep(30)
        survived = not mortal.is_dead
        mortal.is_dead, mortal.left = False, 10**6

        assert all(one.mark.owner for one in world.cloud.state.balancers.values())
        await meanwhile(world)
        async with world.managed():
            await asyncio.sleep(60)
            await holds(world)
        if survived:
            assert moment > 5
            return
    raise AssertionError("it never got to the end")
