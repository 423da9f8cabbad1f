"""The steps for the attachments of one volume. Pure.

A volume is attached to one node at a time. Attachments that are being deleted are detached first;
then the oldest other one gets the volume. A volume that the kubelet has not unmounted is detached
only if the cloud says that the machine is off.
"""

from collections.abc import Iterator

from pileus.cloud.errors import CloudError, Conflict, NotFound
from pileus.cloud.model import Absent, Instance, InstanceId, InstanceState
from pileus.cloud.volume import Volume, VolumeId, VolumeState
from pileus.controllers.volume.objects import (
    NODE_ID,
    OUT_OF_SERVICE,
    VOLUME_ID,
    Rules,
    annotation,
    finalizers,
    is_attached,
    is_deleting,
    node_of,
)
from pileus.controllers.volume.observation import Held, Observation
from pileus.controllers.volume.steps import (
    Attach,
    CheckInstances,
    CheckVolume,
    ConfirmStray,
    ConfirmUnmounted,
    Detach,
    DetachStray,
    Plan,
    PrepareAttachment,
    PublishAttached,
    RemoveAttachmentFinalizer,
    ReportAttachment,
    Step,
    Wait,
    Warn,
)
from pileus.kube.model.core_v1 import PersistentVolume
from pileus.objects.nodes import is_ready, taints_of
from pileus.volumes.operations import VolumeFailed
from pileus.volumes.persistent_volumes import about_volume

BUSY = frozenset({
    VolumeState.CREATING,
    VolumeState.ATTACHING,
    VolumeState.DETACHING,
    VolumeState.RESIZING,
})
"""States in which the caller waits."""
ELSEWHERE = "VolumeAttachedElsewhere"
GONE_AFTER = 60.0
"""Seconds for which the cloud has to answer that a machine does not exist, before it is believed.
A machine that was deleted has a node that is not ready, and is soon deleted too."""


def plan_attachments(rules: Rules, seen: Observation) -> Plan:
    """Returns the steps that bring the attachments of the volume into their desired state."""
    leaving = [each for each in seen.attachments if _is_leaving(rules, each)]
    staying = [each for each in seen.attachments if not is_deleting(each.attachment)]
    wants = [each for each in staying if not _is_settled(each, seen.volume)]
    if not leaving and not wants and not (seen.is_due and staying):
        return ()
    id_ = seen.volume_id
    if id_ is None:
        return tuple(_without_volume(leaving, wants))
    if not seen.is_checked:
        return (CheckVolume(id_),)
    if not all(each.is_fresh for each in leaving):
        return (ConfirmUnmounted(),)
    if any(each.node and each.answer is None for each in (*leaving, *wants)):
        return (CheckInstances(),)
    return (
        *(step for each in leaving for step in _detached(rules, seen, id_, each)),
        *_attached(rules, seen, id_, staying, wants),
    )


def plan_strays(seen: Observation, pv: PersistentVolume) -> Iterator[Step]:
    """Yields detachments from machines for which there is no attachment.

    The cloud may perform a request long after it answered with an error: the volume is then
    attached for an attachment that does not exist any more. The periodic check finds it. Fresh
    lists have to confirm that there is no attachment, and that no node reports the volume as
    mounted: the cache may be behind. A machine that is no node reports nothing, and keeps it.
    """
    volume = seen.volume
    if not seen.is_due or volume is None or seen.is_in_use or volume.state in BUSY:
        return
    known = {each.instance for each in seen.attachments}
    strays = [one.instance for one in volume.attachments if one.instance not in known]
    if not strays or None in known:
        return
    if seen.holders is None:
        yield ConfirmStray()
        return
    for instance in strays:
        if instance in seen.holders or "" in seen.holders:
            continue
        if instance in seen.machines:
            yield DetachStray(pv, volume.id, instance)
        else:
            yield Warn(about_volume(pv), ELSEWHERE, _elsewhere_text(volume.id, instance))


def _elsewhere_text(id_: VolumeId, instance: InstanceId) -> str:
    return (
        f"volume {id_} is attached to machine {instance}, which is no node of this cluster. It is "
        "not detached: the machine may have mounted it. Unmount it there, and detach it in the "
        "cloud"
    )


def missing_text(id_: VolumeId) -> str:
    """Returns the message about a volume that was deleted by others."""
    return (
        f"volume {id_} does not exist in the cloud, or is not tagged with this cluster. Nothing is "
        "deleted or created instead. Restore the volume, or delete the claim"
    )


def _is_leaving(rules: Rules, held: Held) -> bool:
    item = held.attachment
    return is_deleting(item) and rules.attach_finalizer in finalizers(item)


def _is_settled(held: Held, volume: Volume | None) -> bool:
    """Returns whether the status says that the volume is attached, and the cloud does not deny."""
    if not is_attached(held.attachment):
        return False
    return volume is None or held.instance in {one.instance for one in volume.attachments}


def _without_volume(leaving: list[Held], wants: list[Held]) -> Iterator[Step]:
    """Yields steps for attachments of a PersistentVolume that does not exist.

    Without a recorded volume, none was ever attached for the attachment.
    """
    for each in leaving:
        yield RemoveAttachmentFinalizer(each.attachment, None, None)
    for each in wants:
        error = NotFound("the PersistentVolume does not exist or has no volume of this driver")
        yield ReportAttachment(each.attachment, error)


