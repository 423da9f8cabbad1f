"""Volumes and snapshots of the provider contract: Cinder's, attached by Nova.

A volume is found by its mark (`pileus.providers.openstack.volume_records`), which the request that
creates it sets. Before every change the volume is read, and one with the mark of another cluster is
refused. Cinder and Nova refuse changes in states that do not allow them, so a state that changes in
between leads to an error and never to a second attachment.

Cinder has no idempotency key. A creation whose answer was lost may take effect later, so that it is
repeated only if Cinder does not show the volume half a minute after it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TypeVar

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import (
    CloudError,
    Conflict,
    NotFound,
    QuotaExceeded,
    Rejected,
    Throttled,
)
from pileus.cloud.model import InstanceId
from pileus.cloud.volume import (
    Attachment,
    FromSnapshot,
    FromVolume,
    Snapshot,
    SnapshotId,
    SnapshotSpec,
    SnapshotState,
    Volume,
    VolumeCapacity,
    VolumeId,
    VolumeLimits,
    VolumeSpec,
    VolumeState,
)
from pileus.dataclass import dataclass
from pileus.providers.openstack.api import each_of
from pileus.providers.openstack.cinder import Cinder, CinderSnapshot, CinderVolume
from pileus.providers.openstack.config import OpenStackConfig
from pileus.providers.openstack.nova import Nova
from pileus.providers.openstack.volume_records import (
    CLUSTER,
    SNAPSHOT,
    VOLUME,
    Places,
    accepts,
    is_unclear,
    mark_of,
    snapshot_body,
    snapshot_of,
    volume_body,
)

K = TypeVar("K", VolumeId, SnapshotId)
T = TypeVar("T", Volume, Snapshot)
R = TypeVar("R", CinderVolume, CinderSnapshot)

FEW = 8
"""Up to so many volumes or snapshots are asked for one by one; otherwise all are listed."""
LATE = 30.0
"""Seconds within which a creation may take effect after its answer was lost."""
ROOT_DEVICES = frozenset({"/dev/vda", "/dev/sda", "/dev/xvda", "/dev/hda"})


@dataclass(frozen=True, slots=True)
class OpenStackVolumes:
    cinder: Cinder
    nova: Nova
    places: Places
    attach_limit: int
    """`node-volume-attach-limit`. Nova does not report what its hypervisors allow."""
    uses_microversions: bool = True
    """False: `ignore-volume-microversion`, for a Cinder without them. Attached volumes cannot be
    resized then."""
    unanswered: dict[Owner, float] = field(default_factory=dict[Owner, float])
    """By mark: when the last creation was sent, if Cinder has not answered it."""

    @classmethod
    def of(cls, cinder: Cinder, nova: Nova, config: OpenStackConfig) -> "OpenStackVolumes":
        storage = config.block_storage
        return cls(
            cinder,
            nova,
            Places(config.auth.region, storage.ignore_volume_az),
            storage.node_volume_attach_limit,
            not storage.ignore_volume_microversion,
        )

    async def list_volumes(
        self, cluster: str, ids: Sequence[VolumeId] | None = None
    ) -> Mapping[VolumeId, Volume]:
        records = await _records(ids, self.cinder.volume, self.cinder.volumes, {CLUSTER: cluster})
        return {one.id: one for one in await self._volumes(records) if _is_asked(one, cluster, ids)}

    async def create(self, spec: VolumeSpec) -> Volume:
        if spec.size_gib < 1:
            raise Rejected(f"a volume cannot have {spec.size_gib} GiB: 1 is the least")
        found = await self._marked(spec)
        if found is not None:
            self._check_fit(found, spec)
            return found
        await self._check_source(spec)
        zones = await self.cinder.zones() if spec.topologies else ()
        body = volume_body(spec, self.places.chosen(spec, zones))
        self._send_once(spec.owner)
        try:
            created = await self.cinder.create_volume(body)
        except NotFound as error:
            self.unanswered.pop(spec.owner, None)
            # The source was there a moment ago, so that Cinder means the type.
            raise Rejected(f'volume type "{spec.type}": {error}') from error
        except (Rejected, Conflict, Throttled):
            self.unanswered.pop(spec.owner, None)
            raise
        self.unanswered.pop(spec.owner, None)
        return self.places.volume(created)

    def _send_once(self, owner: Owner) -> None:
        """Raises `Conflict` while a creation with this mark may still take effect."""
        now = asyncio.get_running_loop().time()
        for each in [one for one, sent in self.unanswered.items() if now - sent >= LATE]:
            del self.unanswered[each]
        if owner in self.unanswered:
            raise Conflict(
                f"the answer to the creation of volume {owner.uid} was lost. Cinder does not show "
                f"it yet; it is created again {LATE:.0f} s after that"
            )
        self.unanswered[owner] = now

    async def delete(self, cluster: str, volume: VolumeId) -> None:
        found = await self._one(cluster, volume)
        if found is None or found.state is VolumeState.DELETING:
            return
        if found.owner is None:
            raise Rejected(f"volume {volume} has no mark of a cluster: delete it manually")
        if found.attachments:
            raise Conflict(f"volume {volume} is {found.state} ({_users(found)})")
        with _as_conflict():
            await self.cinder.delete("volumes", volume)

    async def attach(self, cluster: str, volume: VolumeId, instance: InstanceId) -> Volume:
        found = _existing(await self._one(cluster, volume), "volume", volume)
        users = [one.instance for one in found.attachments]
        if users == [instance] and found.state is not VolumeState.DETACHING:
            return found
        if found.state is not VolumeState.AVAILABLE:
            raise Conflict(f"volume {volume} is {found.state} ({_users(found)})")
        await self._check_room(instance)
        try:
            await self.nova.attach(instance, volume)
        except Rejected as error:
            if type(error) is Rejected:
                await self._check_free(cluster, volume, error)
            raise
        attachments = (Attachment(instance),)
        return replace(found, state=VolumeState.ATTACHING, attachments=attachments)

    async def detach(self, cluster: str, volume: VolumeId, instance: InstanceId) -> None:
        found = await self._one(cluster, volume)
        if found is None or found.state is VolumeState.DETACHING:
            return
        if instance not in {one.instance for one in found.attachments}:
            return
        try:
            with _as_conflict():
                await self.nova.detach(instance, volume)
        except NotFound:
            await self._release(volume, instance)

    async def _release(self, volume: VolumeId, instance: InstanceId) -> None:
        """Delete what Cinder has left of attachments to a server that was deleted."""
        if not self.uses_microversions or not await self._is_deleted(instance):
            return
        for one in await self.cinder.reservations():
            if (one.volume_id, one.instance) == (volume, instance):
                await self.cinder.delete_attachment(one.id)

    async def _is_deleted(self, instance: InstanceId) -> bool:
        try:
            await self.nova.server(instance)
        except NotFound:
            return True
        return False

    async def resize(self, cluster: str, volume: VolumeId, size_gib: int) -> Volume:
        if size_gib < 1:
            raise Rejected(f"a volume cannot have {size_gib} GiB: 1 is the least")
        found = _existing(await self._one(cluster, volume), "volume", volume)
        if found.size_gib >= size_gib or found.state is VolumeState.RESIZING:
            return found
        is_attached = found.state is VolumeState.ATTACHED
        if not is_attached and found.state is not VolumeState.AVAILABLE:
            raise Conflict(f"volume {volume} is {found.state}")
        if is_attached and not self.uses_microversions:
            raise Conflict(f"volume {volume} must be detached first: ignore-volume-microversion")
        await self.cinder.extend(volume, size_gib, is_attached=is_attached)
        return replace(found, state=VolumeState.RESIZING)

    async def list_snapshots(
        self, cluster: str, ids: Sequence[SnapshotId] | None = None
    ) -> Mapping[SnapshotId, Snapshot]:
        records = await _records(
            ids, self.cinder.snapshot, self.cinder.snapshots, {CLUSTER: cluster}
        )
        found = map(snapshot_of, records)
        return {one.id: one for one in found if _is_asked(one, cluster, ids)}

    async def create_snapshot(self, spec: SnapshotSpec) -> Snapshot:
        records = await self.cinder.snapshots(mark_of(spec.owner, SNAPSHOT))
        found = _first(map(snapshot_of, _by_age(records)), spec)
        if found is not None:
            if found.volume != spec.volume or found.state is SnapshotState.DELETING:
                raise Conflict(f"snapshot {found.id} of volume {found.volume} is {found.state}")
            return found
        volume = _existing(await self._one(spec.owner.cluster, spec.volume), "volume", spec.volume)
        if volume.state not in {VolumeState.AVAILABLE, VolumeState.ATTACHED}:
            raise Conflict(f"volume {volume.id} is {volume.state}")
        return snapshot_of(await self.cinder.create_snapshot(snapshot_body(spec)))

    async def delete_snapshot(self, cluster: str, snapshot: SnapshotId) -> None:
        found = await _or_none(self.cinder.snapshot(snapshot))
        if found is None:
            return
        before = snapshot_of(found)
        if before.owner is None or before.owner.cluster != cluster:
            raise Rejected(f"snapshot {snapshot} does not have the mark of cluster {cluster}")
        if before.state is not SnapshotState.DELETING:
            with _as_conflict():
                await self.cinder.delete("snapshots", snapshot)

    async def limits(self, instance: InstanceId) -> VolumeLimits:
        await self.nova.server(instance)
        return VolumeLimits(attachments=self.attach_limit)

    async def capacity(
        self,
        volume_type: str = "",  # noqa: ARG002 -- Cinder does not show quotas of types
        topology: Mapping[str, str] | None = None,
    ) -> VolumeCapacity:
        """Returns what the quota of the project leaves; the space of pools is for administrators.

        A quota of the volume type, and the type itself, are checked when a volume is created.
        """
        if topology:
            zones = await self.cinder.zones()
            if not self.places.has(topology, zones):
                return VolumeCapacity(available_gib=0)
        usage = await self.cinder.usage()
        if 0 <= usage.max_total_volumes <= usage.total_volumes_used:
            return VolumeCapacity(available_gib=0)
        if usage.max_total_volume_gigabytes < 0:
            return VolumeCapacity()
        left = usage.max_total_volume_gigabytes - usage.total_gigabytes_used
        return VolumeCapacity(available_gib=max(left, 0))

    # -- reading ----------------------------------------------------------------------------------

    async def _volumes(self, records: Iterable[CinderVolume]) -> Sequence[Volume]:
        """Returns the volumes, with the instances to which Nova is about to attach them."""
        known = tuple(records)
        is_known = not self.uses_microversions or not any(map(is_unclear, known))
        reservations = () if is_known else await self.cinder.reservations()
        return [self.places.volume(one, reservations) for one in known]

    async def _one(self, cluster: str, volume: VolumeId) -> Volume | None:
        """Returns the volume; None if it does not exist. Raises `Rejected` if it is another's."""
        record = await _or_none(self.cinder.volume(volume))
        if record is None:
            return None
        (found,) = await self._volumes([record])
        if found.owner is not None and found.owner.cluster != cluster:
            raise Rejected(f"volume {volume} belongs to cluster {found.owner.cluster}")
        return found

    async def _marked(self, spec: VolumeSpec) -> Volume | None:
        """Returns the volume with the mark of the spec; the oldest if there are several."""
        records = await self.cinder.volumes(mark_of(spec.owner, VOLUME))
        return _first(await self._volumes(_by_age(records)), spec)

    async def _check_free(self, cluster: str, volume: VolumeId, error: Rejected) -> None:
        """Raises `Conflict` if Nova refused the volume because it is no longer available."""
        found = await self._one(cluster, volume)
        if found is not None and found.state is not VolumeState.AVAILABLE:
            raise Conflict(str(error)) from error

    # -- checks before a change -------------------------------------------------------------------

    @staticmethod
    def _check_fit(found: Volume, spec: VolumeSpec) -> None:
        problems = {
            f"has {found.size_gib} GiB": found.size_gib < spec.size_gib,
            f"has the type {found.type}": spec.type not in {"", found.type},
            f"is in {dict(found.topology)}": not accepts(spec, found.topology),
            f"was created from {found.source}": spec.source != found.source,
            "is being deleted": found.state is VolumeState.DELETING,
        }
        wrong = [text for text, is_so in problems.items() if is_so]
        if wrong:
            raise Conflict(f"volume {found.id} of {spec.owner.uid} {' and '.join(wrong)}")

    async def _check_source(self, spec: VolumeSpec) -> None:
        """Raises `NotFound`, `Rejected` or `Conflict` if no volume can be created from it."""
        cluster = spec.owner.cluster
        match spec.source:
            case FromSnapshot(id_):
                record = await self.cinder.snapshot(id_)
                snapshot = snapshot_of(record)
                if snapshot.owner is not None and snapshot.owner.cluster != cluster:
                    raise Rejected(f"snapshot {id_} belongs to cluster {snapshot.owner.cluster}")
                if snapshot.state is not SnapshotState.READY:
                    raise Conflict(f"snapshot {id_} is {snapshot.state}")
                size = snapshot.size_gib
            case FromVolume(id_):
                size = _existing(await self._one(cluster, id_), "volume", id_).size_gib
            case None:
                return
        if spec.size_gib < size:
            raise Rejected(f"{spec.size_gib} GiB are less than its source has, {size} GiB")

    async def _check_room(self, instance: InstanceId) -> None:
        """Raises `NotFound` without the instance, `QuotaExceeded` if it has enough volumes."""
        attached = await self.nova.attached(instance)
        count = sum(one.device not in ROOT_DEVICES for one in attached)
        if count >= self.attach_limit:
            raise QuotaExceeded(
                f"server {instance} has {count} volumes: node-volume-attach-limit in "
                f"[BlockStorage] of cloud.conf is {self.attach_limit}"
            )


