"""The explanation of a claim, PersistentVolume or VolumeAttachment: its volume in the cloud."""

from collections.abc import Iterator
from dataclasses import replace

from pileus.app.context import ManagerContext
from pileus.app.explain.explanation import Explanation, Leader, Message, newest_first
from pileus.app.explain.node import Findings, troubles_now
from pileus.app.explain.service import cluster_id_of
from pileus.app.plan import Plan
from pileus.app.settings import ManagerSettings
from pileus.cloud.errors import CloudError, Unavailable
from pileus.cloud.volume import Volume
from pileus.controllers.volume.cluster import Cluster
from pileus.controllers.volume.descriptor import VOLUME
from pileus.controllers.volume.lines import ATTACH_FAILED, DETACH_FAILED, volume_text
from pileus.controllers.volume.objects import (
    PROVISIONERS,
    SELECTED_NODE,
    Rules,
    about_attachment,
    about_claim,
    annotation,
    bound_to,
    capacity,
    finalizers,
    is_attached,
    is_deleting,
    node_of,
    phase_of,
    policy_of,
    requested,
    source_volume,
    volume_name,
)
from pileus.controllers.volume.observation import Held
from pileus.controllers.volume.provision import WAIT_FOR_CONSUMER, is_wanted
from pileus.controllers.volume.source import source_of
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import ObjectReference, PersistentVolume, PersistentVolumeClaim
from pileus.kube.model.storage_v1 import StorageClass, VolumeAttachment
from pileus.volumes.parameters import claim_owner, driver_name, whole_gib
from pileus.volumes.persistent_volumes import CloudVolumes, about_volume

VolumeObject = PersistentVolumeClaim | PersistentVolume | VolumeAttachment
FAILED_CONDITIONS = frozenset({"ControllerResizeError", "NodeResizeError", "ModifyVolumeError"})
"""Conditions of a claim that say that something failed, if they are True."""
FILESYSTEM_PENDING = "FileSystemResizePending"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeObjects:
    """The objects of one volume in the cluster, as far as they exist."""

    about: ObjectReference
    """The object that is explained."""
    name: str
    """Name of the PersistentVolume, also if it does not exist (yet)."""
    claim: PersistentVolumeClaim | None
    pv: PersistentVolume | None
    attachments: tuple[Held, ...]
    """Of the volume's driver, oldest first."""
    storage_class: StorageClass | None
    driver: str
    """The driver that serves the volume; empty: none does."""

    @property
    def explained(self) -> VolumeObject:
        held = (each.attachment for each in self.attachments)
        every = (self.claim, self.pv, *held)
        return next(each for each in every if each and each.metadata.uid == self.about.uid)


@dataclass(frozen=True, slots=True)
class VolumeSide:
    """The volume in the cloud, and the tag by which it is found."""

    volume: Volume | CloudError | None
    cluster: str = ""


def about_object(thing: VolumeObject) -> ObjectReference:
    match thing:
        case PersistentVolumeClaim():
            return about_claim(thing)
        case PersistentVolume():
            return about_volume(thing)
        case VolumeAttachment():
            return about_attachment(thing)


def objects_of(cluster: Cluster, thing: VolumeObject) -> VolumeObjects:
    """Returns the objects that belong to one volume. Call it when the informers are synced."""
    match thing:
        case PersistentVolumeClaim():
            claim, name = thing, bound_to(thing) or volume_name(thing)
            pv = cluster.volumes.get(name)
        case PersistentVolume():
            name, pv, claim = thing.metadata.name, thing, cluster.claim_of(thing)
        case VolumeAttachment():
            name = source_volume(thing)
            pv = cluster.volumes.get(name) if name else None
            claim = cluster.claim_of(pv) if pv else None
    storage_class = cluster.class_of(claim) if claim else None
    driver = _driver(thing, claim, pv, storage_class)
    return VolumeObjects(
        about=about_object(thing),
        name=name,
        claim=claim,
        pv=pv,
        attachments=cluster.attachments_of(Rules(driver, ""), name),
        storage_class=storage_class,
        driver=driver,
    )


def _driver(
    thing: VolumeObject,
    claim: PersistentVolumeClaim | None,
    pv: PersistentVolume | None,
    storage_class: StorageClass | None,
) -> str:
    if isinstance(thing, VolumeAttachment):
        return thing.spec.attacher if thing.spec else ""
    if pv is not None:
        return (pv.spec and pv.spec.csi and pv.spec.csi.driver) or ""
    asked = (annotation(claim, name) for name in PROVISIONERS) if claim else ()
    return next(filter(None, asked), storage_class.provisioner if storage_class else "")


