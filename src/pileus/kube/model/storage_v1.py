"""API group storage.k8s.io: classes of volumes, and their attachments to nodes."""

from pileus.kube.model.core_v1 import PersistentVolumeSpec
from pileus.kube.model.meta import Int32, KubeObject, Labels, Resource, Time, Wire

STORAGE = "storage.k8s.io"


class TopologyRequirement(Wire, frozen=True):
    key: str = ""
    values: tuple[str, ...] | None = None


class TopologyTerm(Wire, frozen=True):
    match_label_expressions: tuple[TopologyRequirement, ...] | None = None


class StorageClass(KubeObject, frozen=True):
    provisioner: str = ""
    parameters: Labels | None = None
    reclaim_policy: str | None = None
    mount_options: tuple[str, ...] | None = None
    allow_volume_expansion: bool | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] | None = None


class VolumeAttachmentSource(Wire, frozen=True):
    persistent_volume_name: str | None = None
    inline_volume_spec: PersistentVolumeSpec | None = None


class VolumeAttachmentSpec(Wire, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource | None = None


class VolumeError(Wire, frozen=True):
    time: Time | None = None
    message: str = ""
    error_code: Int32 | None = None


class VolumeAttachmentStatus(Wire, frozen=True):
    attached: bool = False
    attachment_metadata: Labels | None = None
    attach_error: VolumeError | None = None
    detach_error: VolumeError | None = None


class VolumeAttachment(KubeObject, frozen=True):
    spec: VolumeAttachmentSpec | None = None
    status: VolumeAttachmentStatus | None = None


STORAGE_CLASSES = Resource(
    StorageClass, "StorageClass", "storageclasses", group=STORAGE, namespaced=False
)
VOLUME_ATTACHMENTS = Resource(
    VolumeAttachment, "VolumeAttachment", "volumeattachments", group=STORAGE, namespaced=False
)
