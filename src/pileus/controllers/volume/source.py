"""What the volume of a claim starts with, if the claim names a snapshot or another claim. Pure.

    VolumeSnapshot ──▶ VolumeSnapshotContent ──▶ snapshot in the cloud ─┐
                                                                       ├──▶ origin, or an error
    PersistentVolumeClaim ──▶ PersistentVolume ──▶ volume in the cloud ─┘

A claim with a source never gets an empty volume: without an origin it waits. The checks are those
of external-provisioner, so that both refuse the same claims.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto

from pileus.cloud.errors import CloudError, Conflict, Misconfigured, Unsupported
from pileus.cloud.volume import (
    FromSnapshot,
    FromVolume,
    Snapshot,
    SnapshotId,
    SnapshotState,
    Source,
    Volume,
    VolumeId,
    VolumeState,
)
from pileus.controllers.volume.objects import (
    BOUND,
    Rules,
    annotation,
    bound_to,
    handle_of,
    is_block,
    is_deleting,
    is_for,
    phase_of,
)
from pileus.fix import one_line, quoted
from pileus.kube.model.core_v1 import PersistentVolume, PersistentVolumeClaim, TypedReference
from pileus.kube.model.snapshot_v1 import SNAPSHOT, VolumeSnapshot, VolumeSnapshotContent

MODE_CHANGE = "snapshot.storage.kubernetes.io/allow-volume-mode-change"
"""The annotation with which an administrator allows a block volume to become a filesystem."""
OBJECT_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
LONGEST_KIND = 63
"""Characters of a kind that a message has."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A snapshot or volume of the cloud that can be copied now."""

    source: Source
    size_gib: int
    """The least size of the copy."""


Found = Origin | CloudError
"""What the lookup of a source found: it, or why it cannot be copied now."""


class Kind(Enum):
    SNAPSHOT = auto()
    CLAIM = auto()
    OTHER = auto()
    """A kind that only a volume populator understands."""


def source_of(claim: PersistentVolumeClaim) -> TypedReference | None:
    """Returns the object whose content the claim asks for; None: an empty volume."""
    spec = claim.spec
    return (spec.data_source_ref or spec.data_source) if spec else None


def kind_of(reference: TypedReference) -> Kind:
    match reference.api_group or "", reference.kind:
        case (group, "VolumeSnapshot") if group == SNAPSHOT:
            return Kind.SNAPSHOT
        case "", "PersistentVolumeClaim":
            return Kind.CLAIM
        case _:
            return Kind.OTHER


def populator_text(reference: TypedReference) -> str:
    """Returns the warning about a claim that only a volume populator can serve."""
    group = f" of API group {quoted(reference.api_group)}" if reference.api_group else ""
    return (
        f"the claim starts with the content of {_called(reference)}{group}, which only a volume "
        "populator can provide: no volume is created. Fix: install a populator for its kind, or "
        "create the claim with a VolumeSnapshot or PersistentVolumeClaim as its source, or without "
        "one"
    )


def check_reference(claim: PersistentVolumeClaim, reference: TypedReference) -> None:
    """Raises CloudError if the source is in another namespace, or its name cannot be one.

    The API server stores any name, and a name such as `../../other/…` in a path can be another
    object for a proxy.
    """
    namespace, other = claim.metadata.namespace, reference.namespace
    if other and other != namespace:
        raise Unsupported(
            f"{_called(reference)} is in namespace {quoted(other)}, and sources in other "
            "namespaces are not supported. Fix: create the claim in that namespace, or name a "
            f"source in namespace {namespace}"
        )
    is_used = kind_of(reference) is not Kind.OTHER
    if is_used and not OBJECT_NAME.fullmatch(reference.name):
        raise Misconfigured(
            f"{_called(reference)} cannot exist: that is not the name of an object. Fix: create "
            "the claim with another source"
        )


