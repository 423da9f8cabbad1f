"""The steps for one volume: its claim, its PersistentVolume and its attachments. Pure.

    claim without a PersistentVolume    create (provision.py)
    attachments                         detach those that are deleted, then attach one (attach.py)
    claim that grew                     resize the volume, write the new size, let the kubelet go on
    released PersistentVolume           delete the volume, after fresh reads, then the object

All work on one volume is in one plan, so that its operations never overlap.
"""

from collections.abc import Iterator

from pileus.cloud.errors import Conflict, Misconfigured, NotFound
from pileus.cloud.volume import VolumeId, VolumeState
from pileus.controllers.volume.attach import (
    BUSY,
    missing_text,
    plan_attachments,
    plan_strays,
)
from pileus.controllers.volume.objects import (
    BOUND,
    CLAIM_FINALIZER,
    DELETE,
    DELETE_FINALIZER,
    RELEASED,
    Rules,
    about_claim,
    capacity,
    claim_ref,
    finalizers,
    is_block,
    is_deleting,
    is_for,
    phase_of,
    policy_of,
    requested,
)
from pileus.controllers.volume.observation import Observation
from pileus.controllers.volume.provision import plan_provision
from pileus.controllers.volume.steps import (
    CheckVolume,
    ConfirmRelease,
    DeletePersistentVolume,
    DeleteVolume,
    FindTwins,
    Plan,
    PublishCapacity,
    PublishResize,
    RemoveClaimFinalizer,
    Report,
    Resize,
    SetFinalizer,
    Step,
    Wait,
    Warn,
)
from pileus.kube.model.core_v1 import PersistentVolume, PersistentVolumeClaim
from pileus.volumes.parameters import claim_owner, whole_gib
from pileus.volumes.persistent_volumes import about_volume

MISSING = "VolumeMissing"
SHARED = "VolumeShared"
RESIZE_FAILED = "VolumeResizeFailed"
DELETE_FAILED = "VolumeFailedDelete"
NODE_RESIZE = frozenset({"NodeResizePending", "NodeResizeInProgress", "NodeResizeInfeasible"})
"""States of a claim in which the kubelet grows the filesystem, or has failed to."""
FILESYSTEM_PENDING = "FileSystemResizePending"
"""The condition of a claim whose volume is larger than its filesystem."""
TWIN = "it was created twice for the claim of a released PersistentVolume, and never used"
WHY_DELETED = "its PersistentVolume is released, with policy Delete"


def plan(rules: Rules, seen: Observation) -> Plan:
    """Returns the steps for the volume. Empty: cluster and cloud match."""
    if seen.pv is None:
        return (*plan_attachments(rules, seen), *plan_provision(rules, seen))
    if not rules.is_ours(seen.pv):
        return ()
    return (
        *_claim(seen),
        *plan_attachments(rules, seen),
        *plan_strays(seen, seen.pv),
        *_resize(seen, seen.pv),
        *_finalizers(rules, seen, seen.pv),
        *_reclaim(rules, seen, seen.pv),
        *_missing(seen, seen.pv),
    )


def _claim(seen: Observation) -> Iterator[Step]:
    claim = seen.claim
    if claim is not None and CLAIM_FINALIZER in finalizers(claim):
        yield RemoveClaimFinalizer(claim)


def _resize(seen: Observation, pv: PersistentVolume) -> Iterator[Step]:
    claim, id_ = seen.claim, seen.volume_id
    if claim is None or id_ is None or not _may_grow(pv, claim):
        return
    try:
        wanted, has, shown = requested(claim), capacity(pv), capacity(claim)
    except ValueError as error:
        yield Report(about_claim(claim), RESIZE_FAILED, Misconfigured(f"unreadable size: {error}"))
        return
    if wanted > has:
        yield from _grow(seen, pv, claim, id_)
    elif shown < wanted:
        yield from _publish_growth(claim, pv)


