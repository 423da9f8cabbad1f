"""The steps of a round: which PersistentVolumes get labels and affinity. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pileus.cloud.volume import REGION_LABEL, ZONE_LABEL, Volume, VolumeId
from pileus.kube.model.core_v1 import PersistentVolume
from pileus.volumes.persistent_volumes import (
    CloudVolumes,
    Placement,
    can_lack_placement,
    placement,
    terms_of,
)

KEYS = (ZONE_LABEL, REGION_LABEL)


@dataclass(frozen=True, slots=True)
class AddPlacement:
    """Add labels, and the node affinity of an object that has none."""

    volume: PersistentVolume
    missing: Placement


@dataclass(frozen=True, slots=True)
class ReportConflict:
    """Report that labels of the object contradict the cloud. They are kept."""

    volume: PersistentVolume
    conflicts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReportMissing:
    """Report that the cloud does not have the volume."""

    volume: PersistentVolume
    id: VolumeId


Step = AddPlacement | ReportConflict | ReportMissing


def candidates(
    volumes: Iterator[PersistentVolume], cloud: CloudVolumes
) -> Iterator[tuple[PersistentVolume, VolumeId]]:
    """Yields the objects of this cloud that may lack something, with the IDs of their volumes."""
    for each in volumes:
        identified = cloud.id_of(each)
        is_going = each.metadata.deletion_timestamp is not None
        if identified is not None and not is_going and can_lack_placement(each, KEYS):
            yield each, identified


def plan(
    found: tuple[tuple[PersistentVolume, VolumeId], ...],
    seen: Mapping[VolumeId, Volume],
    cloud: CloudVolumes,
    *,
    is_only: bool,
) -> tuple[Step, ...]:
    """Returns the steps of a round. Empty: every object has what the cloud says.

    `seen` is complete for the IDs in `found`. Another cloud of this manager may have a volume of a
    driver that both know, so that its absence here is reported only if this is the only cloud.
    """
    return tuple(_steps(found, seen, cloud, is_only=is_only))


def _steps(
    found: tuple[tuple[PersistentVolume, VolumeId], ...],
    seen: Mapping[VolumeId, Volume],
    cloud: CloudVolumes,
    *,
    is_only: bool,
) -> Iterator[Step]:
    for each, identified in found:
        volume = seen.get(identified)
        if volume is None:
            if is_only or cloud.is_certain(each):
                yield ReportMissing(each, identified)
            continue
        missing = possible(each, placement(each, volume.topology))
        if not missing.is_empty:
            yield AddPlacement(each, missing)
        if missing.conflicts:
            yield ReportConflict(each, missing.conflicts)


def possible(volume: PersistentVolume, missing: Placement) -> Placement:
    """Returns what can be added to an object that exists: an affinity cannot be changed."""
    if not terms_of(volume):
        return missing
    return Placement(labels=missing.labels, conflicts=missing.conflicts)