def is_copy(volume: Volume, claim: PersistentVolumeClaim, size_gib: int) -> bool:
    """Returns whether the volume, which has the mark of the claim, is the copy that it asks for.

    The source of a claim is immutable, so that a volume with its mark was created from it. False if
    the cloud does not record sources: then `create` decides.
    """
    reference = source_of(claim)
    if reference is None or volume.state is VolumeState.DELETING or volume.size_gib < size_gib:
        return False
    match kind_of(reference):
        case Kind.SNAPSHOT:
            return isinstance(volume.source, FromSnapshot)
        case Kind.CLAIM:
            return isinstance(volume.source, FromVolume)
        case Kind.OTHER:
            return False


# -- snapshots ---------------------------------------------------------------------------------


def content_name(snapshot: VolumeSnapshot) -> str:
    """Returns the name of its VolumeSnapshotContent. Raises CloudError if it is not ready."""
    name, status = snapshot.metadata.name, snapshot.status
    if is_deleting(snapshot):
        raise Conflict(
            f"VolumeSnapshot {name} is being deleted. Fix: create the claim with another source"
        )
    content = (status and status.bound_volume_snapshot_content_name) or ""
    if not content or status is None or not status.ready_to_use:
        why = one_line((status and status.error and status.error.message) or "")
        raise Conflict(
            f"VolumeSnapshot {name} is not ready{f': {why}' if why else ''}. The volume is created "
            f"when it is. See: kubectl describe volumesnapshot -n {snapshot.metadata.namespace} "
            f"{name}"
        )
    return content


def snapshot_id(
    rules: Rules,
    claim: PersistentVolumeClaim,
    snapshot: VolumeSnapshot,
    content: VolumeSnapshotContent,
) -> SnapshotId:
    """Returns the snapshot's ID in the cloud. Raises CloudError if it must not be copied."""
    name, spec, status = snapshot.metadata.name, content.spec, content.status
    reference = spec.volume_snapshot_ref if spec else None
    if reference is None or reference.uid != snapshot.metadata.uid:
        raise Conflict(
            f"VolumeSnapshotContent {content.metadata.name} is not bound to VolumeSnapshot {name}. "
            "Fix: create the snapshot again"
        )
    driver = one_line(spec.driver if spec else "")
    if driver != rules.driver:
        raise Misconfigured(
            f"VolumeSnapshot {name} is of driver {driver}, and the claim's class of "
            f"{rules.driver}. Fix: create the claim with a class of {driver}"
        )
    handle = (status and status.snapshot_handle) or ""
    if not handle or (status and status.ready_to_use is False):
        raise Conflict(
            f"VolumeSnapshotContent {content.metadata.name} of VolumeSnapshot {name} is not ready. "
            "The volume is created when it is"
        )
    _check_snapshot_mode(claim, content)
    return SnapshotId(handle)


def _check_snapshot_mode(claim: PersistentVolumeClaim, content: VolumeSnapshotContent) -> None:
    """Raises Misconfigured if a block volume would become a filesystem, or the reverse.

    A user who wrote to a block device could otherwise attack the filesystem driver of the node.
    """
    before = content.spec.source_volume_mode if content.spec else None
    if before is None or annotation(content, MODE_CHANGE) == "true":
        return
    if before != _mode(claim):
        raise Misconfigured(
            f"the snapshot is of a volume with volumeMode {before}, and the claim has "
            f"{_mode(claim)}. Fix: create the claim with volumeMode {before}, or let an "
            f"administrator allow the change: kubectl annotate volumesnapshotcontent "
            f"{content.metadata.name} {MODE_CHANGE}=true"
        )


def from_snapshot(id_: SnapshotId, found: Snapshot | None) -> Origin:
    """Returns the origin, as the cloud has the snapshot. Raises CloudError if it has none."""
    if found is None:
        raise Conflict(
            f"the cloud has no snapshot {id_} of this cluster: it was deleted, or belongs to "
            "another cluster. Fix: create the claim with another source"
        )
    if found.state is SnapshotState.CREATING:
        raise Conflict(f"the cloud is creating snapshot {id_}. The volume is created when it is")
    if found.state is not SnapshotState.READY:
        why = f": {found.reason}" if found.reason else ""
        raise Conflict(
            f"snapshot {id_} is {found.state}{why}. Fix: create the claim with another source"
        )
    return Origin(FromSnapshot(id_), found.size_gib)