def is_served(context: ManagerContext, objects: VolumeObjects) -> bool:
    """Whether the driver is that of the context's cloud."""
    return objects.driver == driver_name(context.scope.name)


async def volume_side(context: ManagerContext, objects: VolumeObjects, problem: str) -> VolumeSide:
    """Returns the volume in the cloud. Reads the cloud once.

    `problem` says why the cloud cannot be asked, if it cannot.
    """
    volumes, names = context.cloud.volumes, context.cloud.volume_names
    id_ = CloudVolumes(context.scope.name, names).id_of(objects.pv) if objects.pv else None
    if volumes is None or not (id_ or is_served(context, objects)):
        return VolumeSide(None)
    if problem:
        return VolumeSide(Unavailable(problem))
    cluster = await cluster_id_of(context)
    try:
        if id_ is not None:
            return VolumeSide((await volumes.list_volumes(cluster, [id_])).get(id_), cluster)
        found = await volumes.list_volumes(cluster)
    except CloudError as error:
        return VolumeSide(error, cluster)
    owner = claim_owner(objects.claim.metadata.uid) if objects.claim else ""
    marked = (each for each in found.values() if each.owner and each.owner.uid == owner)
    return VolumeSide(next(marked, None), cluster)


def explain_volume(
    context: ManagerContext, objects: VolumeObjects, side: VolumeSide, around: Findings
) -> Explanation:
    served = is_served(context, objects)
    changes = tuple(change for _, change in around.plan.changes)
    return Explanation(
        about=objects.about,
        created=objects.explained.metadata.creation_timestamp,
        is_ours=served or bool(changes),
        desired=tuple(_desired(objects)) if served else (_unserved(objects),),
        actual=tuple(_actual(objects, side, around.plan)),
        changes=changes,
        waits=tuple(_waits(context, objects)) if served else (),
        messages=newest_first((
            *troubles_now(around.plan),
            *_errors(objects),
            *around.warnings,
        )),
        owner=tuple(_owner(context, objects, side)),
        leader=_leader(context, around.leader),
    )


def _leader(context: ManagerContext, found: Leader | None) -> Leader | None:
    """Returns the leader; without the volume controller, the manager's Lease does not matter."""
    if found is None or is_controlled(context):
        return found
    return replace(found, problem="CSI sidecars act on volumes here, with Leases of their own")


def _unserved(objects: VolumeObjects) -> str:
    if objects.driver:
        return f"a volume of another driver: {objects.driver}"
    return "no volume of a driver: the claim has no StorageClass, or the volume is not CSI's"


def _desired(objects: VolumeObjects) -> Iterator[str]:
    claim, pv, held = objects.claim, objects.pv, objects.attachments
    if claim is not None and not is_deleting(claim):
        name = (claim.spec and claim.spec.storage_class_name) or "none"
        missing = "" if objects.storage_class else ", which does not exist"
        whose = f"for claim {_full_name(claim)}, class {name}{missing}"
        yield f"volume of {_size(claim)} {whose}{_content(claim)}"
    elif pv is not None:
        whose = "its claim is being deleted" if claim else "no claim uses it"
        kept = "the volume is deleted" if policy_of(pv) == "Delete" else "the volume is kept"
        yield f"none: {whose}; with reclaim policy {policy_of(pv)}, {kept}"
    else:
        yield "none: there is no claim, or it is being deleted"
    wanted = [node_of(each.attachment) for each in held if not is_deleting(each.attachment)]
    if wanted:
        yield f"attached to {', '.join(wanted)}"


def _content(claim: PersistentVolumeClaim) -> str:
    source = source_of(claim)
    return f", with the content of {source.kind} {source.name}" if source else ""


def _size(claim: PersistentVolumeClaim) -> str:
    try:
        return f"{whole_gib(requested(claim))} GiB"
    except ValueError:
        return "an unreadable size"


