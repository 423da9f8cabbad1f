"""Volumes and snapshots of the provider contract, implemented with calls of the cloud's API.

The local cloud takes no time for a change: a volume is either available or attached.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Rejected
from pileus.cloud.model import InstanceId
from pileus.cloud.volume import (
    REGION_LABEL,
    ZONE_LABEL,
    Attachment,
    FromSnapshot,
    FromVolume,
    Snapshot,
    SnapshotId,
    SnapshotSpec,
    SnapshotState,
    Source,
    Volume,
    VolumeCapacity,
    VolumeId,
    VolumeLimits,
    VolumeSpec,
    VolumeState,
)
from pileus_lab.local.api import Api
from pileus_lab.local.balancer_plan import mark_of
from pileus_lab.local.capabilities import whole
from pileus_lab.local.model import records
from pileus_lab.local.model.records import Mark
from pileus_lab.local.model.snapshots import CreateSnapshot, DeleteSnapshot, ListSnapshots
from pileus_lab.local.model.volumes import (
    AttachVolume,
    CreateVolume,
    DeleteVolume,
    DetachVolume,
    ListVolumes,
    ResizeVolume,
    VolumeLimit,
    VolumeSpace,
)


@dataclass(frozen=True, slots=True)
class LocalVolumes:
    api: Api
    region: str

    async def list_volumes(
        self, cluster: str, ids: Sequence[VolumeId] | None = None
    ) -> Mapping[VolumeId, Volume]:
        page = await self.api.call(ListVolumes())
        return {
            VolumeId(one.id): self._volume(one)
            for one in whole(page, "volumes")
            if _is_asked(one, cluster, ids)
        }

    async def create(self, spec: VolumeSpec) -> Volume:
        source = spec.source
        wanted = CreateVolume(
            name=spec.name or spec.owner.uid,
            mark=mark_of(spec.owner),
            size_gib=spec.size_gib,
            type=spec.type,
            zones=self._zones(spec),
            labels=dict(spec.labels),
            from_snapshot=source.id if isinstance(source, FromSnapshot) else "",
            from_volume=source.id if isinstance(source, FromVolume) else "",
        )
        return self._volume(await self.api.call(wanted))

    async def delete(self, cluster: str, volume: VolumeId) -> None:
        await self.api.call(DeleteVolume(volume=volume, cluster=cluster))

    async def attach(self, cluster: str, volume: VolumeId, instance: InstanceId) -> Volume:
        wanted = AttachVolume(volume=volume, machine=instance, cluster=cluster)
        return self._volume(await self.api.call(wanted))

    async def detach(self, cluster: str, volume: VolumeId, instance: InstanceId) -> None:
        await self.api.call(DetachVolume(volume=volume, machine=instance, cluster=cluster))

    async def resize(self, cluster: str, volume: VolumeId, size_gib: int) -> Volume:
        wanted = ResizeVolume(volume=volume, size_gib=size_gib, cluster=cluster)
        return self._volume(await self.api.call(wanted))

    async def list_snapshots(
        self, cluster: str, ids: Sequence[SnapshotId] | None = None
    ) -> Mapping[SnapshotId, Snapshot]:
        page = await self.api.call(ListSnapshots())
        return {
            SnapshotId(one.id): _snapshot(one)
            for one in whole(page, "snapshots")
            if _is_asked(one, cluster, ids)
        }

    async def create_snapshot(self, spec: SnapshotSpec) -> Snapshot:
        wanted = CreateSnapshot(
            name=spec.name or spec.owner.uid,
            mark=mark_of(spec.owner),
            volume=spec.volume,
            labels=dict(spec.labels),
        )
        return _snapshot(await self.api.call(wanted))

    async def delete_snapshot(self, cluster: str, snapshot: SnapshotId) -> None:
        await self.api.call(DeleteSnapshot(snapshot=snapshot, cluster=cluster))

    async def limits(self, instance: InstanceId) -> VolumeLimits:
        limit = await self.api.call(VolumeLimit(machine=instance))
        return VolumeLimits(attachments=limit.volumes)

    async def capacity(
        self, volume_type: str = "", topology: Mapping[str, str] | None = None
    ) -> VolumeCapacity:
        place = topology or {}
        if place.get(REGION_LABEL, self.region) != self.region:
            return VolumeCapacity(available_gib=0)
        zones = (place[ZONE_LABEL],) if ZONE_LABEL in place else ()
        space = await self.api.call(VolumeSpace(type=volume_type, zones=zones))
        return VolumeCapacity(available_gib=space.gib)

    def _zones(self, spec: VolumeSpec) -> tuple[str, ...]:
        """Returns the acceptable zones; none: any. Raises `Rejected` if no place is acceptable."""
        here = [
            each for each in spec.topologies if each.get(REGION_LABEL, self.region) == self.region
        ]
        if spec.topologies and not here:
            asked = spec.topologies[0][REGION_LABEL]
            raise Rejected(f'region "{asked}" is not that of this cloud, "{self.region}"')
        zones = [each.get(ZONE_LABEL, "") for each in here]
        return tuple(zones) if all(zones) else ()

    def _volume(self, volume: records.Volume) -> Volume:
        machine = InstanceId(volume.machine)
        return Volume(
            id=VolumeId(volume.id),
            owner=_owner(volume.mark),
            size_gib=volume.size_gib,
            state=VolumeState.ATTACHED if machine else VolumeState.AVAILABLE,
            type=volume.type,
            topology={ZONE_LABEL: volume.zone, REGION_LABEL: self.region},
            source=_source(volume),
            attachments=tuple(
                Attachment(InstanceId(one), volume.device if one == machine else "")
                for one in volume.machines
            ),
            labels=volume.labels,
        )


def _is_asked(
    item: records.Volume | records.Snapshot, cluster: str, ids: Sequence[str] | None
) -> bool:
    """Whether a list of the cluster has the item: unmarked ones only if asked for by ID."""
    if ids is None:
        return item.mark != Mark() and item.mark.cluster == cluster
    return item.id in ids and (item.mark == Mark() or item.mark.cluster == cluster)


def _owner(mark: Mark) -> Owner | None:
    return None if mark == Mark() else Owner(mark.cluster, mark.owner)


def _source(volume: records.Volume) -> Source | None:
    if volume.from_snapshot:
        return FromSnapshot(SnapshotId(volume.from_snapshot))
    return FromVolume(VolumeId(volume.from_volume)) if volume.from_volume else None


def _snapshot(snapshot: records.Snapshot) -> Snapshot:
    return Snapshot(
        id=SnapshotId(snapshot.id),
        owner=_owner(snapshot.mark),
        volume=VolumeId(snapshot.volume),
        size_gib=snapshot.size_gib,
        state=SnapshotState.READY,
        created_at=snapshot.created_at,
        labels=snapshot.labels,
    )
