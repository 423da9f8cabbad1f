"""Services that move from one cloud of a manager to another: the finalizer guards both clouds."""

import asyncio
from collections.abc import Sequence

from pileus.cloud.balancer import Effect, Wish
from pileus.cloud.errors import Unavailable
from pileus.controllers.service.status import has_finalizer, served_class
from pileus.kube.errors import NotFound
from pileus.kube.model.core_v1 import SERVICES, Service
from pileus.kube.patch import MergePatch
from tests.unit.app.several import Account, TwoClouds, two_clouds

FLAGS = ("--controllers=service",)
LONG = 2000


def goes_down(account: Account) -> None:
    def fail(_: Sequence[Wish]) -> None:
        raise Unavailable(f"{account.name} is down")

    account.balancers.looking = fail


def comes_back(account: Account) -> None:
    account.balancers.looking = lambda _: None


async def service(it: TwoClouds) -> Service:
    return await it.user.get(SERVICES, "web", namespace="default")


async def becomes(it: TwoClouds, kind: str) -> None:
    spec = {"type": kind, "loadBalancerClass": None}
    await it.user.patch(SERVICES, "web", MergePatch({"spec": spec}), namespace="default")


async def moves_to_the_default(it: TwoClouds) -> None:
    await becomes(it, "ClusterIP")
    await becomes(it, "LoadBalancer")


async def exists(it: TwoClouds) -> bool:
    try:
        await service(it)
    except NotFound:
        return False
    return True


async def test_the_default_cloud_keeps_the_finalizer_of_a_service_that_another_cloud_served():
    async with two_clouds() as it:
        await it.add_service("web", "pileus.dev/b")
        async with it.managed(*FLAGS):
            await asyncio.sleep(30)
            goes_down(it.b)
            await becomes(it, "ClusterIP")
            await asyncio.sleep(LONG)
            assert has_finalizer(await service(it))
            assert it.b.balancers.standing

        async with it.managed(*FLAGS):
            await asyncio.sleep(LONG)
            assert has_finalizer(await service(it))

            comes_back(it.b)
            await asyncio.sleep(LONG)
            assert not it.b.balancers.standing
            assert not has_finalizer(await service(it))


async def test_a_service_that_moves_keeps_its_finalizer_and_is_cleaned_up_once():
    async with two_clouds() as it:
        uid = await it.add_service("web", "pileus.dev/b")
        async with it.managed(*FLAGS):
            await asyncio.sleep(30)
            await moves_to_the_default(it)
            for _ in range(200):
                await asyncio.sleep(0.1)
                assert has_finalizer(await service(it))
            await asyncio.sleep(LONG)

            assert len(it.a.balancers.standing) == 1
            assert not it.b.balancers.standing
            assert it.b.balancers.changed == [(uid, Effect.CREATE), (uid, Effect.DELETE)]
            found = await service(it)
            assert has_finalizer(found)
            assert served_class(found) == ""

            await it.user.delete(SERVICES, "web", namespace="default")
            await asyncio.sleep(60)
            assert not it.a.balancers.standing
            assert not await exists(it)


async def test_a_deleted_service_waits_for_the_cloud_that_it_left_even_after_a_restart():
    async with two_clouds() as it:
        await it.add_service("web", "pileus.dev/b")
        async with it.managed(*FLAGS):
            await asyncio.sleep(30)
            goes_down(it.b)
            await moves_to_the_default(it)
            await asyncio.sleep(LONG)
            assert len(it.a.balancers.standing) == 1

        async with it.managed(*FLAGS):
            await asyncio.sleep(LONG)
            await it.user.delete(SERVICES, "web", namespace="default")
            await asyncio.sleep(LONG)
            assert not it.a.balancers.standing
            assert has_finalizer(await service(it))

            comes_back(it.b)
            await asyncio.sleep(LONG)
            assert not it.b.balancers.standing
            assert not await exists(it)
