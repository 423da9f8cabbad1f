"""Changes of volumes that return when the cloud has completed them.

A provider's method returns when the cloud has accepted a request. These functions read the volume
again until the request is done. Each is idempotent: after a crash or a timeout, the same call
continues where the last one stopped.
"""

import asyncio
from collections.abc import AsyncGenerator

from pileus.cloud.errors import Conflict, NotFound, Unavailable
from pileus.cloud.model import InstanceId
from pileus.cloud.volume import (
    Attachment,
    Snapshot,
    SnapshotId,
    SnapshotSpec,
    SnapshotState,
    Volume,
    VolumeId,
    Volumes,
    VolumeSpec,
    VolumeState,
)
from pileus.dataclass import dataclass


class StillPending(Conflict):
    """The cloud has accepted the request, but has not completed it in time. Call again."""


class VolumeFailed(Unavailable):
    """The cloud reports the volume or snapshot as failed. Nothing is deleted: see its reason."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for the cloud: seconds in total, and between two reads."""

    total: float = 60.0
    first: float = 0.5
    longest: float = 5.0

    async def attempts(self) -> AsyncGenerator[None]:
        """Yields for each read, the first one at once, until the time is over."""
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + self.total, self.first
        yield
        while loop.time() + pause <= end:
            await asyncio.sleep(pause)
            yield
            pause = min(2 * pause, self.longest)


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations on the volumes of one cluster. Each raises CloudError.

    The caller has one operation under way for each volume and mark (`pileus.volumes.busy`).
    """

    volumes: Volumes
    cluster: str
    """ID of the cluster."""
    patience: Patience = Patience()

    async def find(self, volume: VolumeId) -> Volume | None:
        """Returns the volume; None if it does not exist or is another cluster's."""
        return (await self.volumes.list_volumes(self.cluster, [volume])).get(volume)

    async def get(self, volume: VolumeId) -> Volume:
        """Returns the volume. Raises NotFound."""
        found = await self.find(volume)
        if found is None:
            raise NotFound(f"there is no volume {volume}")
        return found

    async def create(self, spec: VolumeSpec) -> Volume:
        """Create the volume, or find the one with its mark. Returns it when it can be used."""
        volume = owned(await self.volumes.create(spec), spec)
        if volume.state is VolumeState.CREATING:
            volume = await self._settled(volume.id, VolumeState.CREATING)
        return _sound(volume)

    async def delete(self, volume: VolumeId) -> None:
        """Delete the volume. Returns when it no longer exists."""
        await self.volumes.delete(self.cluster, volume)
        async for _ in self.patience.attempts():
            found = await self.find(volume)
            if found is None:
                return
            if found.state is VolumeState.ERROR:
                raise VolumeFailed(_failure(found))
        raise StillPending(f"volume {volume} is still being deleted")

    async def attach(self, volume: VolumeId, instance: InstanceId) -> Attachment:
        """Attach the volume to the instance. Returns the attachment when it can be used."""
        found = await self.volumes.attach(self.cluster, volume, instance)
        if found.state is VolumeState.ATTACHING:
            found = await self._settled(volume, VolumeState.ATTACHING)
        for attachment in _sound(found).attachments:
            if attachment.instance == instance and found.state is not VolumeState.DETACHING:
                return attachment
        raise Conflict(f"volume {volume} is {found.state} and not attached to {instance}")

    async def detach(self, volume: VolumeId, instance: InstanceId) -> None:
        """Detach the volume from the instance. Returns when the instance cannot use it."""
        await self.volumes.detach(self.cluster, volume, instance)
        async for _ in self.patience.attempts():
            found = await self.find(volume)
            if found is None or instance not in {one.instance for one in found.attachments}:
                return
        raise StillPending(f"volume {volume} is still being detached from {instance}")

    async def resize(self, volume: VolumeId, size_gib: int) -> Volume:
        """Grow the volume to at least this size. Returns it when it has that size."""
        found = await self.volumes.resize(self.cluster, volume, size_gib)
        if found.size_gib < size_gib:
            found = _sound(await self._settled(volume, VolumeState.RESIZING))
        if found.size_gib < size_gib:
            raise Conflict(f"volume {volume} has {found.size_gib} GiB instead of {size_gib}")
        return found

    async def create_snapshot(self, spec: SnapshotSpec) -> Snapshot:
        """Create the snapshot, or find the one with its mark. Returns it, READY or still CREATING.

        A snapshot can take hours to upload, so that it is not waited for: the caller asks again.
        """
        snapshot = await self.volumes.create_snapshot(spec)
        if snapshot.state is SnapshotState.ERROR:
            raise VolumeFailed(_failure(snapshot))
        return snapshot

    async def delete_snapshot(self, snapshot: SnapshotId) -> None:
        """Delete the snapshot. Returns when it no longer exists.

        A snapshot that is being created is waited for first: clouds refuse to delete it.
        """
        await self._created_snapshot(snapshot)
        await self.volumes.delete_snapshot(self.cluster, snapshot)
        async for _ in self.patience.attempts():
            found = await self.volumes.list_snapshots(self.cluster, [snapshot])
            if snapshot not in found:
                return
            if found[snapshot].state is SnapshotState.ERROR:
                raise VolumeFailed(_failure(found[snapshot]))
        raise StillPending(f"snapshot {snapshot} is still being deleted")

    async def _created_snapshot(self, snapshot: SnapshotId) -> None:
        """Returns when the snapshot is complete, has failed, or does not exist."""
        async for _ in self.patience.attempts():
            found = (await self.volumes.list_snapshots(self.cluster, [snapshot])).get(snapshot)
            if found is None or found.state is not SnapshotState.CREATING:
                return
        raise StillPending(f"snapshot {snapshot} is still being created")

    async def _settled(self, volume: VolumeId, state: VolumeState) -> Volume:
        """Returns the volume when it has left this state."""
        async for _ in self.patience.attempts():
            found = await self.get(volume)
            if found.state is not state:
                return found
        raise StillPending(f"volume {volume} is still {state}")


def owned(volume: Volume, spec: VolumeSpec) -> Volume:
    """Returns the volume. Raises Conflict if it has the mark of another claim, or none.

    A pod would get the data of another claim.
    """
    if volume.owner != spec.owner:
        raise Conflict(
            f"the cloud returned volume {volume.id}, which belongs to "
            f"{volume.owner.uid if volume.owner else 'no claim'}, not to {spec.owner.uid}. It is "
            "not used"
        )
    return volume


def _sound(volume: Volume) -> Volume:
    """Raises VolumeFailed if the cloud has given the volume up."""
    if volume.state is VolumeState.ERROR:
        raise VolumeFailed(_failure(volume))
    return volume


def _failure(item: Volume | Snapshot) -> str:
    kind = "volume" if isinstance(item, Volume) else "snapshot"
    return f"the cloud reports {kind} {item.id} as failed: {item.reason or 'no reason is given'}"
