"""Events and statuses with which this controller reports."""

from pileus.clock import Clock
from pileus.cloud.errors import CloudError
from pileus.controllers.volume.cluster import Cluster
from pileus.controllers.volume.objects import (
    DELETE_FINALIZER,
    about_attachment,
    about_claim,
    finalizers,
    is_deleting,
    node_of,
)
from pileus.controllers.volume.patches import attach_error_patch
from pileus.controllers.volume.plan import DELETE_FAILED, RESIZE_FAILED
from pileus.controllers.volume.provision import FAILED
from pileus.controllers.volume.steps import (
    Attach,
    Change,
    CreatePersistentVolume,
    DeletePersistentVolume,
    DeleteVolume,
    Detach,
    PublishResize,
    RemoveAttachmentFinalizer,
    ReportAttachment,
    Resize,
)
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import ObjectReference, PersistentVolume
from pileus.objects.events import ObjectEvents, shortened
from pileus.telemetry.log import Log
from pileus.volumes.persistent_volumes import about_volume

log = Log(__name__)

PROVISIONED, RESIZED = "ProvisioningSucceeded", "VolumeResizeSuccessful"
NODE_RESIZE = "FileSystemResizeRequired"
DETACHED_BY_FORCE = "VolumeDetachedByForce"


class Reporter:
    """Publishes events about claims and PersistentVolumes, and errors of attachments."""

    def __init__(self, notices: ObjectEvents, clock: Clock) -> None:
        self._notices = notices
        self._clock = clock

    def failed(
        self, about: ObjectReference, reason: str, error: CloudError, *, by_text: bool = False
    ) -> None:
        self._notices.warn(about, reason, shortened(_text(error)), by_text=by_text)

    def warn(self, about: ObjectReference, reason: str, message: str) -> None:
        self._notices.warn(about, reason, shortened(message))

    def done(self, step: Change) -> None:
        """Announce a step that a user is interested in."""
        match step:
            case CreatePersistentVolume(claim, body):
                about = about_claim(claim)
                self._notices.forget(about, FAILED)
                text = f"Successfully provisioned volume {body.metadata.name}"
                self._notices.announce(about, PROVISIONED, text)
            case PublishResize(claim, size, needs_node):
                self._notices.forget(about_claim(claim), RESIZE_FAILED)
                reason = NODE_RESIZE if needs_node else RESIZED
                what = "the kubelet grows the filesystem next" if needs_node else "done"
                self._notices.announce(about_claim(claim), reason, f"The volume has {size}: {what}")
            case Detach(item, volume, instance, is_forced=True):
                text = f"Volume {volume} was detached from {instance} by force: the machine is off"
                self._notices.announce(about_attachment(item), DETACHED_BY_FORCE, text)
                log.warning("Detached volume by force", volume=volume, instance=instance)
            case DeletePersistentVolume(volume) if _is_last(volume):
                log.info("Deleted volume of PersistentVolume", name=volume.metadata.name)
            case _:
                pass

    async def step_failed(self, step: Change, error: CloudError, cluster: Cluster) -> None:
        """Report a step that the cloud refused. Raises as `attachment_failed` does."""
        match step:
            case Attach(item):
                await self.attachment_failed(ReportAttachment(item, error), cluster)
            case Detach(item) | RemoveAttachmentFinalizer(item):
                failed = ReportAttachment(item, error, is_detachment=True)
                await self.attachment_failed(failed, cluster)
            case Resize(claim):
                self.failed(about_claim(claim), RESIZE_FAILED, error)
            case DeleteVolume(about):
                self.failed(about, DELETE_FAILED, error)
            case DeletePersistentVolume(volume):
                self.failed(about_volume(volume), DELETE_FAILED, error)
            case _:
                log.warning("Step failed", step=type(step).__name__, err=error)

    async def attachment_failed(self, step: ReportAttachment, cluster: Cluster) -> None:
        """Write the error to the attachment, unless it is there already.

        Raises an `ExceptionGroup` with the error and the `KubeError` if it cannot be written: the
        next pass, which writes it again, starts after the delay that the API server asks for.
        """
        item, message = step.attachment, _text(step.error)
        status = item.status
        before = status and (status.detach_error if step.is_detachment else status.attach_error)
        if before is not None and before.message == message:
            return
        patch = attach_error_patch(
            item, message, self._clock.now(), is_detachment=step.is_detachment
        )
        try:
            await cluster.attachments.patch(item, patch, "status")
        except KubeError as error:
            log.warning("Cannot write error", attachment=item.metadata.name, err=error)
            both = [step.error, error]
            raise ExceptionGroup("a failure could not be written to its attachment", both) from None
        log.info("Cannot attach or detach volume", node=node_of(item), err=step.error)


def _text(error: CloudError) -> str:
    return str(error) or type(error).__name__


def _is_last(volume: PersistentVolume) -> bool:
    """Returns whether its deletion is complete: the finalizer is removed in a second step."""
    return is_deleting(volume) or DELETE_FINALIZER not in finalizers(volume)