def _may_grow(pv: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    if is_deleting(pv) or is_deleting(claim) or phase_of(claim) != BOUND:
        return False
    return is_for(pv, claim)


def _grow(
    seen: Observation, pv: PersistentVolume, claim: PersistentVolumeClaim, id_: VolumeId
) -> Iterator[Step]:
    size, volume = whole_gib(requested(claim)), seen.volume
    if not seen.is_checked:
        yield CheckVolume(id_)
    elif volume is None:
        yield Report(about_claim(claim), RESIZE_FAILED, NotFound(missing_text(id_)))
    elif volume.size_gib >= size:
        yield PublishCapacity(pv, volume.size_gib)
        yield from _publish_growth(claim, pv, f"{volume.size_gib}Gi")
    elif volume.state in BUSY:
        yield Wait(f"volume {id_} is {volume.state}")
    else:
        yield Resize(claim, id_, size)
        yield PublishCapacity(pv, size)
        yield from _publish_growth(claim, pv, f"{size}Gi")


def _publish_growth(
    claim: PersistentVolumeClaim, pv: PersistentVolume, size: str = ""
) -> Iterator[Step]:
    if not size and _waits_for_node(claim):
        return
    shown = ((pv.spec and pv.spec.capacity) or {}).get("storage", "")
    yield PublishResize(claim, size or shown, needs_node=not is_block(claim))


def _waits_for_node(claim: PersistentVolumeClaim) -> bool:
    """Returns whether the claim says already that only its filesystem is left to grow.

    API servers before 1.32 store the condition, but no `allocatedResourceStatuses`.
    """
    status = claim.status
    if status is None:
        return False
    if status.allocated_resource_statuses:
        return status.allocated_resource_statuses.get("storage") in NODE_RESIZE
    conditions = status.conditions or ()
    return any(one.type == FILESYSTEM_PENDING and one.status == "True" for one in conditions)


def _finalizers(rules: Rules, seen: Observation, pv: PersistentVolume) -> Iterator[Step]:
    """Yields the change of finalizers that does not depend on a deletion."""
    has = finalizers(pv)
    if not rules.is_provisioned(pv):
        return
    deletes = policy_of(pv) == DELETE
    if deletes and DELETE_FINALIZER not in has and not is_deleting(pv):
        yield SetFinalizer(pv, DELETE_FINALIZER, adds=True)
    if not deletes and DELETE_FINALIZER in has:
        yield SetFinalizer(pv, DELETE_FINALIZER, adds=False)
    if rules.attach_finalizer in has and not seen.attachments:
        # external-attacher adds it, and this controller takes over from it.
        yield SetFinalizer(pv, rules.attach_finalizer, adds=False)


def _reclaim(rules: Rules, seen: Observation, pv: PersistentVolume) -> Iterator[Step]:
    """Yields the steps that delete a released volume: first all that has to be known."""
    id_, volume = seen.volume_id, seen.volume
    if id_ is None or not _is_deletable(rules, pv):
        return
    if seen.attachments:
        yield Wait("the volume is still attached")
    elif seen.shared_with or seen.copied_to:
        yield _kept(seen, pv, id_)
    elif not seen.is_checked:
        yield CheckVolume(id_)
    elif seen.released is None:
        yield ConfirmRelease()
    elif reason := _not_released(seen, pv):
        yield Report(about_volume(pv), DELETE_FAILED, Conflict(reason))
    elif volume and (volume.attachments or volume.state in {*BUSY, VolumeState.DELETING}):
        yield Wait(f"volume {id_} is {volume.state}")
    else:
        yield from _deleted(seen, pv, id_)


def _is_deletable(rules: Rules, pv: PersistentVolume) -> bool:
    return is_released(pv) and rules.is_provisioned(pv) and policy_of(pv) == DELETE


def _deleted(seen: Observation, pv: PersistentVolume, id_: VolumeId) -> Iterator[Step]:
    """Yields the deletion of the volume, and of others that were created for the same claim.

    A creation whose answer was lost may take effect after it was repeated. The claim is deleted,
    and only `id_` was ever given to its pods. A twin that has attachments is kept.
    """
    reference, twins = claim_ref(pv), seen.twins
    owner = claim_owner(reference.uid) if reference and reference.uid else ""
    if twins is None and owner == pv.metadata.name:
        yield FindTwins(owner)
        return
    for each in twins or ():
        if each.attachments or each.state is VolumeState.DELETING:
            continue
        if each.state in BUSY:
            yield Wait(f"volume {each.id}, created twice for the claim, is {each.state}")
            return
        yield DeleteVolume(about_volume(pv), each.id, TWIN)
    if seen.volume is not None:
        yield DeleteVolume(about_volume(pv), id_, WHY_DELETED)
    if DELETE_FINALIZER in finalizers(pv) or not is_deleting(pv):
        yield DeletePersistentVolume(pv, id_)


def is_released(pv: PersistentVolume) -> bool:
    """Returns whether the PersistentVolume seems to be released; fresh reads have to confirm it."""
    return phase_of(pv) == RELEASED or (is_deleting(pv) and phase_of(pv) != BOUND)


def _not_released(seen: Observation, pv: PersistentVolume) -> str:
    """Returns what the fresh reads say against a deletion; empty: the volume is released."""
    fresh = seen.released.volume if seen.released else None
    if fresh is None:
        return "the PersistentVolume does not exist any more"
    if fresh.metadata.uid != pv.metadata.uid:
        return "another PersistentVolume has its name"
    if not is_released(fresh) or policy_of(fresh) != DELETE:
        return f"it is {phase_of(fresh)} with policy {policy_of(fresh)}"
    before, after = claim_ref(pv), claim_ref(fresh)
    if before is None or after is None or before.uid != after.uid:
        return (
            "it does not name the claim that released it, so its data may be needed. To keep the "
            f"volume and delete the PersistentVolume: kubectl patch pv {pv.metadata.name} -p "
            '\'{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}\''
        )
    claim = seen.released.claim if seen.released else None
    if claim is not None:
        return f"its claim {claim.metadata.namespace}/{claim.metadata.name} exists"
    return ""


def _missing(seen: Observation, pv: PersistentVolume) -> Iterator[Step]:
    """Yields warnings about a volume that was deleted by others."""
    if not seen.is_due or seen.volume_id is None or is_released(pv):
        return
    if not seen.is_checked:
        yield CheckVolume(seen.volume_id)
    elif seen.volume is None:
        yield Warn(about_volume(pv), MISSING, missing_text(seen.volume_id))
        if seen.claim is not None:
            yield Warn(about_claim(seen.claim), MISSING, missing_text(seen.volume_id))


def _kept(seen: Observation, pv: PersistentVolume, id_: VolumeId) -> Step:
    """Returns the report on a released volume that is needed by others."""
    if seen.shared_with:
        return Warn(about_volume(pv), SHARED, _shared_text(id_, seen))
    return Report(about_volume(pv), DELETE_FAILED, Conflict(_copied_text(id_, seen, pv)))


def _shared_text(id_: VolumeId, seen: Observation) -> str:
    return (
        f"volume {id_} is kept: PersistentVolume {', '.join(seen.shared_with)} has it too. Delete "
        "the one that is not needed with reclaim policy Retain"
    )


def _copied_text(id_: VolumeId, seen: Observation, pv: PersistentVolume) -> str:
    reference = claim_ref(pv)
    namespace = reference.namespace if reference else ""
    names = " ".join(seen.copied_to)
    return (
        f"volume {id_} is being copied to the volume of PersistentVolumeClaim {names} in namespace "
        f"{namespace}, and deleted after that. To delete it without the copy: kubectl delete pvc "
        f"-n {namespace} {names}"
    )
