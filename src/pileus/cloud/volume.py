"""Volumes and snapshots in the contract: values, states, and the protocol of a provider.

A volume is identified by its mark, an `Owner`: the ID of the cluster and the identity of the claim
in it. The mark is part of the request that creates the volume, so that a process that dies leaves
no volume without one, and two clusters in one account never take each other's.

A provider does not wait: a method returns when the cloud has accepted the request. The state says
what is under way; the caller lists the volume again until it is done.

    create ──▶ CREATING ──▶ AVAILABLE ──attach──▶ ATTACHING ──▶ ATTACHED
                  │          │  │  ▲                               │
                  ▼     resize  │  └──────── DETACHING ◀──detach───┤
                ERROR        ▼  │                                  ▼
                      RESIZING  └─delete──▶ DELETING ──▶ missing   RESIZING (while attached)
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import NewType, Protocol

from pileus.cloud.balancer import Owner
from pileus.cloud.model import InstanceId, no_labels
from pileus.dataclass import dataclass

VolumeId = NewType("VolumeId", str)
SnapshotId = NewType("SnapshotId", str)

ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"


class VolumeState(StrEnum):
    """State of a volume, and what the caller does in it."""

    CREATING = "creating"
    """Not usable yet. The caller waits: it becomes AVAILABLE or ERROR."""
    AVAILABLE = "available"
    """Not attached. It can be attached, resized, copied and deleted."""
    ATTACHING = "attaching"
    """`attachments` names the instance; the device may not exist yet. The caller waits."""
    ATTACHED = "attached"
    """The instance can use it. It can be detached; `delete` is refused."""
    DETACHING = "detaching"
    """The instance may still write to it: `attachments` names it, and no other instance gets the
    volume until it is AVAILABLE. The caller waits."""
    RESIZING = "resizing"
    """`size_gib` is still the old size. The caller waits; attachments stay as they are."""
    DELETING = "deleting"
    """It disappears from lists when it is deleted. Its mark is free only then."""
    ERROR = "error"
    """The cloud has given up; `reason` says why. The caller reports it and deletes nothing: there
    may be data on it. `create` with its mark returns it as it is."""


class SnapshotState(StrEnum):
    """State of a snapshot, and what the caller does in it."""

    CREATING = "creating"
    """No volume can be created from it yet. The caller waits."""
    READY = "ready"
    """Volumes can be created from it."""
    DELETING = "deleting"
    """It disappears from lists when it is deleted."""
    ERROR = "error"
    """The cloud has given up; `reason` says why. It can only be deleted."""


@dataclass(frozen=True, slots=True)
class FromSnapshot:
    """A volume that starts with the content of a snapshot."""

    id: SnapshotId
    """The snapshot."""


@dataclass(frozen=True, slots=True)
class FromVolume:
    """A volume that starts with the content of another volume: a clone."""

    id: VolumeId
    """The other volume."""


Source = FromSnapshot | FromVolume


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSpec:
    """A volume to be created."""

    owner: Owner
    """The mark, and the only identity. `owner.uid` is any text of up to 128 characters."""
    size_gib: int
    """At least 1. The cloud may round it up."""
    name: str = ""
    """A hint for a name that people read. Never identity."""
    type: str = ""
    """One of the cloud's volume types; empty: its default."""
    topologies: tuple[Mapping[str, str], ...] = field(default=(), hash=False)
    """Node labels of acceptable places, preferred ones first, for example
    `{"topology.kubernetes.io/zone": "a"}`. Empty: any place."""
    source: Source | None = None
    """What the volume contains at first; None: it is empty."""
    labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Additional tags, for people. Never identity."""


@dataclass(frozen=True, slots=True)
class Attachment:
    instance: InstanceId
    """The machine, as `Instance.id` names it."""
    device: str = ""
    """Path of the device on the instance, or of a directory if the volumes of this cloud are such.
    Empty if the cloud does not know it (yet).

    The node looks for a disk with the volume's ID as its serial first. If the disks of this cloud
    show another serial, return their link in `/dev/disk/by-id`, such as
    `/dev/disk/by-id/scsi-0ACME_Volume_4711`. It is taken if the disk shows the serial at its end.
    A place such as `/dev/sdb` is not enough, even if the cloud is certain of it: until the kernel
    has noticed a change, the place has the disk that was detached last, and without a serial the
    node cannot see that. It would mount that disk, or format it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume as the cloud has it."""

    id: VolumeId
    owner: Owner | None
    """Its mark. None: it has none, because it was created manually."""
    size_gib: int
    """The real size, at least 1."""
    state: VolumeState
    type: str = ""
    """One of the cloud's volume types."""
    topology: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Labels of the nodes that can attach it; empty: all can."""
    source: Source | None = None
    """As in its spec; None also if the cloud does not record it."""
    attachments: tuple[Attachment, ...] = ()
    """Instances that can write to it, or may still do so."""
    labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Tags of the volume, except the mark."""
    reason: str = ""
    """Why its state is ERROR, for the event that people read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSpec:
    """A snapshot to be created."""

    owner: Owner
    """The mark, and the only identity, as in `VolumeSpec`. Marks of snapshots and of volumes are
    independent of each other."""
    volume: VolumeId
    """The volume that it is taken of."""
    name: str = ""
    """A hint for a name that people read. Never identity."""
    labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Additional tags, for people. Never identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot as the cloud has it."""

    id: SnapshotId
    owner: Owner | None
    """Its mark. None: it has none, because it was created manually."""
    volume: VolumeId
    """The volume that it was taken of, which may be deleted meanwhile."""
    size_gib: int
    """The smallest size of a volume that is created from it."""
    state: SnapshotState
    created_at: float
    """When its content was taken, in seconds since the epoch."""
    labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Tags of the snapshot, except the mark."""
    reason: str = ""
    """Why its state is ERROR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeLimits:
    attachments: int | None = None
    """How many volumes of this contract can be attached to the instance at once, whether or not
    they are attached now. Volumes that it needs to boot do not count. None: no limit is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeCapacity:
    available_gib: int | None = None
    """The total size of new volumes that the account can have now. None: it is not known, or there
    is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeNames:
    """How objects of other projects refer to volumes of this cloud, besides Pileus' own driver."""

    drivers: tuple[str, ...] = ()
    """CSI drivers whose volume handles are this cloud's volume IDs."""
    sources: tuple[str, ...] = ()
    """Kinds of volume sources that Kubernetes itself has for this cloud; known is `cinder`."""