@contextmanager
def _as_conflict() -> Generator[None]:
    """Cinder and Nova answer 400 if the state of an object does not allow a change."""
    try:
        yield
    except Rejected as error:
        if type(error) is not Rejected:
            raise
        raise Conflict(str(error)) from error


async def _records(
    ids: Sequence[str] | None,
    one: Callable[[str], Awaitable[R]],
    every: Callable[[Mapping[str, str] | None], Awaitable[Sequence[R]]],
    mark: Mapping[str, str],
) -> Sequence[R]:
    """Returns records with these IDs, or with this mark; perhaps more. Raises if one is unknown."""
    if ids is None:
        return await every(mark)
    if len(set(ids)) > FEW:
        return await every(None)
    answers = await each_of(tuple(dict.fromkeys(ids)), lambda id_: _or_none(one(id_)))
    for answer in answers:
        if isinstance(answer, CloudError):
            raise answer
    return [answer for answer in answers if answer and not isinstance(answer, CloudError)]


async def _or_none(record: Awaitable[R]) -> R | None:
    try:
        return await record
    except NotFound:
        return None


def _existing(found: T | None, kind: str, id_: str) -> T:
    if found is None:
        raise NotFound(f"there is no {kind} {id_}")
    return found


def _is_asked(item: Volume | Snapshot, cluster: str, ids: Sequence[str] | None) -> bool:
    """Whether a list of the cluster has it: what has no mark only if it is asked for by ID."""
    if item.owner is None:
        return ids is not None and item.id in ids
    return item.owner.cluster == cluster and (ids is None or item.id in ids)


def _by_age(records: Iterable[R]) -> Sequence[R]:
    return sorted(records, key=lambda one: (one.created_at, one.id))


def _first(items: Iterable[T], spec: VolumeSpec | SnapshotSpec) -> T | None:
    return next((one for one in items if one.owner == spec.owner), None)


def _users(volume: Volume) -> str:
    return ", ".join(one.instance for one in volume.attachments) or "not attached"
