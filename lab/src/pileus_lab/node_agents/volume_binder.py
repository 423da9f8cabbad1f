"""What kube-controller-manager and kubelets do with claims and volumes, as requests. Pure.

claim ──asks a provisioner──▶ PersistentVolume of the claim ──▶ both are bound
deleted claim ──▶ its protection is removed ──▶ the PersistentVolume is released
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pileus_lab.apiserver.tree import (
    Obj,
    branch,
    look,
    name_of,
    namespace_of,
    rows,
    text,
    texts,
    words,
)

PROVISIONER = "volume.kubernetes.io/storage-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"


@dataclass(frozen=True, slots=True)
class Patch:
    """A JSON merge patch."""

    path: str
    body: Obj


@dataclass(frozen=True, slots=True)
class Storage:
    """All objects that matter, as they are now."""

    claims: Sequence[Obj]
    volumes: Sequence[Obj]
    classes: Sequence[Obj]
    used: Collection[str] = ()
    """UIDs of claims that pods use."""
    has_kubelets: bool = False
    """Whether kubelets grow filesystems themselves."""


def claim_path(claim: Obj) -> str:
    return f"/api/v1/namespaces/{namespace_of(claim)}/persistentvolumeclaims/{name_of(claim)}"


def volume_path(volume: Obj) -> str:
    return f"/api/v1/persistentvolumes/{name_of(volume)}"


def uid_of(value: Obj) -> str:
    return text(value, "metadata", "uid")


def is_deleting(value: Obj) -> bool:
    return bool(text(value, "metadata", "deletionTimestamp"))


def patches(storage: Storage) -> Iterator[Patch]:
    """Yields what is to be written next. Empty: everything is bound, released or pending."""
    by_claim = {text(one, "spec", "claimRef", "uid"): one for one in storage.volumes}
    classes = {name_of(one): one for one in storage.classes}
    for claim in storage.claims:
        if is_deleting(claim):
            if uid_of(claim) not in storage.used:
                yield from _unprotected(claim, claim_path(claim), CLAIM_PROTECTION)
        elif (volume := by_claim.get(uid_of(claim))) is not None:
            yield from _bound(claim, volume)
            if not storage.has_kubelets:
                yield from grown(claim, volume)
        elif not text(claim, "spec", "volumeName"):
            yield from _asked(claim, classes)
    alive = {uid_of(one) for one in storage.claims}
    for volume in storage.volumes:
        yield from _released(volume, alive)


def _asked(claim: Obj, classes: Mapping[str, Obj]) -> Iterator[Patch]:
    found = classes.get(text(claim, "spec", "storageClassName"))
    notes = words(claim, "metadata", "annotations")
    if found is None or PROVISIONER in notes:
        return
    waits = text(found, "volumeBindingMode") == "WaitForFirstConsumer"
    if not waits or SELECTED_NODE in notes:
        body: Obj = {"metadata": {"annotations": {PROVISIONER: text(found, "provisioner")}}}
        yield Patch(claim_path(claim), body)


def _bound(claim: Obj, volume: Obj) -> Iterator[Patch]:
    if text(volume, "status", "phase") != "Bound":
        yield Patch(f"{volume_path(volume)}/status", {"status": {"phase": "Bound"}})
    if text(claim, "spec", "volumeName") != name_of(volume):
        yield Patch(claim_path(claim), {"spec": {"volumeName": name_of(volume)}})
    if text(claim, "status", "phase") != "Bound":
        status: Obj = {
            "phase": "Bound",
            "capacity": look(volume, "spec", "capacity"),
            "accessModes": look(volume, "spec", "accessModes"),
        }
        yield Patch(f"{claim_path(claim)}/status", {"status": status})


GROWING = "FileSystemResizePending"


def grown(claim: Obj, volume: Obj) -> Iterator[Patch]:
    """Yields what is written when the kubelet of the node has grown the filesystem.

    API servers before 1.32 store only the condition.
    """
    states = words(claim, "status", "allocatedResourceStatuses")
    conditions = rows(claim, "status", "conditions")
    is_old = not states and any(text(one, "type") == GROWING for one in conditions)
    if is_old or states.get("storage") == "NodeResizePending":
        status: Obj = {
            "capacity": look(volume, "spec", "capacity"),
            "allocatedResourceStatuses": None,
            "conditions": None,
        }
        yield Patch(f"{claim_path(claim)}/status", {"status": status})


def _released(volume: Obj, alive: Collection[str]) -> Iterator[Patch]:
    owner, phase = text(volume, "spec", "claimRef", "uid"), text(volume, "status", "phase")
    is_free = owner not in alive
    if owner and is_free and phase != "Released":
        yield Patch(f"{volume_path(volume)}/status", {"status": {"phase": "Released"}})
    elif is_deleting(volume) and is_free:
        yield from _unprotected(volume, volume_path(volume), VOLUME_PROTECTION)


def _unprotected(value: Obj, path: str, finalizer: str) -> Iterator[Patch]:
    present = texts(value, "metadata", "finalizers")
    if finalizer in present:
        kept = [one for one in present if one != finalizer]
        version = look(branch(value, "metadata"), "resourceVersion")
        yield Patch(path, {"metadata": {"finalizers": kept or None, "resourceVersion": version}})
