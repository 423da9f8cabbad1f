"""The clouds that webhooks ask: read-only, and each of several on its own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from random import Random

import pytest

from pileus.admission.volumes import Found, Place, Unknown, VolumeLookup
from pileus.app.startup import World
from pileus.app.webhooks import Webhooks
from pileus.cloud.errors import CloudError, Unavailable
from pileus.cloud.interface import Cloud
from pileus.cloud.registry import Registry
from pileus.cloud.volume import VolumeId
from pileus.kube.model.core_v1 import CsiSource, PersistentVolume, PersistentVolumeSpec
from tests.contract.storage import StorageHarness, StorageVolumes
from tests.unit.app.several import Account
from tests.unit.app.stage import TIMES, Kube, configured, manager_context

FLAGS = ("--cloud-provider=a,b", "--cluster-id=c1")


class Bed:
    def __init__(self) -> None:
        self.accounts = {name: Account(name, name) for name in "ab"}
        self.handles: dict[str, VolumeId] = {}
        for name, account in self.accounts.items():
            storage = StorageHarness()
            made = storage.add_unmarked(f"data-{name}")
            assert made is not None
            self.handles[name] = made
            account.cloud = Cloud(name=name, volumes=StorageVolumes(storage.cloud))

    @asynccontextmanager
    async def places(self) -> AsyncGenerator[tuple[Place, ...]]:
        kube, providers = Kube(), Registry(discover=tuple)
        for name, account in self.accounts.items():
            providers.register(name, account.connect)
        world = World({}, TIMES, Random(0), lambda _: None, providers, kube.connect)
        async with (
            manager_context(Cloud(name="fake"), *FLAGS, kube=kube) as context,
            AsyncExitStack() as stack,
        ):
            webhooks = Webhooks(configured(*FLAGS), world, context.clients)
            yield await webhooks.places(stack, None)

    async def find(self, places: tuple[Place, ...], name: str) -> Found | None:
        csi = CsiSource(driver=f"{name}.csi.pileus.dev", volume_handle=self.handles[name])
        lookup = VolumeLookup(lambda: places, _cluster_id)
        return await lookup.find(PersistentVolume(spec=PersistentVolumeSpec(csi=csi)))


async def _cluster_id() -> str:
    return "c1"


async def test_a_cloud_that_is_down_keeps_no_other_from_answering_and_is_connected_later() -> None:
    bed = Bed()
    bed.accounts["b"].error = Unavailable("no route to b")
    async with bed.places() as places:
        await asyncio.sleep(1)
        here = await bed.find(places, "a")
        with pytest.raises(Unknown, match="no route to b"):
            await bed.find(places, "b")
        bed.accounts["b"].error = None
        await asyncio.sleep(60)
        there = await bed.find(places, "b")

    assert here
    assert there
    assert (here.place, there.place) == ("a", "b")
    assert [each.closed for each in bed.accounts.values()] == [1, 1]


async def test_webhooks_cannot_write_to_a_cloud() -> None:
    bed = Bed()
    async with bed.places() as places:
        await asyncio.sleep(1)
        found = await bed.find(places, "a")
        assert found
        assert found.cloud.volumes
        with pytest.raises(CloudError):
            await found.cloud.volumes.resize("c1", found.volume.id, 99)
        again = await bed.find(places, "a")

    assert again
    assert again.volume == replace(found.volume)