# -- claims ------------------------------------------------------------------------------------


def source_claim_volume(claim: PersistentVolumeClaim, source: PersistentVolumeClaim) -> str:
    """Returns the PersistentVolume of the claim to be cloned. Raises CloudError if it has none."""
    name = source.metadata.name
    if is_deleting(source):
        raise Conflict(
            f"PersistentVolumeClaim {name} is being deleted. Fix: create the claim with another "
            "source"
        )
    if phase_of(source) != BOUND or not bound_to(source):
        raise Conflict(
            f"PersistentVolumeClaim {name} is {phase_of(source) or 'Pending'}. The volume is "
            "created when it is Bound. See: kubectl describe pvc -n "
            f"{source.metadata.namespace} {name}"
        )
    if _mode(source) != _mode(claim):
        raise Misconfigured(
            f"PersistentVolumeClaim {name} has volumeMode {_mode(source)}, and the claim has "
            f"{_mode(claim)}. Fix: create the claim with volumeMode {_mode(source)}"
        )
    return bound_to(source)


def source_volume_id(
    rules: Rules, source: PersistentVolumeClaim, pv: PersistentVolume | None
) -> VolumeId:
    """Returns the ID of the volume to be cloned. Raises CloudError if it must not be copied."""
    name = source.metadata.name
    if pv is None or not is_for(pv, source) or phase_of(pv) != BOUND or is_deleting(pv):
        raise Conflict(
            f"PersistentVolume {bound_to(source)} of PersistentVolumeClaim {name} does not exist, "
            "is not bound to it, or is being deleted. The volume is created when it is bound"
        )
    if not rules.is_ours(pv) or not handle_of(pv):
        csi = pv.spec.csi if pv.spec else None
        raise Misconfigured(
            f"the volume of PersistentVolumeClaim {name} is of "
            f"{f'driver {csi.driver}' if csi else 'no CSI driver'}, and the claim's class of "
            f"{rules.driver}. Fix: create the claim with a class of the same driver"
        )
    return VolumeId(handle_of(pv))


def from_volume(id_: VolumeId, found: Volume | None) -> Origin:
    """Returns the origin, as the cloud has the volume. Raises CloudError if it has none."""
    if found is None:
        raise Conflict(
            f"the cloud has no volume {id_} of this cluster. Fix: create the claim with another "
            "source"
        )
    if found.state in {VolumeState.CREATING, VolumeState.RESIZING}:
        raise Conflict(f"volume {id_} is {found.state}. It is copied when that is done")
    if found.state in {VolumeState.DELETING, VolumeState.ERROR}:
        why = f": {found.reason}" if found.reason else ""
        raise Conflict(
            f"volume {id_} is {found.state}{why}. Fix: create the claim with another source"
        )
    return Origin(FromVolume(id_), found.size_gib)


def fitting(claim: PersistentVolumeClaim, size_gib: int, found: Found) -> Found:
    """Returns the origin if a volume of this size can have its content, and otherwise the error."""
    reference = source_of(claim)
    if reference is None or isinstance(found, CloudError) or size_gib >= found.size_gib:
        return found
    return Misconfigured(
        f"the claim asks for {size_gib} GiB, and {_called(reference)} has "
        f"{found.size_gib} GiB. Fix: create the claim with at least {found.size_gib}Gi"
    )


def _called(reference: TypedReference) -> str:
    return f"{one_line(reference.kind, LONGEST_KIND)} {quoted(reference.name)}"


def _mode(claim: PersistentVolumeClaim) -> str:
    return "Block" if is_block(claim) else "Filesystem"
