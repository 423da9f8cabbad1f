"""The volume controller, as the manager knows it."""

from typing import TYPE_CHECKING

from pileus.controllers.volume.settings import VolumeSettings
from pileus.kube.model.core_v1 import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from pileus.kube.model.snapshot_v1 import SNAPSHOT
from pileus.kube.model.storage_v1 import STORAGE, STORAGE_CLASSES, VOLUME_ATTACHMENTS
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    Skipped,
)
from pileus.objects.rights import Right, events

if TYPE_CHECKING:
    from pileus.controllers.volume.controller import VolumeController

VOLUME = ControllerNames(
    canonical="volume-controller",
    alias="volume",
    event_source="volume-controller",
    metric="volume",
    identity="volume-controller",
    off_by_default=True,
)

RIGHTS = (
    Right(
        purpose=(
            "get: read again before a volume is created, copied or deleted. "
            "create, delete: with their volumes. patch: finalizers and capacity."
        ),
        resources=("persistentvolumes",),
        verbs=("get", "create", "patch", "delete"),
        planning=("get",),
    ),
    Right(
        purpose=(
            "get: read again before a volume is created, copied or deleted. "
            "patch: finalizer while a volume is created."
        ),
        resources=("persistentvolumeclaims",),
        verbs=("get", "patch"),
        planning=("get",),
    ),
    Right(
        purpose="Read again before a volume is detached: a node that has mounted it keeps it.",
        resources=("nodes",),
        verbs=("get",),
        planning=("get",),
    ),
    Right(
        purpose="The snapshots that claims name as their source. Without the kinds, unused.",
        group=SNAPSHOT,
        resources=("volumesnapshots", "volumesnapshotcontents"),
        verbs=("get",),
        planning=("get",),
    ),
    Right(
        purpose="Claims that have grown.",
        resources=("persistentvolumeclaims/status",),
        verbs=("patch",),
    ),
    Right(
        purpose="Finalizers of attachments.",
        group=STORAGE,
        resources=("volumeattachments",),
        verbs=("patch",),
    ),
    Right(
        purpose="Whether a volume is attached, or why not.",
        group=STORAGE,
        resources=("volumeattachments/status",),
        verbs=("patch",),
    ),
    Right(
        purpose="CSI sidecars that do the same work are reported.",
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("list",),
    ),
    events("Events about claims and PersistentVolumes. `patch` counts repeated events."),
)


def build(context: ControllerContext, settings: VolumeSettings) -> "VolumeController | Skipped":
    cloud = context.scope.cloud
    if cloud.volumes is None:
        return Skipped("the cloud provider does not support volumes")
    if cloud.instances is None:
        return Skipped("the cloud provider does not support instances")
    from pileus.controllers.volume.controller import (  # noqa: PLC0415 -- not needed by help
        VolumeController,
    )

    return VolumeController(context, cloud.volumes, cloud.instances, settings)


DESCRIPTOR = ControllerDescriptor(
    names=VOLUME,
    settings=VolumeSettings,
    build=build,
    kinds=(
        NODES,
        PERSISTENT_VOLUMES,
        PERSISTENT_VOLUME_CLAIMS,
        STORAGE_CLASSES,
        VOLUME_ATTACHMENTS,
    ),
    rights=lambda _: RIGHTS,
    stuck_after=900.0,
)
