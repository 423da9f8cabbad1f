"""The patches of this controller. Pure. Each names the UID of its object.

A list of finalizers can only be replaced as a whole, so its patch names the version it is based on.
"""

from collections.abc import Mapping
from datetime import datetime

from pileus.controllers.volume.objects import SELECTED_NODE, finalizers
from pileus.kube.model.core_v1 import PersistentVolume, PersistentVolumeClaim
from pileus.kube.model.meta import KubeObject
from pileus.kube.patch import MergePatch, StrategicPatch
from pileus.volumes.parameters import DEVICE

LONGEST = 1000
"""Bytes of an error in the status of an attachment."""


def finalizer_patch(
    item: KubeObject,
    finalizer: str,
    *,
    adds: bool,
    annotations: Mapping[str, str] | None = None,
) -> MergePatch:
    """Returns the patch that adds or removes a finalizer."""
    kept = [each for each in finalizers(item) if each != finalizer]
    metadata: dict[str, object] = {
        "uid": item.metadata.uid,
        "resourceVersion": item.metadata.resource_version,
        "finalizers": ([*kept, finalizer] if adds else kept) or None,
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return MergePatch({"metadata": metadata})


def unselected_patch(claim: PersistentVolumeClaim) -> MergePatch:
    """Returns the patch that lets the scheduler choose another node."""
    return MergePatch({
        "metadata": {
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
            "annotations": {SELECTED_NODE: None},
        }
    })


def attached_patch(item: KubeObject, device: str) -> MergePatch:
    status: dict[str, object] = {
        "attached": True,
        "attachError": None,
        "attachmentMetadata": {DEVICE: device} if device else None,
    }
    return MergePatch({"metadata": {"uid": item.metadata.uid}, "status": status})


def attach_error_patch(
    item: KubeObject, message: str, now: datetime, *, is_detachment: bool
) -> MergePatch:
    short = message.encode()[:LONGEST].decode(errors="ignore")
    error = {"time": now.replace(microsecond=0), "message": short}
    field = "detachError" if is_detachment else "attachError"
    return MergePatch({"metadata": {"uid": item.metadata.uid}, "status": {field: error}})


def capacity_patch(volume: PersistentVolume, size_gib: int) -> MergePatch:
    return MergePatch({
        "metadata": {"uid": volume.metadata.uid},
        "spec": {"capacity": {"storage": f"{size_gib}Gi"}},
    })


def resized_patch(
    claim: PersistentVolumeClaim, size: str, now: datetime, *, needs_node: bool
) -> StrategicPatch:
    """Returns the patch of the claim's status, as external-resizer writes it."""
    if not needs_node:
        status: dict[str, object] = {"capacity": {"storage": size}}
        return StrategicPatch({"metadata": {"uid": claim.metadata.uid}, "status": status})
    condition = {
        "type": "FileSystemResizePending",
        "status": "True",
        "lastTransitionTime": now.replace(microsecond=0),
        "message": "Waiting for user to (re-)start a pod to finish file system resize of volume "
        "on node.",
    }
    status = {
        "allocatedResources": {"storage": size},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        "conditions": [condition],
    }
    return StrategicPatch({"metadata": {"uid": claim.metadata.uid}, "status": status})
