"""The webhook `persistentvolumeclaim-resize`: refuses sizes that the volume can never have.

Claims of other drivers, and changes of anything but the size, are allowed without a question to
the cloud. A size below the last one that was asked for is allowed as long as the volume has not
grown beyond it: this is how Kubernetes recovers from a growth that failed.
"""

from dataclasses import dataclass
from typing import Protocol

import msgspec

from pileus.admission.review import ALLOWED, AdmissionRequest, Answer, refused, undecided
from pileus.admission.volumes import Found, Unknown, VolumeLookup
from pileus.cloud.volume import VolumeState
from pileus.kube.client import Client
from pileus.kube.errors import KubeError
from pileus.kube.errors import NotFound as NoObject
from pileus.kube.model.core_v1 import (
    PERSISTENT_VOLUMES,
    PersistentVolume,
    PersistentVolumeClaim,
)
from pileus.kube.model.storage_v1 import STORAGE_CLASSES, StorageClass
from pileus.quantity import bytes_of
from pileus.volumes.parameters import GIB, whole_gib

STORAGE = "storage"


class Objects(Protocol):
    """What the webhook reads from the API server. Raises KubeError."""

    async def volume(self, name: str) -> PersistentVolume: ...
    async def storage_class(self, name: str) -> StorageClass: ...


@dataclass(frozen=True, slots=True)
class ApiObjects:
    """The same, read from the API server."""

    client: Client

    async def volume(self, name: str) -> PersistentVolume:
        return await self.client.get(PERSISTENT_VOLUMES, name)

    async def storage_class(self, name: str) -> StorageClass:
        return await self.client.get(STORAGE_CLASSES, name)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A change of the size of a claim."""

    claim: str
    """Namespace and name, for messages."""
    volume: str
    storage_class: str
    before: int
    after: int
    """Bytes."""


def wanted(request: AdmissionRequest) -> Wanted | None:
    """Returns the change of size that is asked for; None if there is none to decide about.

    A claim that is not bound has no volume yet, and the API server does not allow such a change.
    """
    if request.operation != "UPDATE":
        return None
    new = msgspec.json.decode(request.object, type=PersistentVolumeClaim | None)
    old = msgspec.json.decode(request.old_object, type=PersistentVolumeClaim | None)
    if new is None or old is None or new.spec is None or not new.spec.volume_name:
        return None
    before, after = _size(old), _size(new)
    if before is None or after is None or before == after:
        return None
    return Wanted(
        claim=f"{request.namespace}/{request.name}",
        volume=new.spec.volume_name,
        storage_class=new.spec.storage_class_name or "",
        before=before,
        after=after,
    )


def decide(change: Wanted, found: Found, storage_class: StorageClass | None) -> Answer:
    """Returns the answer for a claim of one of our volumes. Pure."""
    volume = found.volume
    where = f"volume {volume.id} of claim {change.claim}"
    if volume.size_gib * GIB > change.after and change.after < change.before:
        return refused(
            f"{where} has {volume.size_gib} GiB in cloud {found.place}, and volumes cannot shrink. "
            f"Fix: request {volume.size_gib}Gi or more"
        )
    if change.after < change.before:
        return ALLOWED
    if not found.cloud.abilities.resizes_volumes:
        return refused(f"{where} cannot grow: cloud {found.place} cannot resize volumes")
    if storage_class is not None and not storage_class.allow_volume_expansion:
        name = storage_class.metadata.name
        return refused(
            f"{where} cannot grow: StorageClass {name} does not allow it. "
            f"Fix: kubectl patch storageclass {name} --patch '{{\"allowVolumeExpansion\": true}}'"
        )
    if volume.state in {VolumeState.ERROR, VolumeState.DELETING}:
        why = f" ({volume.reason})" if volume.reason else ""
        return refused(
            f"{where} cannot grow to {whole_gib(change.after)} GiB: it is in state {volume.state} "
            f"in cloud {found.place}{why}"
        )
    return ALLOWED


class ResizeWebhook:
    def __init__(self, lookup: VolumeLookup, objects: Objects) -> None:
        self._lookup = lookup
        self._objects = objects

    async def review(self, request: AdmissionRequest) -> Answer:
        change = wanted(request)
        if change is None:
            return ALLOWED
        try:
            volume = await self._objects.volume(change.volume)
            found = await self._lookup.find(volume)
            if found is None:
                return ALLOWED
            return decide(change, found, await self._class(change.storage_class))
        except (KubeError, Unknown) as error:
            return undecided(f"the new size of {change.claim} was not checked: {error}")

    async def _class(self, name: str) -> StorageClass | None:
        """Returns the class; None if the claim has none, or it was deleted."""
        try:
            return await self._objects.storage_class(name) if name else None
        except NoObject:
            return None


def _size(claim: PersistentVolumeClaim) -> int | None:
    requests = claim.spec.resources.requests if claim.spec and claim.spec.resources else None
    try:
        return bytes_of(requests[STORAGE]) if requests and STORAGE in requests else None
    except ValueError:
        return None
