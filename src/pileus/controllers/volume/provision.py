"""The volume and the PersistentVolume of a claim. Pure.

    claim ──▶ finalizer ──▶ volume with the claim's mark ──▶ PersistentVolume ──▶ no finalizer

The finalizer keeps the claim until its PersistentVolume exists. A claim that is deleted before that
has a volume that no pod could ever use: it is found by its mark, and deleted. A claim that names a
snapshot or another claim gets a copy of it (source.py), and never an empty volume.
"""

from collections.abc import Mapping

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import CloudError, Misconfigured, Throttled, Unavailable
from pileus.cloud.volume import (
    REGION_LABEL,
    ZONE_LABEL,
    Volume,
    VolumeSpec,
    VolumeState,
)
from pileus.controllers.volume.objects import (
    BOUND,
    CLAIM_FINALIZER,
    DELETE,
    DELETE_FINALIZER,
    LOST,
    PROVISIONED_BY,
    SELECTED_NODE,
    Rules,
    about_claim,
    annotation,
    bound_to,
    finalizers,
    is_block,
    is_deleting,
    limit_of,
    phase_of,
    requested,
    volume_name,
)
from pileus.controllers.volume.observation import Observation
from pileus.controllers.volume.source import (
    Kind,
    check_reference,
    fitting,
    is_copy,
    kind_of,
    populator_text,
    source_of,
)
from pileus.controllers.volume.steps import (
    AddClaimFinalizer,
    ClearSelectedNode,
    ConfirmRelease,
    CreatePersistentVolume,
    CreateVolume,
    DeleteVolume,
    FindByMark,
    FindCopy,
    Plan,
    ReadSource,
    RemoveClaimFinalizer,
    Report,
    Wait,
    Warn,
)
from pileus.dataclass import replace
from pileus.fix import quoted
from pileus.kube.model.core_v1 import (
    CsiSource,
    NodeSelector,
    NodeSelectorTerm,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    TypedReference,
    VolumeNodeAffinity,
)
from pileus.kube.model.meta import ObjectMeta
from pileus.kube.model.storage_v1 import StorageClass
from pileus.volumes.operations import VolumeFailed
from pileus.volumes.parameters import GIB, claim_owner, read_parameters, whole_gib
from pileus.volumes.persistent_volumes import requirements_of

FAILED = "ProvisioningFailed"
WAIT_FOR_CONSUMER = "WaitForFirstConsumer"
SINGLE_NODE = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})
SECOND_LOOK = 30.0
"""Seconds between the first and the last search that find no volume with the mark of a claim."""
ABANDONED = "the claim was deleted, or got another volume, before it had a PersistentVolume"


def plan_provision(rules: Rules, seen: Observation) -> Plan:
    """Returns the steps for a claim that has no PersistentVolume with its name."""
    claim = seen.claim
    if claim is None:
        return ()
    is_kept = CLAIM_FINALIZER in finalizers(claim)
    if is_wanted(rules, claim, seen.storage_class):
        return _create(rules, seen, claim, is_kept=is_kept)
    if not is_kept or bound_to(claim) == seen.name:
        # Bound to a PersistentVolume that is missing from the cache, or was deleted by force.
        return (RemoveClaimFinalizer(claim),) if is_kept and is_deleting(claim) else ()
    if not is_deleting(claim) and not bound_to(claim):
        return ()  # it waits for a node; a volume that was created for it is used then
    return _abandon(seen, claim)


def is_wanted(
    rules: Rules, claim: PersistentVolumeClaim, storage_class: StorageClass | None
) -> bool:
    """Returns whether the claim is to get a volume now.

    The annotation that asks for it can be written by the creator of the claim: the class decides.
    """
    if is_deleting(claim) or bound_to(claim) or phase_of(claim) in {BOUND, LOST}:
        return False
    if not rules.is_asked(claim):
        return False
    if storage_class is not None and storage_class.provisioner != rules.driver:
        return False
    waits = storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_CONSUMER
    return not waits or bool(annotation(claim, SELECTED_NODE))


