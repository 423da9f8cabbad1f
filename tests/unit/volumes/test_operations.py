"""Operations wait for a slow cloud: the model of OpenStack, whose changes take 8 seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Conflict, NotFound
from pileus.cloud.model import InstanceId
from pileus.cloud.volume import (
    Attachment,
    SnapshotSpec,
    SnapshotState,
    Volume,
    VolumeId,
    VolumeSpec,
    VolumeState,
)
from pileus.volumes.operations import Operations, Patience, StillPending
from tests.contract.openstack_machines import OpenStackVolumesHarness

SPEC = VolumeSpec(owner=Owner("c1", "pvc-1"), size_gib=2, name="data")


async def test_a_volume_is_created_attached_resized_detached_and_deleted() -> None:
    harness = OpenStackVolumesHarness(seconds=8.0)
    one, two = harness.add_machine("n1"), harness.add_machine("n2")
    async with harness.connect() as volumes:
        doing = Operations(volumes, "c1")

        volume = await doing.create(SPEC)
        assert volume.state is VolumeState.AVAILABLE
        assert (await doing.create(SPEC)).id == volume.id
        attachment = await doing.attach(volume.id, one)
        assert attachment.instance == one
        assert await doing.attach(volume.id, one) == attachment
        with pytest.raises(Conflict):
            await doing.attach(volume.id, two)
        assert (await doing.resize(volume.id, 5)).size_gib == 5
        await doing.detach(volume.id, one)
        assert (await doing.get(volume.id)).attachments == ()
        await doing.attach(volume.id, two)
        with pytest.raises(Conflict):
            await doing.delete(volume.id)
        await doing.detach(volume.id, two)
        await doing.delete(volume.id)

        assert await doing.find(volume.id) is None
        await doing.delete(volume.id)
    assert harness.built() == {}


async def test_what_takes_too_long_continues_with_the_next_call() -> None:
    harness = OpenStackVolumesHarness(seconds=8.0)
    async with harness.connect() as volumes:
        impatient = Operations(volumes, "c1", Patience(total=3.0))
        for _ in range(2):
            with pytest.raises(StillPending, match="is still creating"):
                await impatient.create(SPEC)
        volume = await Operations(volumes, "c1").create(SPEC)

        assert harness.built().keys() == {volume.id}


async def test_snapshots_are_not_waited_for() -> None:
    harness = OpenStackVolumesHarness(seconds=8.0)
    async with harness.connect() as volumes:
        doing = Operations(volumes, "c1")
        volume = await doing.create(SPEC)
        spec = SnapshotSpec(owner=Owner("c1", "snap-1"), volume=volume.id)

        snapshot = await doing.create_snapshot(spec)
        assert snapshot.state is SnapshotState.CREATING
        assert (await doing.create_snapshot(spec)).id == snapshot.id


async def test_a_snapshot_that_is_being_created_is_deleted_when_it_is_complete() -> None:
    harness = OpenStackVolumesHarness(seconds=8.0)
    async with harness.connect() as volumes:
        doing = Operations(volumes, "c1")
        volume = await doing.create(SPEC)
        spec = SnapshotSpec(owner=Owner("c1", "snap-1"), volume=volume.id)
        snapshot = await doing.create_snapshot(spec)

        with pytest.raises(StillPending, match="is still being created"):
            await Operations(volumes, "c1", Patience(total=3.0)).delete_snapshot(snapshot.id)
        await doing.delete_snapshot(snapshot.id)

        assert await volumes.list_snapshots("c1") == {}
        await doing.delete_snapshot(snapshot.id)


async def test_a_missing_volume_is_not_found() -> None:
    async with OpenStackVolumesHarness().connect() as volumes:
        with pytest.raises(NotFound, match="there is no volume vol-none"):
            await Operations(volumes, "c1").get(VolumeId("vol-none"))


@dataclass
class Answering:
    """A cloud that answers every request with one volume."""

    volume: Volume

    async def create(self, spec: VolumeSpec) -> Volume:
        return self.volume

    async def attach(self, cluster: str, volume: VolumeId, instance: InstanceId) -> Volume:
        return self.volume

    async def list_volumes(
        self, cluster: str, ids: Sequence[VolumeId] | None = None
    ) -> Mapping[VolumeId, Volume]:
        return {self.volume.id: self.volume}


def doing(**fields: Any) -> Operations:
    given: dict[str, Any] = {"id": VolumeId("v"), "owner": SPEC.owner, "size_gib": 2, **fields}
    volumes: Any = Answering(Volume(**given))
    return Operations(volumes, "c1", Patience(total=3.0))


@pytest.mark.parametrize("owner", [None, Owner("c1", "pvc-2"), Owner("c2", "pvc-1")])
async def test_a_volume_with_the_mark_of_another_claim_is_not_used(owner: Owner | None) -> None:
    assert (await doing(state=VolumeState.AVAILABLE).create(SPEC)).id == "v"

    with pytest.raises(Conflict, match=r"belongs to .*, not to pvc-1. It is not used"):
        await doing(state=VolumeState.AVAILABLE, owner=owner).create(SPEC)


async def test_a_volume_that_is_being_detached_is_not_attached() -> None:
    instance = InstanceId("i-1")
    held: dict[str, Any] = {"attachments": (Attachment(instance, "/dev/vdb"),)}
    attached = await doing(state=VolumeState.ATTACHED, **held).attach(VolumeId("v"), instance)
    assert attached.device == "/dev/vdb"

    for state in (VolumeState.DETACHING, VolumeState.ATTACHING):
        with pytest.raises(Conflict):
            await doing(state=state, **held).attach(VolumeId("v"), instance)


async def test_an_attachment_to_another_instance_is_not_returned() -> None:
    others: dict[str, Any] = {"attachments": (Attachment(InstanceId("i-2"), "/dev/vdb"),)}
    with pytest.raises(Conflict, match="not attached to i-1"):
        await doing(state=VolumeState.ATTACHED, **others).attach(VolumeId("v"), InstanceId("i-1"))