def _full_name(claim: PersistentVolumeClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def _actual(objects: VolumeObjects, side: VolumeSide, plan: Plan) -> Iterator[str]:
    if objects.claim is not None:
        yield f"claim: {phase_of(objects.claim) or 'Pending'}{_shown(objects.claim)}"
    if objects.pv is not None:
        size = _shown(objects.pv)
        yield f"PersistentVolume {objects.name}: {phase_of(objects.pv) or 'Pending'}{size}"
    else:
        yield "no PersistentVolume"
    match side.volume:
        case CloudError() as error:
            is_reported = any(str(error) in trouble.message for _, trouble in plan.troubles)
            yield f"volume unknown: {'see messages' if is_reported else error}"
        case None:
            yield "no volume in the cloud"
        case volume:
            yield volume_text(volume)
    for each in objects.attachments:
        yield f"VolumeAttachment {each.attachment.metadata.name}: {_attachment(each)}"


def _shown(item: PersistentVolume | PersistentVolumeClaim) -> str:
    try:
        size = capacity(item)
    except ValueError:
        return ", size unreadable"
    return f", {whole_gib(size)} GiB" if size else ""


def _attachment(held: Held) -> str:
    state = "attached" if is_attached(held.attachment) else "not attached"
    leaving = ", being detached" if is_deleting(held.attachment) else ""
    missing = "" if held.node else ", a node that does not exist"
    return f"{node_of(held.attachment)}{missing}, {state}{leaving}"


def _waits(context: ManagerContext, objects: VolumeObjects) -> Iterator[str]:
    """Yields what the object waits for, and no plan of this manager shows."""
    claim = objects.claim
    thing = objects.explained
    if is_deleting(thing):
        named = ", ".join(finalizers(thing)) or "none"
        yield f"its deletion, which has begun (finalizers: {named})"
    if claim is not None:
        yield from _waits_of_claim(objects, claim)
    if is_controlled(context):
        return
    rules = Rules(objects.driver, "")
    if claim is not None and not objects.pv and is_wanted(rules, claim, objects.storage_class):
        yield "external-provisioner, which creates the volume"
    if any(is_attached(each.attachment) is is_deleting(each.attachment) for each in _held(objects)):
        yield "external-attacher, which attaches and detaches the volume"
    if _is_growing(objects):
        yield "external-resizer, which grows the volume"


def _held(objects: VolumeObjects) -> tuple[Held, ...]:
    """Returns the attachments that count: of an attachment, only itself."""
    uid = objects.about.uid
    own = tuple(each for each in objects.attachments if each.attachment.metadata.uid == uid)
    return own or objects.attachments


def _waits_of_claim(objects: VolumeObjects, claim: PersistentVolumeClaim) -> Iterator[str]:
    mode = objects.storage_class.volume_binding_mode if objects.storage_class else ""
    is_free = not bound_to(claim) and not is_deleting(claim)
    selected = annotation(claim, SELECTED_NODE)
    if is_free and mode == WAIT_FOR_CONSUMER and not selected:
        yield f"a pod that uses the claim: its class binds with {WAIT_FOR_CONSUMER}"
    conditions = (claim.status and claim.status.conditions) or ()
    if any(each.type == FILESYSTEM_PENDING and each.status == "True" for each in conditions):
        yield "the kubelet, which grows the filesystem on the node of a pod"


def _is_growing(objects: VolumeObjects) -> bool:
    if objects.claim is None or objects.pv is None or is_deleting(objects.claim):
        return False
    try:
        return requested(objects.claim) > capacity(objects.pv)
    except ValueError:
        return False


def is_controlled(context: ManagerContext) -> bool:
    """Whether the volume controller is enabled: otherwise CSI sidecars do its work."""
    return context.controllers.is_running(VOLUME, context.config[ManagerSettings].controllers)


def _errors(objects: VolumeObjects) -> Iterator[Message]:
    """Yields the errors in the status of the claim and of the attachments."""
    for each in _held(objects):
        status = each.attachment.status
        if status is None:
            continue
        leaving = is_deleting(each.attachment)
        error = status.detach_error if leaving else status.attach_error
        if error is not None and (leaving or not status.attached):
            yield Message(
                source=f"VolumeAttachment {each.attachment.metadata.name}",
                reason=DETACH_FAILED if leaving else ATTACH_FAILED,
                message=error.message,
                at=error.time,
                is_now=True,
            )
    claim = objects.claim
    for condition in (claim and claim.status and claim.status.conditions) or ():
        if condition.type in FAILED_CONDITIONS and condition.status == "True":
            yield Message(
                source=f"condition {condition.type} True",
                reason=condition.type,
                message=condition.message,
                at=condition.last_transition_time,
                is_now=True,
            )


def _owner(context: ManagerContext, objects: VolumeObjects, side: VolumeSide) -> Iterator[str]:
    if not is_served(context, objects):
        yield f"driver: {objects.driver or 'none'} (not of cloud {context.scope.name})"
        return
    by = "the volume controller" if is_controlled(context) else "CSI sidecars"
    yield f"driver: {objects.driver}, with {by}"
    if objects.pv is not None:
        yield f"reclaim policy: {policy_of(objects.pv)}"
    if side.cluster:
        yield f"tag in the cloud: cluster {side.cluster}, owner {_mark(objects, side)}"


def _mark(objects: VolumeObjects, side: VolumeSide) -> str:
    """Returns the owner in the tag of the volume, or in that of the one that will be created."""
    if isinstance(side.volume, Volume):
        return side.volume.owner.uid if side.volume.owner else "none"
    return claim_owner(objects.claim.metadata.uid) if objects.claim else "none"