def _create(
    rules: Rules, seen: Observation, claim: PersistentVolumeClaim, *, is_kept: bool
) -> Plan:
    node = annotation(claim, SELECTED_NODE)
    if node and seen.selected is None:
        return (ClearSelectedNode(claim, node),)
    try:
        spec = desired_volume(rules, seen, claim)
    except CloudError as error:
        return (Report(about_claim(claim), FAILED, error),)
    first = () if is_kept else (AddClaimFinalizer(claim),)
    source = source_of(claim)
    if source is not None and (seen.volume is None or seen.is_checked):
        return _copy(rules, seen, claim, spec, source)
    if seen.volume is not None:
        return (*first, *_published(rules, seen, claim, seen.volume))
    return _new(rules, seen, claim, spec)


def _new(rules: Rules, seen: Observation, claim: PersistentVolumeClaim, spec: VolumeSpec) -> Plan:
    """Returns the steps that create the volume, or find the one that exists, by its mark."""
    if reason := _stale(seen, claim):
        return (Wait(reason),)
    first = () if CLAIM_FINALIZER in finalizers(claim) else (AddClaimFinalizer(claim),)
    confirm = (ConfirmRelease(),) if seen.released is None else ()
    create = CreateVolume(claim, spec)
    return (*first, *confirm, create, *_published(rules, seen, claim, None))


def _copy(
    rules: Rules,
    seen: Observation,
    claim: PersistentVolumeClaim,
    spec: VolumeSpec,
    source: TypedReference,
) -> Plan:
    """Returns the steps for a claim that names a source: a copy of it, or no volume at all.

    With the finalizer, a copy may exist already: it is searched first, so that it is found although
    its source was deleted meanwhile, and so that a long copy is waited for by one request.
    """
    if kind_of(source) is Kind.OTHER:
        return (Warn(about_claim(claim), FAILED, populator_text(source)),)
    if CLAIM_FINALIZER in finalizers(claim) and not seen.is_checked:
        return (FindCopy(spec.owner.uid),)
    if seen.volume is not None and is_copy(seen.volume, claim, spec.size_gib):
        return _found_copy(rules, seen, claim, seen.volume)
    if seen.origin is None:
        return (ReadSource(claim),)
    origin = fitting(claim, spec.size_gib, seen.origin)
    if isinstance(origin, CloudError):
        is_own = not isinstance(origin, Unavailable | Throttled)
        return (Report(about_claim(claim), FAILED, origin, by_text=is_own),)
    return _new(rules, seen, claim, replace(spec, source=origin.source))


def _found_copy(
    rules: Rules, seen: Observation, claim: PersistentVolumeClaim, volume: Volume
) -> Plan:
    """Returns the steps after a copy was found that an earlier pass, or process, has created."""
    if volume.state is not VolumeState.CREATING and seen.released is None:
        return (ConfirmRelease(),)
    if reason := _stale(seen, claim):
        return (Wait(reason),)
    return _published(rules, seen, claim, volume)


def _stale(seen: Observation, claim: PersistentVolumeClaim) -> str:
    """Returns what the fresh reads know, and the cache does not; empty also before they are made.

    Without the volume in the cloud, because others deleted it, a cache that lacks the
    PersistentVolume would give the claim a second one.
    """
    fresh = seen.released
    if fresh is None:
        return ""
    if fresh.volume is not None:
        return "the PersistentVolume exists, and the cache does not have it yet"
    if fresh.claim is None or fresh.claim.metadata.uid != claim.metadata.uid:
        return "the claim does not exist any more, and the cache still has it"
    if is_deleting(fresh.claim) and not is_deleting(claim):
        return "the claim is being deleted, and the cache does not know it yet"
    return ""