class Volumes(Protocol):
    """Volumes and snapshots of one account.

    `cluster` is the ID of the cluster that asks. A method never changes a volume or snapshot with
    the mark of another cluster: it raises Rejected. One without any mark can be attached, detached,
    resized and copied, because administrators bring their own volumes; it is never deleted.

    The core never has two calls under way for the same mark or the same volume.
    """

    async def list_volumes(
        self, cluster: str, ids: Sequence[VolumeId] | None = None
    ) -> Mapping[VolumeId, Volume]:
        """Returns the volumes of the cluster: all of them, or those with the given IDs.

        A volume without a mark is returned only if its ID is given. Volumes of other clusters never
        are. A volume that is missing from the answer does not exist or is not the cluster's. Raises
        CloudError if the list is incomplete: the caller treats it as complete.
        """
        ...

    async def create(self, spec: VolumeSpec) -> Volume:
        """Create a volume with the mark of `spec.owner`. Returns it, perhaps still CREATING.

        Idempotent by mark: a volume with that mark is returned as it is if it fits the spec, that
        is, has at least its size, its type, a place that it accepts, and its source. Raises
        Conflict if it does not fit or is being deleted, NotFound if the source does not exist,
        Rejected if size, type or place are invalid or the source is larger, QuotaExceeded, and
        Unsupported if this cloud cannot create volumes from such a source.
        """
        ...

    async def delete(self, cluster: str, volume: VolumeId) -> None:
        """Delete a volume of the cluster, with its data.

        Idempotent: deleting a missing volume succeeds. Raises Conflict while it is attached,
        attaching or detaching, or has snapshots that cannot exist without it; Rejected if it has
        another mark than the cluster's, or none.
        """
        ...

    async def attach(self, cluster: str, volume: VolumeId, instance: InstanceId) -> Volume:
        """Attach the volume to the instance for writing. Returns it, perhaps still ATTACHING.

        Idempotent: attaching it again to the same instance succeeds and keeps the device.
        Exclusive: raises Conflict while another instance has it, also while that one is detaching.
        Raises NotFound if the volume or the instance does not exist, QuotaExceeded if the instance
        has as many volumes as it can have, Rejected if it is in another place than the volume.
        """
        ...

    async def detach(self, cluster: str, volume: VolumeId, instance: InstanceId) -> None:
        """Detach the volume from this instance. It is free when it is listed as AVAILABLE.

        Idempotent: succeeds if the volume or the instance does not exist, or the volume is not
        attached to this instance. An attachment to another instance is never changed.
        """
        ...

    async def resize(self, cluster: str, volume: VolumeId, size_gib: int) -> Volume:
        """Grow the volume to at least this size. Returns it, perhaps still RESIZING.

        Idempotent, and never shrinks: a volume that is large enough is returned as it is. Raises
        NotFound, Conflict if the volume is busy or must be detached first, Rejected if the size is
        invalid, QuotaExceeded, and Unsupported if this cloud cannot resize volumes.
        """
        ...

    async def list_snapshots(
        self, cluster: str, ids: Sequence[SnapshotId] | None = None
    ) -> Mapping[SnapshotId, Snapshot]:
        """Returns the snapshots of the cluster, with the guarantees of `list_volumes`.

        Raises Unsupported if this cloud has no snapshots.
        """
        ...

    async def create_snapshot(self, spec: SnapshotSpec) -> Snapshot:
        """Create a snapshot with the mark of `spec.owner`. Returns it, perhaps still CREATING.

        Idempotent by mark: a snapshot with that mark is returned as it is. Raises Conflict if that
        one is of another volume or is being deleted, or the volume is busy; NotFound if the volume
        does not exist; Rejected if the volume is another cluster's; QuotaExceeded; Unsupported if
        this cloud has no snapshots.
        """
        ...

    async def delete_snapshot(self, cluster: str, snapshot: SnapshotId) -> None:
        """Delete a snapshot of the cluster. Volumes that were created from it stay.

        Idempotent: deleting a missing snapshot succeeds. Raises Conflict if volumes depend on it,
        Rejected if it has another mark than the cluster's, or none.
        """
        ...

    async def limits(self, instance: InstanceId) -> VolumeLimits:
        """Returns how many volumes the instance can have. Raises NotFound if it does not exist."""
        ...

    async def capacity(
        self, volume_type: str = "", topology: Mapping[str, str] | None = None
    ) -> VolumeCapacity:
        """Returns how much space is left for new volumes of this type in this place.

        `volume_type` is empty for the cloud's default, `topology` is None for any place. 0 if there
        is no such type or place: a larger volume is refused with QuotaExceeded or Rejected. Raises
        Unsupported if this cloud never reports it.
        """
        ...
