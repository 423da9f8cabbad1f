"""The steps of a pass, as values.

`plan` returns them, `reconciler` performs them and `lines` shows them. A pass performs the first
step that changes or reads something, observes again and plans again. What follows in a plan is what
happens next if everything succeeds.
"""

from dataclasses import dataclass

from pileus.cloud.errors import CloudError
from pileus.cloud.model import InstanceId
from pileus.cloud.volume import VolumeId, VolumeSpec
from pileus.kube.model.core_v1 import (
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
)
from pileus.kube.model.storage_v1 import VolumeAttachment


@dataclass(frozen=True, slots=True)
class CheckVolume:
    """Read the volume from the cloud."""

    id: VolumeId


@dataclass(frozen=True, slots=True)
class FindByMark:
    """Search the cloud for a volume with the mark of the claim."""

    owner: str


@dataclass(frozen=True, slots=True)
class FindCopy:
    """Search the cloud for a volume that was created for a claim with a source."""

    owner: str


@dataclass(frozen=True, slots=True)
class FindTwins:
    """Search the cloud for other volumes with the mark of the claim, before its own is deleted.

    A request whose answer was lost may take effect after a second one was sent.
    """

    owner: str


@dataclass(frozen=True, slots=True)
class ReadSource:
    """Look up the snapshot or volume that the claim's volume is copied from."""

    claim: PersistentVolumeClaim


@dataclass(frozen=True, slots=True)
class CheckInstances:
    """Look up the instances of the nodes with attachments."""


@dataclass(frozen=True, slots=True)
class ConfirmRelease:
    """Read the PersistentVolume and its claim from the API server.

    Before data is deleted, and before a volume is created.
    """


@dataclass(frozen=True, slots=True)
class ConfirmUnmounted:
    """Read nodes from the API server, before a volume is detached from them.

    A cache that is behind may lack that the volume is mounted there.
    """


@dataclass(frozen=True, slots=True)
class ConfirmStray:
    """Read all attachments and nodes from the API server, before a stray volume is detached."""


@dataclass(frozen=True, slots=True)
class AddClaimFinalizer:
    claim: PersistentVolumeClaim


@dataclass(frozen=True, slots=True)
class CreateVolume:
    claim: PersistentVolumeClaim
    spec: VolumeSpec


@dataclass(frozen=True, slots=True)
class CreatePersistentVolume:
    claim: PersistentVolumeClaim
    body: PersistentVolume


@dataclass(frozen=True, slots=True)
class RemoveClaimFinalizer:
    claim: PersistentVolumeClaim


@dataclass(frozen=True, slots=True)
class ClearSelectedNode:
    """Let the scheduler choose another node: the selected one does not exist."""

    claim: PersistentVolumeClaim
    node: str


@dataclass(frozen=True, slots=True)
class PrepareAttachment:
    """Add the finalizer, and the IDs that a later detachment needs."""

    attachment: VolumeAttachment
    volume: VolumeId
    instance: InstanceId


@dataclass(frozen=True, slots=True)
class Attach:
    attachment: VolumeAttachment
    volume: VolumeId
    instance: InstanceId


@dataclass(frozen=True, slots=True)
class PublishAttached:
    attachment: VolumeAttachment
    device: str


@dataclass(frozen=True, slots=True)
class Detach:
    attachment: VolumeAttachment
    volume: VolumeId
    instance: InstanceId
    is_forced: bool = False
    """Whether the kubelet has not confirmed the unmount: the machine is off."""


@dataclass(frozen=True, slots=True)
class DetachStray:
    """Detach the volume from a machine for which there is no attachment."""

    pv: PersistentVolume
    volume: VolumeId
    instance: InstanceId


@dataclass(frozen=True, slots=True)
class RemoveAttachmentFinalizer:
    """Request a detachment once more, if the machine is known, and remove the finalizer."""

    attachment: VolumeAttachment
    volume: VolumeId | None
    instance: InstanceId | None


@dataclass(frozen=True, slots=True)
class Resize:
    claim: PersistentVolumeClaim
    volume: VolumeId
    size_gib: int


@dataclass(frozen=True, slots=True)
class PublishCapacity:
    """Write the new size of the volume to the PersistentVolume."""

    volume: PersistentVolume
    size_gib: int


@dataclass(frozen=True, slots=True)
class PublishResize:
    """Write to the claim that its volume has grown: the kubelet grows the filesystem next."""

    claim: PersistentVolumeClaim
    size: str
    needs_node: bool
    """False for block volumes: the claim has its new size at once."""


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Add or remove a finalizer of the PersistentVolume."""

    volume: PersistentVolume
    finalizer: str
    adds: bool


@dataclass(frozen=True, slots=True)
class DeleteVolume:
    """Delete the volume in the cloud, with its data."""

    about: ObjectReference
    volume: VolumeId
    why: str


@dataclass(frozen=True, slots=True)
class DeletePersistentVolume:
    """Request the deletion of the volume once more, then delete the object and its finalizer."""

    volume: PersistentVolume
    id: VolumeId


@dataclass(frozen=True, slots=True)
class Wait:
    """Observe again later: the cloud is working on the volume. Ends the pass."""

    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """An event on the object, then a retry with backoff. Ends the pass."""

    about: ObjectReference
    reason: str
    error: CloudError
    by_text: bool = False
    """Whether a new text is a new event: it is the controller's own, and changes with the cause."""


@dataclass(frozen=True, slots=True)
class ReportAttachment:
    """The error in the status of the attachment, then a retry with backoff. Ends the pass."""

    attachment: VolumeAttachment
    error: CloudError
    is_detachment: bool = False


@dataclass(frozen=True, slots=True)
class Warn:
    """An event on the object. Nothing is retried: only a user can change it."""

    about: ObjectReference
    reason: str
    message: str


Read = (
    CheckVolume
    | FindByMark
    | FindCopy
    | FindTwins
    | ReadSource
    | CheckInstances
    | ConfirmRelease
    | ConfirmUnmounted
    | ConfirmStray
)
Change = (
    AddClaimFinalizer
    | CreateVolume
    | CreatePersistentVolume
    | RemoveClaimFinalizer
    | ClearSelectedNode
    | PrepareAttachment
    | Attach
    | PublishAttached
    | Detach
    | DetachStray
    | RemoveAttachmentFinalizer
    | Resize
    | PublishCapacity
    | PublishResize
    | SetFinalizer
    | DeleteVolume
    | DeletePersistentVolume
)
End = Wait | Report | ReportAttachment | Warn
Step = Read | Change | End
Plan = tuple[Step, ...]

READS = (
    CheckVolume,
    FindByMark,
    FindCopy,
    FindTwins,
    ReadSource,
    CheckInstances,
    ConfirmRelease,
    ConfirmUnmounted,
    ConfirmStray,
)
ENDS = (Wait, Report, ReportAttachment, Warn)
