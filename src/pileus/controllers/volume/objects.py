"""Names, annotations and properties of claims, volumes and attachments. Pure.

Finalizers and annotations have the names that the CSI sidecars use: a cluster can change from
external-provisioner, -attacher and -resizer to this controller and back.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pileus.kube.model.core_v1 import (
    Node,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
)
from pileus.kube.model.meta import KubeObject
from pileus.kube.model.storage_v1 import VolumeAttachment
from pileus.quantity import bytes_of
from pileus.volumes.parameters import claim_owner, driver_name

PROVISIONERS = (
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
)
"""Annotations with which kube-controller-manager asks a provisioner for a volume."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""The annotation with which the scheduler names the node of the first pod."""
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
NODE_ID = "csi.alpha.kubernetes.io/node-id"
"""The annotation of an attachment with the ID of the instance, for the time after its Node."""
VOLUME_ID = "volume.pileus.dev/id"
"""The annotation of an attachment with the volume's ID, for the time after its PersistentVolume."""
CLAIM_FINALIZER = "volume.pileus.dev/provisioning"
"""On a claim from before its volume is created until its PersistentVolume exists."""
DELETE_FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
"""On a PersistentVolume whose volume has to be deleted first."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

BOUND, RELEASED, LOST = "Bound", "Released", "Lost"
DELETE = "Delete"
BLOCK = "Block"


@dataclass(frozen=True, slots=True)
class Rules:
    """For which driver and which cluster the controller works."""

    driver: str
    cluster: str

    @property
    def attach_finalizer(self) -> str:
        """Returns the finalizer of attachments."""
        return f"external-attacher/{self.driver.replace('.', '-')}"

    def is_ours(self, volume: PersistentVolume) -> bool:
        """Returns whether the PersistentVolume is one of this driver."""
        return bool(volume.spec and volume.spec.csi and volume.spec.csi.driver == self.driver)

    def is_provisioned(self, volume: PersistentVolume) -> bool:
        """Returns whether a provisioner of this driver created it, so that it may be deleted."""
        return self.is_ours(volume) and annotation(volume, PROVISIONED_BY) == self.driver

    def is_attacher(self, attachment: VolumeAttachment) -> bool:
        return bool(attachment.spec and attachment.spec.attacher == self.driver)

    def is_asked(self, claim: PersistentVolumeClaim) -> bool:
        """Returns whether kube-controller-manager asks this driver for a volume."""
        return any(annotation(claim, name) == self.driver for name in PROVISIONERS)

    def is_in_use(self, node: Node, handle: str) -> bool:
        """Returns whether the kubelet has not confirmed that the volume is unmounted."""
        return self.use_of(handle) in ((node.status and node.status.volumes_in_use) or ())

    def use_of(self, handle: str) -> str:
        """Returns the name of the volume in the status of nodes that have mounted it."""
        return f"kubernetes.io/csi/{self.driver}^{handle}"


def rules_of(cloud: str, cluster: str) -> Rules:
    return Rules(driver=driver_name(cloud), cluster=cluster)


def annotation(item: KubeObject, name: str) -> str:
    return (item.metadata.annotations or {}).get(name, "")


def finalizers(item: KubeObject) -> tuple[str, ...]:
    return item.metadata.finalizers or ()


def is_deleting(item: KubeObject) -> bool:
    return item.metadata.deletion_timestamp is not None


def volume_name(claim: PersistentVolumeClaim) -> str:
    """Returns the name of the PersistentVolume that is created for the claim."""
    return claim_owner(claim.metadata.uid)


def bound_to(claim: PersistentVolumeClaim) -> str:
    return claim.spec.volume_name if claim.spec else ""


def handle_of(volume: PersistentVolume) -> str:
    """Returns the ID of the volume in the cloud; empty if it is not a CSI volume."""
    return (volume.spec and volume.spec.csi and volume.spec.csi.volume_handle) or ""


def policy_of(volume: PersistentVolume) -> str:
    return volume.spec.persistent_volume_reclaim_policy if volume.spec else ""


def phase_of(item: PersistentVolume | PersistentVolumeClaim) -> str:
    return item.status.phase if item.status else ""


def claim_ref(volume: PersistentVolume) -> ObjectReference | None:
    return volume.spec.claim_ref if volume.spec else None


def is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Returns whether the PersistentVolume names this claim, by UID."""
    reference = claim_ref(volume)
    return reference is not None and reference.uid == claim.metadata.uid


def is_block(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.spec and claim.spec.volume_mode == BLOCK)


def requested(claim: PersistentVolumeClaim) -> int:
    """Returns the requested size in bytes; 0 if there is none. Raises ValueError."""
    resources = claim.spec.resources if claim.spec else None
    return _size((resources and resources.requests) or {})


def limit_of(claim: PersistentVolumeClaim) -> int:
    """Returns the largest acceptable size in bytes; 0: there is no limit. Raises ValueError."""
    resources = claim.spec.resources if claim.spec else None
    return _size((resources and resources.limits) or {})


def capacity(item: PersistentVolume | PersistentVolumeClaim) -> int:
    """Returns the size in bytes that the object shows; 0 if there is none. Raises ValueError."""
    if isinstance(item, PersistentVolume):
        return _size((item.spec and item.spec.capacity) or {})
    return _size((item.status and item.status.capacity) or {})


def _size(amounts: dict[str, str]) -> int:
    return bytes_of(amounts["storage"]) if "storage" in amounts else 0


def source_volume(attachment: VolumeAttachment) -> str:
    """Returns the name of the PersistentVolume that is to be attached."""
    source = attachment.spec.source if attachment.spec else None
    return (source and source.persistent_volume_name) or ""


def node_of(attachment: VolumeAttachment) -> str:
    return attachment.spec.node_name if attachment.spec else ""


def is_attached(attachment: VolumeAttachment) -> bool:
    return bool(attachment.status and attachment.status.attached)


def names_of(claim: PersistentVolumeClaim) -> Iterator[str]:
    """Yields the names of the PersistentVolumes that a change of the claim concerns."""
    yield volume_name(claim)
    if bound_to(claim) and bound_to(claim) != volume_name(claim):
        yield bound_to(claim)


def about_claim(claim: PersistentVolumeClaim) -> ObjectReference:
    meta = claim.metadata
    return ObjectReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
    )


def about_attachment(attachment: VolumeAttachment) -> ObjectReference:
    return ObjectReference(
        api_version="storage.k8s.io/v1",
        kind="VolumeAttachment",
        name=attachment.metadata.name,
        uid=attachment.metadata.uid,
    )