def _published(
    rules: Rules, seen: Observation, claim: PersistentVolumeClaim, volume: Volume | None
) -> Plan:
    """Returns the steps after the volume is created; None: as far as they are known before."""
    if volume is not None and volume.state is VolumeState.CREATING:
        return (Wait(f"the cloud is creating volume {volume.id}"),)
    if volume is not None and volume.state is VolumeState.ERROR:
        why = volume.reason or "no reason is given"
        error = VolumeFailed(
            f"the cloud reports volume {volume.id} as failed: {why}. It is kept. To try again with "
            f"a new volume, delete the claim: kubectl delete pvc -n {claim.metadata.namespace} "
            f"{claim.metadata.name}"
        )
        return (Report(about_claim(claim), FAILED, error),)
    if seen.storage_class is None:
        return ()
    body = persistent_volume(rules, claim, seen.storage_class, volume)
    return (CreatePersistentVolume(claim, body), RemoveClaimFinalizer(claim))


def _abandon(seen: Observation, claim: PersistentVolumeClaim) -> Plan:
    """Returns the steps that delete a volume that never had a PersistentVolume."""
    volume = seen.volume
    if not seen.is_checked:
        return (FindByMark(claim_owner(claim.metadata.uid)),)
    if volume is None and seen.absent_for < SECOND_LOOK:
        return (Wait("a second search for the volume of the claim, in case a list was not whole"),)
    if volume is None or seen.shared_with:  # another PersistentVolume decides about it
        return (RemoveClaimFinalizer(claim),)
    if seen.released is None:
        return (ConfirmRelease(),)
    if reason := _doubt(seen, claim) or _busy(volume):
        return (Wait(reason),)
    return (DeleteVolume(about_claim(claim), volume.id, ABANDONED), RemoveClaimFinalizer(claim))


def _busy(volume: Volume) -> str:
    """Returns what the cloud does with the volume, if it cannot be deleted now."""
    is_free = volume.state not in {VolumeState.CREATING, VolumeState.DELETING}
    return "" if is_free and not volume.attachments else f"volume {volume.id} is {volume.state}"


def _doubt(seen: Observation, claim: PersistentVolumeClaim) -> str:
    """Returns what the fresh reads say against a deletion; empty: no pod ever had the volume.

    The finalizer is removed only after the PersistentVolume exists: a claim that still has it, and
    is not bound to that PersistentVolume, never gave the volume to a pod.
    """
    if reason := _stale(seen, claim):
        return reason
    found = seen.released.claim if seen.released else None
    if found is None or CLAIM_FINALIZER not in finalizers(found) or bound_to(found) == seen.name:
        return "the claim has changed, and the cache does not have the change yet"
    return ""


def desired_volume(rules: Rules, seen: Observation, claim: PersistentVolumeClaim) -> VolumeSpec:
    """Returns the volume that the claim asks for. Raises CloudError if it cannot be had."""
    storage_class, spec = seen.storage_class, claim.spec
    name = (spec and spec.storage_class_name) or ""
    if storage_class is None or spec is None:
        raise Misconfigured(f"StorageClass {quoted(name)} does not exist. Fix: create it")
    parameters = read_parameters(storage_class.parameters or {})
    _check_claim(claim)
    labels = {
        "kubernetes.io/created-for/pvc/namespace": claim.metadata.namespace,
        "kubernetes.io/created-for/pvc/name": claim.metadata.name,
        "kubernetes.io/created-for/pv/name": volume_name(claim),
    }
    return VolumeSpec(
        owner=Owner(rules.cluster, claim_owner(claim.metadata.uid)),
        size_gib=_size(claim),
        name=volume_name(claim),
        type=parameters.type,
        topologies=_places(seen, storage_class, parameters.zone),
        labels={**parameters.labels, **labels},
    )


