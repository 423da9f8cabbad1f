"""What records of Cinder mean in the provider contract: marks, states, places. Pure functions.

Marks are metadata, set by the request that creates a volume or snapshot:

    pileus.dev/cluster                 ID of the cluster
    pileus.dev/volume                  identity of the claim (of a snapshot: pileus.dev/snapshot)
    cinder.csi.openstack.org/cluster   ID of the cluster, for scripts that know Cinder CSI

The name is the one that Cinder CSI gives, such as `pvc-<uid>`. A volume that only has the metadata
of Cinder CSI has no mark: its cluster is known by a name that other clusters may have as well.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

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
    VolumeId,
    VolumeSpec,
    VolumeState,
)
from pileus.dataclass import dataclass
from pileus.providers.openstack.addresses import label_value
from pileus.providers.openstack.cinder import CinderSnapshot, CinderVolume, Reservation
from pileus.providers.openstack.marks import cut

CLUSTER = "pileus.dev/cluster"
VOLUME = "pileus.dev/volume"
SNAPSHOT = "pileus.dev/snapshot"
CSI_CLUSTER = "cinder.csi.openstack.org/cluster"
OF_CINDER = frozenset({"attached_mode", "readonly"})
"""Metadata that Cinder itself adds while a volume is attached."""
OWN = frozenset({CLUSTER, VOLUME, SNAPSHOT, CSI_CLUSTER}) | OF_CINDER
LONGEST_VALUE = 255

STATES: Mapping[str, VolumeState] = MappingProxyType({
    "creating": VolumeState.CREATING,
    "downloading": VolumeState.CREATING,
    "restoring-backup": VolumeState.CREATING,
    "available": VolumeState.AVAILABLE,
    "reserved": VolumeState.ATTACHING,
    "attaching": VolumeState.ATTACHING,
    "in-use": VolumeState.ATTACHED,
    "detaching": VolumeState.DETACHING,
    "extending": VolumeState.RESIZING,
    "deleting": VolumeState.DELETING,
})
"""States by the status of a volume.

Every status that begins with `error` is ERROR. Others, such as `backing-up`, `uploading`,
`retyping` or `maintenance`, pass by themselves: such a volume is ATTACHED if it has attachments,
because its instance uses it all the while, and else CREATING, because it cannot be used yet.
A volume that Cinder calls reserved or in use without saying by whom is CREATING, too.
"""
SNAPSHOT_STATES: Mapping[str, SnapshotState] = MappingProxyType({
    "available": SnapshotState.READY,
    "backing-up": SnapshotState.READY,
    "deleting": SnapshotState.DELETING,
})
"""By status. Every status that begins with `error` is ERROR; others pass, and are CREATING."""
_NEED_ATTACHMENTS = frozenset({
    VolumeState.ATTACHING,
    VolumeState.ATTACHED,
    VolumeState.DETACHING,
})


def state_of(status: str, *, is_attached: bool) -> VolumeState:
    if status.startswith("error"):
        return VolumeState.ERROR
    busy = VolumeState.ATTACHED if is_attached else VolumeState.CREATING
    state = STATES.get(status, busy)
    if (state in _NEED_ATTACHMENTS) != is_attached:
        return state if state in {VolumeState.RESIZING, VolumeState.DELETING} else busy
    return state


def is_unclear(record: CinderVolume) -> bool:
    """Whether Cinder reports an attachment that the record does not have yet."""
    return not record.attachments and STATES.get(record.status) in _NEED_ATTACHMENTS


@dataclass(frozen=True, slots=True)
class Places:
    """Which zones volumes are in, as labels of nodes."""

    region: str
    ignores_zones: bool = False
    """`ignore-volume-az`: every node of the region can attach every volume."""

    def topology(self, zone: str | None) -> Mapping[str, str]:
        if self.ignores_zones or not zone:
            return {}
        return {ZONE_LABEL: label_value(zone), REGION_LABEL: self.region}

    def chosen(self, spec: VolumeSpec, zones: Sequence[str]) -> str:
        """Returns the zone for a new volume, of those that Cinder has; empty: any.

        Raises `Rejected` if the spec accepts none of them.
        """
        if not spec.topologies or self.ignores_zones:
            return ""
        for each in spec.topologies:
            zone = each.get(ZONE_LABEL)
            if each.get(REGION_LABEL, self.region) != self.region:
                continue
            if zone is None:
                return ""
            found = next((one for one in zones if label_value(one) == zone), None)
            if found is not None:
                return found
        asked = " or ".join(sorted({str(dict(each)) for each in spec.topologies}))
        raise Rejected(
            f"volumes cannot be created in {asked}. Cinder has the zones {', '.join(zones)} in "
            f"region {self.region}. Fix: set ignore-volume-az in [BlockStorage] of cloud.conf if "
            "the zones of Nova and Cinder differ and every server can attach every volume"
        )

    def has(self, topology: Mapping[str, str], zones: Sequence[str]) -> bool:
        """Returns whether volumes can be created in that place. `zones` are those of Cinder."""
        if self.ignores_zones:
            return True
        if topology.get(REGION_LABEL, self.region) != self.region:
            return False
        zone = topology.get(ZONE_LABEL)
        return zone is None or zone in map(label_value, zones)

    def volume(self, record: CinderVolume, reservations: Sequence[Reservation] = ()) -> Volume:
        """Returns the volume. `reservations` are attachments that its record may not have yet."""
        attachments = _attachments(record, reservations)
        state = state_of(record.status, is_attached=bool(attachments))
        return Volume(
            id=VolumeId(record.id),
            owner=_owner(record.metadata, VOLUME),
            size_gib=record.size,
            state=state,
            type=record.volume_type or "",
            topology=self.topology(record.availability_zone),
            source=_source(record),
            attachments=attachments,
            labels=_labels(record.metadata),
            reason=f"Cinder reports the status {record.status}" if _is_error(record.status) else "",
        )


def accepts(spec: VolumeSpec, place: Mapping[str, str]) -> bool:
    """Returns whether the spec accepts a volume in this place."""
    return not spec.topologies or any(
        all(place.get(key, value) == value for key, value in each.items())
        for each in spec.topologies
    )


def snapshot_of(record: CinderSnapshot) -> Snapshot:
    metadata = record.metadata or {}
    is_error = _is_error(record.status)
    state = SNAPSHOT_STATES.get(record.status, SnapshotState.CREATING)
    return Snapshot(
        id=SnapshotId(record.id),
        owner=_owner(metadata, SNAPSHOT),
        volume=VolumeId(record.volume_id),
        size_gib=record.size,
        state=SnapshotState.ERROR if is_error else state,
        created_at=record.created_seconds,
        labels=_labels(metadata),
        reason=f"Cinder reports the status {record.status}" if is_error else "",
    )


def _is_error(status: str) -> bool:
    return status.startswith("error")


def mark_of(owner: Owner, key: str) -> Mapping[str, str]:
    """Returns the metadata by which an owner's volume or snapshot is found."""
    return {CLUSTER: owner.cluster, key: owner.uid}


