"""API group snapshot.storage.k8s.io: snapshots of claims.

The kinds are CustomResourceDefinitions, which a cluster may not have: they are read one by one, and
never by an informer.
"""

from pileus.kube.model.core_v1 import ObjectReference
from pileus.kube.model.meta import KubeObject, Resource, Time, Wire

SNAPSHOT = "snapshot.storage.k8s.io"


class SnapshotError(Wire, frozen=True):
    time: Time | None = None
    message: str | None = None


class VolumeSnapshotStatus(Wire, frozen=True):
    bound_volume_snapshot_content_name: str | None = None
    ready_to_use: bool | None = None
    error: SnapshotError | None = None


class VolumeSnapshot(KubeObject, frozen=True):
    status: VolumeSnapshotStatus | None = None


class VolumeSnapshotContentSpec(Wire, frozen=True):
    driver: str = ""
    source_volume_mode: str | None = None
    volume_snapshot_ref: ObjectReference | None = None


class VolumeSnapshotContentStatus(Wire, frozen=True):
    snapshot_handle: str | None = None
    ready_to_use: bool | None = None


class VolumeSnapshotContent(KubeObject, frozen=True):
    spec: VolumeSnapshotContentSpec | None = None
    status: VolumeSnapshotContentStatus | None = None


VOLUME_SNAPSHOTS = Resource(VolumeSnapshot, "VolumeSnapshot", "volumesnapshots", group=SNAPSHOT)
VOLUME_SNAPSHOT_CONTENTS = Resource(
    VolumeSnapshotContent,
    "VolumeSnapshotContent",
    "volumesnapshotcontents",
    group=SNAPSHOT,
    namespaced=False,
)
