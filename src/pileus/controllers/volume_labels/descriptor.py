"""The PersistentVolume label controller, as the manager knows it."""

from typing import TYPE_CHECKING

from pileus.controllers.volume_labels.settings import VolumeLabelSettings
from pileus.kube.model.core_v1 import PERSISTENT_VOLUMES
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    Skipped,
)
from pileus.objects.rights import Right, events

if TYPE_CHECKING:
    from pileus.controllers.volume_labels.controller import VolumeLabelController

VOLUME_LABELS = ControllerNames(
    canonical="persistentvolume-label-controller",
    alias="pvlabel",
    event_source="persistentvolume-label-controller",
    metric="persistentvolume-label",
    identity="pvl-controller",
    off_by_default=True,
)
"""The Go framework had a controller of this purpose until 1.13, `pvlabel` with this identity."""


def rights(_settings: VolumeLabelSettings) -> tuple[Right, ...]:
    return (
        Right(
            purpose="Zone, region and node affinity of volumes.",
            resources=("persistentvolumes",),
            verbs=("patch",),
        ),
        events("Events about PersistentVolumes."),
    )


def build(
    context: ControllerContext, _settings: VolumeLabelSettings
) -> "VolumeLabelController | Skipped":
    volumes = context.scope.cloud.volumes
    if volumes is None:
        return Skipped("the cloud provider does not support volumes")
    from pileus.controllers.volume_labels.controller import (  # noqa: PLC0415 -- not needed by help
        VolumeLabelController,
    )

    return VolumeLabelController(context, volumes)


DESCRIPTOR = ControllerDescriptor(
    names=VOLUME_LABELS,
    settings=VolumeLabelSettings,
    build=build,
    kinds=(PERSISTENT_VOLUMES,),
    rights=rights,
)