def metadata_of(spec: VolumeSpec | SnapshotSpec) -> Mapping[str, str]:
    """Returns the metadata of a new volume or snapshot. Raises `Rejected` for invalid labels."""
    taken = sorted(OWN & spec.labels.keys())
    if taken:
        raise Rejected(f"labels cannot be called {', '.join(taken)}: these are marks")
    key = VOLUME if isinstance(spec, VolumeSpec) else SNAPSHOT
    metadata = {
        **spec.labels,
        **mark_of(spec.owner, key),
        CSI_CLUSTER: spec.owner.cluster,
    }
    too_long = sorted(
        name for name, value in metadata.items() if max(len(name), len(value)) > LONGEST_VALUE
    )
    if too_long:
        raise Rejected(f"longer than {LONGEST_VALUE} characters: metadata {', '.join(too_long)}")
    return metadata


def volume_body(spec: VolumeSpec, zone: str) -> Mapping[str, object]:
    """Returns the body of the request that creates the volume, with its mark."""
    body: dict[str, object] = {
        "name": cut(spec.name or spec.owner.uid),
        "size": spec.size_gib,
        "metadata": metadata_of(spec),
    }
    if spec.type:
        body["volume_type"] = spec.type
    if zone:
        body["availability_zone"] = zone
    match spec.source:
        case FromSnapshot(snapshot):
            body["snapshot_id"] = snapshot
        case FromVolume(volume):
            body["source_volid"] = volume
        case None:
            pass
    return body


def snapshot_body(spec: SnapshotSpec) -> Mapping[str, object]:
    return {
        "volume_id": spec.volume,
        "name": cut(spec.name or spec.owner.uid),
        "metadata": metadata_of(spec),
        "force": True,  # also while it is attached
    }


def _owner(metadata: Mapping[str, str], key: str) -> Owner | None:
    cluster, uid = metadata.get(CLUSTER), metadata.get(key)
    return Owner(cluster, uid) if cluster and uid else None


def _labels(metadata: Mapping[str, str]) -> Mapping[str, str]:
    return {key: value for key, value in metadata.items() if key not in OWN}


def _source(record: CinderVolume) -> Source | None:
    if record.snapshot_id:
        return FromSnapshot(SnapshotId(record.snapshot_id))
    return FromVolume(VolumeId(record.source_volid)) if record.source_volid else None


def _attachments(
    record: CinderVolume, reservations: Sequence[Reservation]
) -> tuple[Attachment, ...]:
    complete = {
        one.server_id or one.host_name or "": one.device or "" for one in record.attachments
    }
    pending = {
        one.instance: "" for one in reservations if one.volume_id == record.id and one.instance
    }
    found = {**pending, **complete} if is_unclear(record) else complete
    return tuple(Attachment(InstanceId(one), device) for one, device in sorted(found.items()))
