"""Services that are deleted without their finalizer being removed by us are cleaned up."""

import asyncio
from collections.abc import Hashable
from typing import Any, cast

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Unavailable
from pileus.kube.informer import Handler, Informer
from pileus.kube.model.core_v1 import NODES, SERVICES, Service
from pileus.runtime.informers import UID_INDEX
from tests.unit.controllers.service.plain import PlainBalancers
from tests.unit.controllers.service.world import World


class Blackout(PlainBalancers):
    """A cloud that answers nothing while it is down."""

    is_down = False

    async def owners(self, cluster: str) -> frozenset[Owner]:
        self.check()
        return await super().owners(cluster)

    async def observe(self, wishes: Any, *, deep: bool) -> Any:
        self.check()
        return await super().observe(wishes, deep=deep)

    def check(self) -> None:
        if self.is_down:
            raise Unavailable("the cloud is down")


async def force_delete(world: World) -> None:
    """Delete the Service as users do who lose patience: without its finalizer."""
    await world.delete()
    await world.change(metadata={"finalizers": None})


async def test_a_claimed_service_that_goes_before_its_first_pass_is_cleaned_up():
    world = World()
    cloud = world.plain = Blackout()
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
    assert cloud.standing
    cloud.is_down = True

    async with world.managed():
        await asyncio.sleep(5)  # the cloud shows this process nothing of the Service
        await force_delete(world)
        await asyncio.sleep(1)
        cloud.is_down = False
        await asyncio.sleep(60)

    assert not any(seen.spec for seen in cloud.standing.values())


class Veiled:
    """An informer that may lose a Service which is still there."""

    def __init__(self, informer: Informer[Service]) -> None:
        self._informer = informer
        self._handlers: list[Handler[Service]] = []
        self._hidden: set[str] = set()

    @property
    def store(self) -> "Veiled":
        return self

    async def wait_synced(self) -> None:
        await self._informer.wait_synced()

    def subscribe(self, handler: Handler[Service]) -> None:
        self._handlers.append(handler)
        self._informer.subscribe(handler)

    def list(self) -> tuple[Service, ...]:
        return self._seen(self._informer.store.list())

    def by_index(self, index: str, value: Hashable) -> tuple[Service, ...]:
        return self._seen(self._informer.store.by_index(index, value))

    def lose(self, name: str) -> None:
        for each in self.list():
            if each.metadata.name == name:
                self._hidden.add(each.metadata.uid)
                for handler in self._handlers:
                    handler.deleted(each)

    def _seen(self, services: tuple[Service, ...]) -> tuple[Service, ...]:
        return tuple(each for each in services if each.metadata.uid not in self._hidden)


class VeiledWorld(World):
    view: Veiled

    def _controller(self, client: Any, informers: Any, cloud: Any, settings: Any) -> Any:
        self.view = Veiled(informers.of(SERVICES, UID_INDEX))
        found = {NODES: informers.of(NODES), SERVICES: self.view}
        veiled = type("Veiled", (), {"of": lambda _, kind, indexes=None: found[kind]})
        return super()._controller(client, cast("Any", veiled()), cloud, settings)


async def test_what_the_watch_calls_deleted_is_kept_while_the_api_server_has_it():
    world = VeiledWorld()
    await world.add_node("a")
    async with world.managed():
        await world.add()
        await asyncio.sleep(10)
        before = dict(world.balancers)
        assert before
        world.front.changes.clear()
        world.view.lose("web")
        world.wire.reads.clear()
        await asyncio.sleep(600)

        assert world.balancers == before
        assert world.front.changes == []
        assert "/api/v1/namespaces/default/services/web" in world.wire.reads, "it was asked"
