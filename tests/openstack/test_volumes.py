"""Volumes of the provider on real services: create, extend, attach, detach, snapshots."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Conflict, QuotaExceeded, Rejected
from pileus.cloud.model import InstanceId
from pileus.cloud.volume import (
    ZONE_LABEL,
    FromSnapshot,
    SnapshotSpec,
    Volume,
    VolumeId,
    Volumes,
    VolumeSpec,
    VolumeState,
)
from pileus.testing.conformance.snapshots import SnapshotsLaws
from pileus.testing.conformance.volumes import VolumesLaws
from tests.openstack.cloud import Project
from tests.openstack.machines import BedVolumesHarness, OnBed, delete_storage, provider

pytestmark = pytest.mark.real_time

CLUSTER = "our-cluster"
SPEC = VolumeSpec(owner=Owner(CLUSTER, "pvc-1"), size_gib=1, name="pvc-1")


@pytest.fixture
def storage(empty: Project) -> Iterator[Project]:
    """A project with a network, whose volumes and snapshots are deleted in the end."""
    empty.add_network()
    yield empty
    delete_storage(empty)


class OnStorage:
    @pytest.fixture(autouse=True)
    def _project(self, storage: Project, tmp_path: Path) -> None:
        self.bed = OnBed(storage, tmp_path)

    def make(self) -> BedVolumesHarness:
        return BedVolumesHarness(self.bed)


@pytest.mark.extended
class TestVolumesLaws(OnStorage, VolumesLaws):
    pass


@pytest.mark.extended
class TestSnapshotsLaws(OnStorage, SnapshotsLaws):
    pass


async def until(volumes: Volumes, volume: VolumeId, state: VolumeState) -> Volume:
    while (found := (await volumes.list_volumes(CLUSTER, [volume]))[volume]).state is not state:
        assert found.state is not VolumeState.ERROR, found
        await asyncio.sleep(0.25)
    return found


async def test_a_volume_is_created_attached_extended_and_detached(
    storage: Project, tmp_path: Path
) -> None:
    storage.add_servers("node-1", "node-2")
    first, second = (InstanceId(storage.servers[name]) for name in ("node-1", "node-2"))
    async with provider(storage, tmp_path) as (cloud, _):
        volumes = cloud.volumes
        assert volumes is not None
        made = await volumes.create(SPEC)
        assert (await volumes.create(SPEC)).id == made.id
        await until(volumes, made.id, VolumeState.AVAILABLE)
        attaching = await volumes.attach(CLUSTER, made.id, first)
        assert attaching.state is VolumeState.ATTACHING
        listed = (await volumes.list_volumes(CLUSTER))[made.id]
        assert [one.instance for one in listed.attachments] == [first], "also while it is reserved"
        with pytest.raises(Conflict):
            await volumes.attach(CLUSTER, made.id, second)
        attached = await until(volumes, made.id, VolumeState.ATTACHED)
        assert attached.attachments[0].device
        resized = await volumes.resize(CLUSTER, made.id, 2)
        assert resized.state is VolumeState.RESIZING
        grown = await until(volumes, made.id, VolumeState.ATTACHED)
        assert grown.size_gib == 2
        with pytest.raises(Conflict):
            await volumes.delete(CLUSTER, made.id)
        await volumes.detach(CLUSTER, made.id, first)
        await until(volumes, made.id, VolumeState.AVAILABLE)
        await volumes.delete(CLUSTER, made.id)


async def test_what_is_left_of_an_attachment_to_a_deleted_server_is_removed(
    storage: Project, tmp_path: Path
) -> None:
    """Nova deletes attachments with the server, unless Cinder did not answer at that moment."""
    storage.add_servers("node-1")
    server = InstanceId(storage.servers["node-1"])
    storage.delete_server("node-1")
    async with provider(storage, tmp_path) as (cloud, _):
        volumes = cloud.volumes
        assert volumes is not None
        made = await volumes.create(SPEC)
        await until(volumes, made.id, VolumeState.AVAILABLE)
        left = {"volume_uuid": made.id, "instance_uuid": server}
        body = {"attachment": left}
        storage.cloud.send("POST", "volume", "/attachments", body, microversion="volume 3.27")
        reserved = (await volumes.list_volumes(CLUSTER))[made.id]
        assert [one.instance for one in reserved.attachments] == [server]
        await volumes.detach(CLUSTER, made.id, server)
        assert (await until(volumes, made.id, VolumeState.AVAILABLE)).attachments == ()


async def test_a_volume_is_restored_from_a_snapshot_of_an_attached_one(
    storage: Project, tmp_path: Path
) -> None:
    storage.add_servers("node-1")
    async with provider(storage, tmp_path) as (cloud, _):
        volumes = cloud.volumes
        assert volumes is not None
        made = await volumes.create(SPEC)
        await until(volumes, made.id, VolumeState.AVAILABLE)
        await volumes.attach(CLUSTER, made.id, InstanceId(storage.servers["node-1"]))
        await until(volumes, made.id, VolumeState.ATTACHED)
        spec = SnapshotSpec(owner=Owner(CLUSTER, "snap-1"), volume=made.id, name="daily")
        snapshot = await volumes.create_snapshot(spec)
        assert (await volumes.create_snapshot(spec)).id == snapshot.id
        while (await volumes.list_snapshots(CLUSTER))[snapshot.id].state != "ready":
            await asyncio.sleep(0.25)
        restored = VolumeSpec(
            owner=Owner(CLUSTER, "pvc-2"), size_gib=1, source=FromSnapshot(snapshot.id)
        )
        copy = await volumes.create(restored)
        assert copy.source == FromSnapshot(snapshot.id)
        await until(volumes, copy.id, VolumeState.AVAILABLE)


async def test_unknown_zones_and_types_are_rejected_and_create_nothing(
    storage: Project, tmp_path: Path
) -> None:
    async with provider(storage, tmp_path) as (cloud, _):
        volumes = cloud.volumes
        assert volumes is not None
        for spec in (
            VolumeSpec(owner=SPEC.owner, size_gib=1, topologies=({ZONE_LABEL: "az1"},)),
            VolumeSpec(owner=SPEC.owner, size_gib=1, type="no-such-type"),
            VolumeSpec(owner=SPEC.owner, size_gib=0),
        ):
            with pytest.raises(Rejected):
                await volumes.create(spec)
    assert storage.cloud.listed("volumes") == []


async def test_an_exceeded_quota_is_reported_as_such(storage: Project, tmp_path: Path) -> None:
    path = f"/os-quota-sets/{storage.cloud.project}"
    quota = {"volumes": 1, "gigabytes": 5}
    storage.admin.send("PUT", "volume", path, {"quota_set": quota})
    second = Owner(CLUSTER, "pvc-2")
    async with provider(storage, tmp_path) as (cloud, _):
        volumes = cloud.volumes
        assert volumes is not None
        made = await volumes.create(SPEC)
        await until(volumes, made.id, VolumeState.AVAILABLE)
        with pytest.raises(QuotaExceeded):
            await volumes.create(VolumeSpec(owner=second, size_gib=1))
        with pytest.raises(QuotaExceeded):
            await volumes.resize(CLUSTER, made.id, 6)
    assert [one["id"] for one in storage.cloud.listed("volumes")] == [made.id]
