"""A cloud whose volumes take time for every change, and a provider for it."""

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pileus.cloud.abilities import Abilities
from pileus.cloud.balancer import Owner
from pileus.cloud.errors import (
    Conflict,
    NotFound,
    QuotaExceeded,
    Rejected,
    Unavailable,
    Unsupported,
)
from pileus.cloud.model import InstanceId
from pileus.cloud.volume import (
    ZONE_LABEL,
    Attachment,
    FromSnapshot,
    Snapshot,
    SnapshotId,
    SnapshotSpec,
    SnapshotState,
    Volume,
    VolumeCapacity,
    VolumeId,
    VolumeLimits,
    Volumes,
    VolumeSpec,
    VolumeState,
)

SECONDS = 3.0
"""How long a change takes."""
LIMIT = 4
SPACE = 500
"""GiB that all volumes can have together."""
PLACES = ({ZONE_LABEL: "a"}, {ZONE_LABEL: "b"})


@dataclass
class Storage:
    """What the cloud has: volumes as they will be, and how they look while they change."""

    machines: set[str] = field(default_factory=set)
    volumes: dict[VolumeId, Volume] = field(default_factory=dict)
    names: dict[VolumeId, str] = field(default_factory=dict)
    changing: dict[VolumeId, tuple[float, Volume]] = field(default_factory=dict)
    snapshots: dict[SnapshotId, Snapshot] = field(default_factory=dict)
    serial: int = 0
    is_broken: bool = False

    def identity(self) -> str:
        self.serial += 1
        return f"id-{self.serial}"

    def look(self) -> dict[VolumeId, Volume]:
        if self.is_broken:
            raise Unavailable("broken")
        now = asyncio.get_running_loop().time()
        shown = {key: volume for key, (until, volume) in self.changing.items() if now < until}
        return self.volumes | shown

    def change(self, shown: Volume, after: Volume | None) -> Volume:
        self.changing[shown.id] = (asyncio.get_running_loop().time() + SECONDS, shown)
        if after is None:
            del self.volumes[shown.id]
        else:
            self.volumes[shown.id] = after
        return shown


class StorageVolumes:
    limit = LIMIT
    space = SPACE

    def __init__(self, cloud: Storage) -> None:
        self.cloud = cloud

    # -- volumes

    async def list_volumes(self, cluster: str, ids: Any = None) -> Mapping[VolumeId, Volume]:
        return {
            key: one for key, one in self.cloud.look().items() if self.is_asked(one, cluster, ids)
        }

    def is_asked(self, item: Volume | Snapshot, cluster: str, ids: Sequence[str] | None) -> bool:
        is_ours = item.owner is not None and item.owner.cluster == cluster
        return is_ours if ids is None else item.id in ids and (item.owner is None or is_ours)

    async def create(self, spec: VolumeSpec) -> Volume:
        for volume in self.cloud.look().values():
            if self.is_marked(volume, spec):
                self.check_fit(volume, spec)
                return volume
        place = self.place(spec)
        if spec.size_gib < 1:
            raise Rejected("size")
        self.check_source(spec)
        if spec.size_gib > SPACE - self.used():
            raise QuotaExceeded("no space left")
        identity = VolumeId(self.cloud.identity())
        volume = Volume(
            id=identity,
            owner=spec.owner,
            size_gib=spec.size_gib,
            state=VolumeState.AVAILABLE,
            topology=place,
            source=spec.source,
        )
        self.cloud.names[identity] = spec.name
        return self.cloud.change(replace(volume, state=VolumeState.CREATING), volume)

    def is_marked(self, volume: Volume, spec: VolumeSpec) -> bool:
        return volume.owner == spec.owner

    def check_fit(self, volume: Volume, spec: VolumeSpec) -> None:
        is_placed = not spec.topologies or volume.topology in spec.topologies
        if volume.size_gib < spec.size_gib or not is_placed:
            raise Conflict("does not fit")

    def place(self, spec: VolumeSpec) -> Mapping[str, str]:
        fitting = [each for each in spec.topologies or PLACES if each in PLACES]
        if not fitting:
            raise Rejected("no such place")
        return fitting[0]

    def check_source(self, spec: VolumeSpec) -> None:
        if spec.source is None:
            return
        of_snapshot = isinstance(spec.source, FromSnapshot)
        items: dict[Any, Any] = {**(self.cloud.snapshots if of_snapshot else self.cloud.volumes)}
        if spec.source.id not in items:
            raise NotFound("source")
        if items[spec.source.id].size_gib > spec.size_gib:
            raise Rejected("the source is larger")

    async def delete(self, cluster: str, volume: VolumeId) -> None:
        found = self.cloud.look().get(volume)
        if found is None:
            return
        self.check_mark(cluster, found, deletes=True)
        self.check_free(found)
        self.cloud.change(replace(found, state=VolumeState.DELETING), None)

    def check_mark(self, cluster: str, item: Volume | Snapshot, *, deletes: bool = False) -> None:
        if item.owner is None and not deletes:
            return
        if item.owner is None or item.owner.cluster != cluster:
            raise Rejected("not the cluster's")

    def check_free(self, volume: Volume) -> None:
        if volume.attachments:
            raise Conflict("attached")

    def found(self, volume: VolumeId) -> Volume:
        found = self.cloud.look().get(volume)
        if found is None:
            raise NotFound(volume)
        return found

    # -- attachments

    async def attach(self, cluster: str, volume: VolumeId, instance: InstanceId) -> Volume:
        found = self.found(volume)
        self.check_mark(cluster, found)
        if instance not in self.cloud.machines:
            raise NotFound(instance)
        if self.has(found, instance):
            return found
        self.check_free(found)
        used = {
            each.device
            for one in self.cloud.look().values()
            for each in one.attachments
            if each.instance == instance
        }
        if len(used) >= LIMIT:
            raise QuotaExceeded("full")
        device = next(name for name in map(str, range(LIMIT + 1)) if name not in used)
        after = replace(
            found,
            state=VolumeState.ATTACHED,
            attachments=(*found.attachments, Attachment(instance, device)),
        )
        return self.cloud.change(replace(after, state=VolumeState.ATTACHING), after)

    def has(self, volume: Volume, instance: InstanceId) -> bool:
        return instance in {each.instance for each in volume.attachments}

    async def detach(self, cluster: str, volume: VolumeId, instance: InstanceId) -> None:
        found = self.cloud.look().get(volume)
        if found is None or not self.has(found, instance):
            return
        self.check_mark(cluster, found)
        after = replace(found, state=VolumeState.AVAILABLE, attachments=())
        self.cloud.change(self.detaching(found), after)

    def detaching(self, volume: Volume) -> Volume:
        return replace(volume, state=VolumeState.DETACHING)

    async def resize(self, cluster: str, volume: VolumeId, size_gib: int) -> Volume:
        found = self.found(volume)
        self.check_mark(cluster, found)
        if self.is_enough(found, size_gib):
            return found
        after = replace(found, size_gib=size_gib)
        return self.cloud.change(replace(found, state=VolumeState.RESIZING), after)

    def is_enough(self, volume: Volume, size_gib: int) -> bool:
        return volume.size_gib >= size_gib

    async def limits(self, instance: InstanceId) -> VolumeLimits:
        if instance not in self.cloud.machines:
            raise NotFound(instance)
        return VolumeLimits(attachments=self.limit)

    async def capacity(
        self, volume_type: str = "", topology: Mapping[str, str] | None = None
    ) -> VolumeCapacity:
        if topology and topology not in PLACES:
            return VolumeCapacity(available_gib=0)
        return VolumeCapacity(available_gib=self.space - self.used())

    def used(self) -> int:
        return sum(one.size_gib for one in self.cloud.look().values())

    # -- snapshots

    async def list_snapshots(self, cluster: str, ids: Any = None) -> Mapping[SnapshotId, Snapshot]:
        return {
            key: one
            for key, one in self.cloud.snapshots.items()
            if self.is_asked(one, cluster, ids)
        }

    async def create_snapshot(self, spec: SnapshotSpec) -> Snapshot:
        for snapshot in self.cloud.snapshots.values():
            if self.is_marked_snapshot(snapshot, spec):
                if snapshot.volume != spec.volume:
                    raise Conflict("of another volume")
                return snapshot
        volume = self.found(spec.volume)
        self.check_mark(spec.owner.cluster, volume)
        snapshot = Snapshot(
            id=SnapshotId(self.cloud.identity()),
            owner=spec.owner,
            volume=volume.id,
            size_gib=volume.size_gib,
            state=SnapshotState.READY,
            created_at=1.0,
        )
        self.cloud.snapshots[snapshot.id] = snapshot
        return snapshot

    def is_marked_snapshot(self, snapshot: Snapshot, spec: SnapshotSpec) -> bool:
        return snapshot.owner == spec.owner

    async def delete_snapshot(self, cluster: str, snapshot: SnapshotId) -> None:
        if snapshot in self.cloud.snapshots:
            self.check_mark(cluster, self.cloud.snapshots[snapshot], deletes=True)
            del self.cloud.snapshots[snapshot]


