"""Renders the steps of a round as lines of a plan."""

from collections.abc import Iterator
from typing import assert_never

from pileus.cloud.balancer import Effect
from pileus.controllers.volume_labels.plan import AddPlacement, ReportConflict, ReportMissing, Step
from pileus.objects.preview import Place, Planned, Trouble
from pileus.settings.go_quote import quote
from pileus.volumes.persistent_volumes import about_volume

NOT_FOUND, CONFLICT, ADDED = "VolumeNotFound", "VolumeLabelConflict", "VolumeLabelsAdded"


def line(step: Step, cloud: str) -> Planned | Trouble:
    """Returns the line of one step."""
    match step:
        case AddPlacement(volume):
            return Planned(
                about=about_volume(volume),
                place=Place.CLUSTER,
                effect=Effect.UPDATE,
                summary="zone, region and node affinity of the volume",
                details=tuple(details(step)),
            )
        case ReportConflict(volume, conflicts):
            return Trouble(about_volume(volume), CONFLICT, conflict(conflicts))
        case ReportMissing(volume, identified):
            return Trouble(about_volume(volume), NOT_FOUND, missing(identified, cloud))
        case _:
            assert_never(step)


def details(step: AddPlacement) -> Iterator[str]:
    for key, value in sorted(step.missing.labels.items()):
        yield f'metadata.labels[{key}]: "" → {quote(value)}'
    for each in step.missing.requirements:
        values = ", ".join(each.values or ())
        yield f"spec.nodeAffinity: none → {each.key} {each.operator} [{values}]"


def conflict(conflicts: tuple[str, ...]) -> str:
    return f"{'; '.join(conflicts)}. Fix: remove the label; the right one is added then"


def missing(identified: str, cloud: str) -> str:
    return (
        f"cloud {cloud} has no volume {identified}, or it belongs to another cluster. Pods that "
        "use it cannot start"
    )
