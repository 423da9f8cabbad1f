"""Checks what providers answer about volumes and snapshots.

A list is complete or an error: an invalid item makes the whole list invalid, because an item that
is missing does not exist for the caller. Only what is another cluster's, or was not asked for, is
dropped.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar, cast

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Unavailable
from pileus.cloud.middleware.answers import (
    Checked,
    are_all,
    are_texts,
    as_kind,
    as_mapping,
    kind,
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

V = TypeVar("V", Volume, Snapshot)
ATTACHED = frozenset({VolumeState.ATTACHING, VolumeState.ATTACHED, VolumeState.DETACHING})
FREE = frozenset({VolumeState.CREATING, VolumeState.AVAILABLE})


def check_volumes(
    asked: tuple[str, Sequence[VolumeId] | None], answer: object
) -> Checked[Mapping[VolumeId, Volume]]:
    return cast("Checked[Mapping[VolumeId, Volume]]", _checked_list(asked, answer, _volume))


def check_snapshots(
    asked: tuple[str, Sequence[SnapshotId] | None], answer: object
) -> Checked[Mapping[SnapshotId, Snapshot]]:
    return cast("Checked[Mapping[SnapshotId, Snapshot]]", _checked_list(asked, answer, _snapshot))


def _checked_list(
    asked: tuple[str, Collection[str] | None], answer: object, checked: Callable[[object], V]
) -> Checked[Mapping[str, V]]:
    cluster, ids = asked
    good: dict[str, V] = {}
    problems: list[str] = []
    for key, item in as_mapping(answer).items():
        found = checked(item)
        if found.id != key:
            raise Unavailable(f"{kind(found)} {found.id!r} under the ID {key!r}")
        if found.owner is not None and found.owner.cluster != cluster:
            problems.append(f"{found.id!r}, which has the mark of another cluster")
        elif found.owner is None if ids is None else found.id not in ids:
            problems.append(f"{found.id!r}, which was not asked for")
        else:
            good[found.id] = found
    return Checked(good, tuple(problems))


def check_created_volume(spec: VolumeSpec, answer: object) -> Checked[Volume]:
    volume = _volume(answer)
    if volume.owner != spec.owner:
        raise Unavailable(f"volume {volume.id!r} with the mark {volume.owner!r}")
    if volume.size_gib < spec.size_gib:
        raise Unavailable(f"volume {volume.id!r} of {volume.size_gib} GiB, less than asked for")
    return Checked(volume)


def check_attached_volume(asked: tuple[VolumeId, InstanceId], answer: object) -> Checked[Volume]:
    volume = _volume_with_id(asked[0], answer)
    if asked[1] not in {each.instance for each in volume.attachments}:
        raise Unavailable(f"volume {volume.id!r}, which is not attached to {asked[1]!r}")
    return Checked(volume)


def check_resized_volume(asked: tuple[VolumeId, int], answer: object) -> Checked[Volume]:
    volume = _volume_with_id(asked[0], answer)
    if volume.size_gib < asked[1] and volume.state is not VolumeState.RESIZING:
        raise Unavailable(f"volume {volume.id!r} of {volume.size_gib} GiB, less than asked for")
    return Checked(volume)


def check_created_snapshot(spec: SnapshotSpec, answer: object) -> Checked[Snapshot]:
    snapshot = _snapshot(answer)
    if snapshot.owner != spec.owner:
        raise Unavailable(f"snapshot {snapshot.id!r} with the mark {snapshot.owner!r}")
    if snapshot.volume != spec.volume:
        raise Unavailable(f"snapshot {snapshot.id!r} of another volume, {snapshot.volume!r}")
    return Checked(snapshot)


def check_limits(_: object, answer: object) -> Checked[VolumeLimits]:
    limits = as_kind(answer, VolumeLimits, "VolumeLimits")
    attachments = limits.attachments
    if attachments is not None and not _is_number(attachments, least=0):
        raise Unavailable(f"VolumeLimits whose attachments are {attachments!r}")
    return Checked(limits)


def check_capacity(_: object, answer: object) -> Checked[VolumeCapacity]:
    capacity = as_kind(answer, VolumeCapacity, "VolumeCapacity")
    available = capacity.available_gib
    if available is not None and not _is_number(available, least=0):
        raise Unavailable(f"VolumeCapacity whose available_gib is {available!r}")
    return Checked(capacity)


def _volume_with_id(asked: VolumeId, answer: object) -> Volume:
    volume = _volume(answer)
    if volume.id != asked:
        raise Unavailable(f"volume {volume.id!r} instead of {asked!r}")
    return volume


def _volume(answer: object) -> Volume:
    volume = as_kind(answer, Volume, "a Volume")
    _check_common(volume, VolumeState)
    _check_text_fields(volume, "type")
    if not are_all(volume.attachments, tuple, Attachment):
        raise Unavailable(f"volume {volume.id!r} whose attachments are not a tuple of Attachment")
    if not isinstance(cast("object", volume.source), FromSnapshot | FromVolume | None):
        raise Unavailable(f"volume {volume.id!r} whose source is {kind(volume.source)}")
    _check_mapping(volume, "topology")
    is_attached = bool(volume.attachments)
    if (volume.state in ATTACHED and not is_attached) or (volume.state in FREE and is_attached):
        count = len(volume.attachments)
        raise Unavailable(f"volume {volume.id!r} that is {volume.state} with {count} attachments")
    return volume


def _snapshot(answer: object) -> Snapshot:
    snapshot = as_kind(answer, Snapshot, "a Snapshot")
    _check_common(snapshot, SnapshotState)
    _check_text_fields(snapshot, "volume")
    if not isinstance(cast("object", snapshot.created_at), int | float):
        raise Unavailable(f"snapshot {snapshot.id!r} whose created_at is {snapshot.created_at!r}")
    return snapshot


def _check_common(item: Volume | Snapshot, states: type) -> None:
    """Raises `Unavailable` for an invalid field that volumes and snapshots both have."""
    _check_text_fields(item, "id", "reason")
    called = f"{kind(item)} {item.id!r}"
    if not item.id:
        raise Unavailable(f"a {kind(item)} without an ID")
    if not isinstance(cast("object", item.owner), Owner | None):
        raise Unavailable(f"{called} whose owner is {kind(item.owner)}")
    if not _is_number(item.size_gib, least=1):
        raise Unavailable(f"{called} whose size_gib is {item.size_gib!r}")
    if not isinstance(item.state, states):
        raise Unavailable(f"{called} whose state is {item.state!r}")
    _check_mapping(item, "labels")


def _check_text_fields(item: Volume | Snapshot, *names: str) -> None:
    for name in names:
        value = getattr(item, name)
        if not isinstance(value, str):
            raise Unavailable(f"a {kind(item)} whose {name} is {kind(value)} instead of text")


def _check_mapping(item: Volume | Snapshot, name: str) -> None:
    value = getattr(item, name)
    if not isinstance(value, Mapping) or not are_texts(cast("Mapping[object, object]", value)):
        raise Unavailable(f"{kind(item)} {item.id!r} whose {name} is not a mapping of texts")


def _is_number(value: object, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