class BasicVolumes(StorageVolumes):
    """Volumes of a cloud that cannot do more than it must."""

    def check_source(self, spec: VolumeSpec) -> None:
        if spec.source is not None:
            raise Unsupported("no copies")

    async def resize(self, cluster: str, volume: VolumeId, size_gib: int) -> Volume:
        raise Unsupported("fixed sizes")

    async def capacity(
        self, volume_type: str = "", topology: Mapping[str, str] | None = None
    ) -> VolumeCapacity:
        raise Unsupported("unknown")

    async def list_snapshots(self, cluster: str, ids: Any = None) -> Mapping[SnapshotId, Snapshot]:
        raise Unsupported("no snapshots")

    async def create_snapshot(self, spec: SnapshotSpec) -> Snapshot:
        raise Unsupported("no snapshots")

    async def delete_snapshot(self, cluster: str, snapshot: SnapshotId) -> None:
        raise Unsupported("no snapshots")


@dataclass
class StorageHarness:
    provider: type[StorageVolumes] = StorageVolumes
    cloud: Storage = field(default_factory=Storage)
    other_topology: Mapping[str, str] | None = field(default_factory=lambda: PLACES[1])
    countable: int = LIMIT
    spacious: int = 2 * SPACE
    abilities: Abilities = field(default_factory=Abilities)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Volumes]:
        yield self.provider(self.cloud)

    def add_machine(self, name: str) -> InstanceId:
        self.cloud.machines.add(name)
        return InstanceId(name)

    def add_unmarked(self, name: str) -> VolumeId | None:
        identity = VolumeId(self.cloud.identity())
        self.cloud.names[identity] = name
        self.cloud.volumes[identity] = Volume(
            id=identity, owner=None, size_gib=10, state=VolumeState.AVAILABLE, topology=PLACES[0]
        )
        return identity

    def built(self) -> Mapping[VolumeId, Owner | None]:
        return {key: volume.owner for key, volume in self.cloud.volumes.items()}

    def snapshots(self) -> int:
        return len(self.cloud.snapshots)

    @contextmanager
    def broken(self) -> Generator[None]:
        self.cloud.is_broken = True
        yield
        self.cloud.is_broken = False