def _check_claim(claim: PersistentVolumeClaim) -> None:
    """Raises CloudError if the claim asks for what this controller cannot give."""
    spec = claim.spec
    others = sorted(set((spec and spec.access_modes) or ()) - SINGLE_NODE)
    if others:
        raise Misconfigured(
            f"access mode {', '.join(map(quoted, others))}: a volume is attached to one node at a "
            "time. Fix: create the claim with ReadWriteOnce or ReadWriteOncePod"
        )
    if spec and spec.selector is not None:
        raise Misconfigured(
            "the claim has a selector, which only chooses among existing PersistentVolumes. Fix: "
            "create the claim without it"
        )
    source = source_of(claim)
    if source is not None:
        check_reference(claim, source)


def _size(claim: PersistentVolumeClaim) -> int:
    try:
        wanted, limit = requested(claim), limit_of(claim)
    except ValueError as error:
        raise Misconfigured(f"the size of the claim cannot be read: {error}") from error
    if wanted <= 0:
        raise Misconfigured("spec.resources.requests.storage must be more than 0")
    size = whole_gib(wanted)
    if limit and size * GIB > limit:
        raise Misconfigured(
            f"volumes have whole GiB, and {size} GiB is more than the limit of the claim. Fix: "
            "create the claim with a larger spec.resources.limits.storage, or without it"
        )
    return size


def _places(
    seen: Observation, storage_class: StorageClass, zone: str
) -> tuple[Mapping[str, str], ...]:
    if zone:
        return ({ZONE_LABEL: zone},)
    if seen.selected is not None:
        labels = seen.selected.metadata.labels or {}
        place = {key: labels[key] for key in (ZONE_LABEL, REGION_LABEL) if labels.get(key)}
        return (place,) if place else ()
    terms = storage_class.allowed_topologies or ()
    return tuple(
        place
        for term in terms
        for place in _combined([
            (each.key, each.values or ()) for each in term.match_label_expressions or ()
        ])
    )


def _combined(choices: list[tuple[str, tuple[str, ...]]]) -> list[dict[str, str]]:
    """Returns every combination of the values, one for each key."""
    found: list[dict[str, str]] = [{}]
    for key, values in choices:
        found = [{**place, key: value} for place in found for value in values]
    return [place for place in found if place]


def persistent_volume(
    rules: Rules,
    claim: PersistentVolumeClaim,
    storage_class: StorageClass,
    volume: Volume | None,
) -> PersistentVolume:
    """Returns the PersistentVolume of a created volume; None: as far as it is known before."""
    policy = storage_class.reclaim_policy or DELETE
    spec = claim.spec
    filesystem = read_parameters(storage_class.parameters or {}).filesystem
    return PersistentVolume(
        metadata=ObjectMeta(
            name=volume_name(claim),
            annotations={PROVISIONED_BY: rules.driver},
            finalizers=(DELETE_FINALIZER,) if policy == DELETE else None,
        ),
        spec=PersistentVolumeSpec(
            capacity={"storage": f"{volume.size_gib if volume else _size(claim)}Gi"},
            access_modes=(spec and spec.access_modes) or None,
            persistent_volume_reclaim_policy=policy,
            storage_class_name=storage_class.metadata.name,
            volume_mode=spec.volume_mode if spec else None,
            mount_options=storage_class.mount_options,
            claim_ref=ObjectReference(
                api_version="v1",
                kind="PersistentVolumeClaim",
                namespace=claim.metadata.namespace,
                name=claim.metadata.name,
                uid=claim.metadata.uid,
                resource_version=claim.metadata.resource_version,
            ),
            node_affinity=_affinity(volume),
            csi=CsiSource(
                driver=rules.driver,
                volume_handle=volume.id if volume else "",
                fs_type="" if is_block(claim) else filesystem,
            ),
        ),
    )


def _affinity(volume: Volume | None) -> VolumeNodeAffinity | None:
    if volume is None or not volume.topology:
        return None
    term = NodeSelectorTerm(match_expressions=requirements_of(volume.topology))
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=(term,)))
