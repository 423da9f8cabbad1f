"""What a pass over one volume is planned from. Pure values."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from pileus.cloud.model import Instance, InstanceId
from pileus.cloud.volume import Volume, VolumeId
from pileus.controllers.volume.objects import (
    NODE_ID,
    VOLUME_ID,
    about_attachment,
    about_claim,
    annotation,
    handle_of,
)
from pileus.controllers.volume.source import Found
from pileus.kube.model.core_v1 import (
    Node,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
)
from pileus.kube.model.storage_v1 import StorageClass, VolumeAttachment
from pileus.objects.lookup import Answer
from pileus.volumes.persistent_volumes import about_volume


@dataclass(frozen=True, slots=True)
class Held:
    """An attachment, and the node that it is for."""

    attachment: VolumeAttachment
    node: Node | None = None
    """None: there is no such node."""
    answer: Answer | None = None
    """The cloud's answer about its instance; None: it was not asked."""
    gone_for: float = 0.0
    """Seconds for which the cloud has answered that there is no such instance."""
    is_fresh: bool = False
    """Whether the node is as the API server has it, and not the cache."""

    @property
    def instance(self) -> InstanceId | None:
        """Returns the instance: as recorded before the attachment, or as the cloud says."""
        recorded = annotation(self.attachment, NODE_ID)
        if recorded:
            return InstanceId(recorded)
        return self.answer.id if isinstance(self.answer, Instance) else None


@dataclass(frozen=True, slots=True)
class Released:
    """What the API server, not the cache, says about a PersistentVolume and its claim."""

    volume: PersistentVolume | None
    """None: there is none with this name."""
    claim: PersistentVolumeClaim | None
    """The claim with the UID that the PersistentVolume (or the mark) names; None: it is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    name: str
    """Name of the PersistentVolume, whether or not it exists: the key of the pass."""
    date: datetime
    pv: PersistentVolume | None = None
    claim: PersistentVolumeClaim | None = None
    """Of the PersistentVolume, by UID; without one, the claim that it would be created for."""
    storage_class: StorageClass | None = None
    selected: Node | None = None
    """The node that the scheduler selected for the claim, if it exists."""
    attachments: tuple[Held, ...] = ()
    """Of this driver, oldest first."""
    shared_with: tuple[str, ...] = ()
    """Other PersistentVolumes with the same volume."""
    volume: Volume | None = None
    """As the cloud has it; None also before it is asked."""
    is_checked: bool = False
    """Whether the cloud was asked for the volume."""
    twins: tuple[Volume, ...] | None = None
    """Other volumes with the mark of the claim that no PersistentVolume has; None: not read yet."""
    is_confirmed: bool = False
    """Whether the cloud just answered so to an attachment; a list may be older."""
    is_in_use: bool = False
    """Whether any node reports that the volume is mounted there."""
    origin: Found | None = None
    """What the volume of the claim is copied from, or why it cannot be; None: not read yet."""
    copied_to: tuple[str, ...] = ()
    """Claims that have no PersistentVolume yet, and copy the volume of this claim."""
    absent_for: float = 0.0
    """Seconds since a search by mark first found nothing."""
    is_due: bool = False
    """Whether the periodic check suspects that cluster and cloud differ."""
    released: Released | None = None
    """Fresh reads; None: not read yet."""
    holders: frozenset[str] | None = None
    """The instances of all attachments, by a fresh list; "" for one that has none yet. None: not
    read yet."""
    machines: frozenset[str] = frozenset()
    """The instances of all nodes, read together with the holders."""

    def objects(self) -> Iterator[ObjectReference]:
        """Yields the claim, the PersistentVolume and the attachments, as far as they exist."""
        if self.claim is not None:
            yield about_claim(self.claim)
        if self.pv is not None:
            yield about_volume(self.pv)
        yield from (about_attachment(each.attachment) for each in self.attachments)

    @property
    def volume_id(self) -> VolumeId | None:
        """Returns the volume's ID: of the PersistentVolume, or as an attachment recorded it."""
        if self.pv is not None:
            return VolumeId(handle_of(self.pv)) if handle_of(self.pv) else None
        recorded = (annotation(each.attachment, VOLUME_ID) for each in self.attachments)
        found = next(filter(None, recorded), "")
        if found:
            return VolumeId(found)
        return self.volume.id if self.volume else None