def _detached(rules: Rules, seen: Observation, id_: VolumeId, held: Held) -> Iterator[Step]:
    """Yields the steps for an attachment that is being deleted.

    Also without an attachment in the cloud's list a detachment is requested: a list may be old. If
    the node reports the volume as mounted, it is not: the kubelet waits for a new attachment of a
    pod that came back, and that can only be made after this one is deleted.
    """
    item, volume = held.attachment, seen.volume
    holders = {one.instance for one in volume.attachments} if volume else frozenset[str]()
    danger = _danger(rules, id_, held)
    if danger and volume is not None and held.instance not in holders:
        yield RemoveAttachmentFinalizer(item, None, None)
    elif danger:
        yield ReportAttachment(item, Conflict(danger), is_detachment=True)
    elif held.instance is None and holders:
        error = NotFound(
            f"node {node_of(item)} does not exist, and the attachment does not name its machine. "
            f"Fix: detach volume {id_} in the cloud"
        )
        yield ReportAttachment(item, error, is_detachment=True)
    elif held.instance is None or held.instance not in holders:
        yield RemoveAttachmentFinalizer(item, id_, held.instance)
    elif volume is not None and volume.state in BUSY:
        yield Wait(f"volume {id_} is {volume.state}")
    else:
        forced = held.node is not None and rules.is_in_use(held.node, id_)
        yield Detach(item, id_, held.instance, is_forced=forced)
        yield RemoveAttachmentFinalizer(item, id_, held.instance)


def _danger(rules: Rules, id_: VolumeId, held: Held) -> str:
    """Returns why the machine may still write to the volume; empty: it does not.

    One answer without the machine proves nothing: a cloud may answer with an empty list.
    """
    node = held.node
    if node is None or not rules.is_in_use(node, id_):
        return ""
    name = node.metadata.name
    wait = f"wait until the pods on {name} end"
    match held.answer:
        case Instance(state=InstanceState.STOPPED):
            return ""
        case Absent() if held.gone_for >= GONE_AFTER and not is_ready(node):
            return ""
        case Absent() if is_ready(node):
            machine, fix = "the node is ready, although its machine is missing in the cloud", ""
        case Absent():
            machine = f"its machine has been missing in the cloud for {held.gone_for:.0f} s only"
            fix = f"It counts as deleted after {GONE_AFTER:.0f} s"
        case Instance(state=state):
            machine, fix = f"its machine is {state}", "Stop the machine"
        case error:
            machine, fix = f"the state of its machine is unknown: {error}", "Stop the machine"
    if not any(each.key == OUT_OF_SERVICE for each in taints_of(node)):
        fix = f"{fix}, or {wait}" if fix else wait.capitalize()
    return (
        f"node {name} has not unmounted the volume, and {machine}. It is not detached by force: "
        f"two machines could write to it. {fix}"
    ).rstrip()


def _attached(
    rules: Rules, seen: Observation, id_: VolumeId, staying: list[Held], wants: list[Held]
) -> Iterator[Step]:
    """Yields the steps of the attachment that gets the volume, and errors for the others."""
    problems = [_problem(seen, id_, each) for each in wants]
    able = [each for each, problem in zip(wants, problems, strict=True) if problem is None]
    settled = [each for each in staying if each not in wants]
    first = next(iter((*settled, *able)), None)
    for each, problem in zip(wants, problems, strict=True):
        if problem is not None:
            yield ReportAttachment(each.attachment, problem)
        elif first is not None and each is not first:
            name = node_of(first.attachment)
            error = Conflict(f"volume {id_} belongs to node {name} until that attachment ends")
            yield ReportAttachment(each.attachment, error)
        elif seen.volume is not None:
            yield from _attach(rules, seen, seen.volume, each)


def _problem(seen: Observation, id_: VolumeId, held: Held) -> CloudError | None:
    """Returns why the volume cannot be attached now, before the cloud is asked to."""
    if seen.pv is None or is_deleting(seen.pv):
        return Conflict("the PersistentVolume is being deleted")
    if seen.volume is None:
        return NotFound(missing_text(id_))
    if seen.volume.state is VolumeState.ERROR:
        return VolumeFailed(f"the cloud reports volume {id_} as failed: {seen.volume.reason}")
    if seen.volume.state is VolumeState.DELETING:
        return Conflict(f"volume {id_} is being deleted")
    return _problem_of_node(held)


def _problem_of_node(held: Held) -> CloudError | None:
    name = node_of(held.attachment)
    match held.answer:
        case Instance():
            return None
        case Absent(evidence):
            return NotFound(f"the cloud has no machine for node {name}: {evidence}")
        case None:
            return NotFound(f"node {name} does not exist")
        case error:
            return error


def _attach(rules: Rules, seen: Observation, volume: Volume, held: Held) -> Iterator[Step]:
    item, instance = held.attachment, held.instance
    if instance is None:
        return
    if not _is_prepared(rules, held, volume.id):
        yield PrepareAttachment(item, volume.id, instance)
    mine = next((one for one in volume.attachments if one.instance == instance), None)
    is_moving = any(_is_leaving(rules, each) for each in seen.attachments)
    is_changing = volume.state in {VolumeState.ATTACHING, VolumeState.DETACHING}
    if mine is not None and not is_changing and seen.is_confirmed:
        yield PublishAttached(item, mine.device)
    elif mine is not None and not is_changing:
        yield Attach(item, volume.id, instance)
        yield PublishAttached(item, mine.device)
    elif volume.state in BUSY or (volume.attachments and is_moving):
        yield Wait(f"volume {volume.id} is {volume.state}")
    elif volume.attachments:
        others = ", ".join(one.instance for one in volume.attachments)
        yield ReportAttachment(item, Conflict(f"volume {volume.id} is attached to {others}"))
    else:
        yield Attach(item, volume.id, instance)
        yield PublishAttached(item, "")


def _is_prepared(rules: Rules, held: Held, id_: VolumeId) -> bool:
    item = held.attachment
    recorded = (annotation(item, NODE_ID), annotation(item, VOLUME_ID))
    return rules.attach_finalizer in finalizers(item) and recorded == (held.instance, id_)
