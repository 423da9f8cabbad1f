"""Renders the steps of a pass as lines of a plan, for `pileus plan` and for the journal."""

from collections.abc import Iterator
from typing import assert_never

from pileus.cloud.balancer import Effect
from pileus.cloud.volume import FromSnapshot, FromVolume, Source, Volume
from pileus.controllers.volume.objects import (
    CLAIM_FINALIZER,
    SELECTED_NODE,
    about_attachment,
    about_claim,
    node_of,
)
from pileus.controllers.volume.observation import Observation
from pileus.controllers.volume.steps import (
    AddClaimFinalizer,
    Attach,
    CheckInstances,
    CheckVolume,
    ClearSelectedNode,
    ConfirmRelease,
    ConfirmStray,
    ConfirmUnmounted,
    CreatePersistentVolume,
    CreateVolume,
    DeletePersistentVolume,
    DeleteVolume,
    Detach,
    DetachStray,
    FindByMark,
    FindCopy,
    FindTwins,
    Plan,
    PrepareAttachment,
    PublishAttached,
    PublishCapacity,
    PublishResize,
    ReadSource,
    RemoveAttachmentFinalizer,
    RemoveClaimFinalizer,
    Report,
    ReportAttachment,
    Resize,
    SetFinalizer,
    Step,
    Wait,
    Warn,
)
from pileus.kube.model.core_v1 import ObjectReference
from pileus.objects.decisions import record_observation, record_plan
from pileus.objects.preview import Place, Planned, Trouble
from pileus.volumes.persistent_volumes import about_volume

Line = Planned | Trouble

AFTER = "the steps before it"
ATTACH_FAILED, DETACH_FAILED = "FailedAttachVolume", "FailedDetachVolume"


def lines(steps: Plan) -> Iterator[Line]:
    """Yields the lines of a plan: one per change. All but the first wait for those before."""
    waits_for = ""
    for step in steps:
        if isinstance(step, Wait):
            waits_for = step.why
        for line in _lines(step, waits_for):
            yield line
            waits_for = waits_for or (AFTER if isinstance(line, Planned) else "")


def _lines(step: Step, waits_for: str) -> Iterator[Line]:
    match step:
        case Report(about, reason, error):
            yield Trouble(about, reason, str(error) or type(error).__name__)
        case Warn(about, reason, message):
            yield Trouble(about, reason, message)
        case ReportAttachment(item, error, is_detachment):
            reason = DETACH_FAILED if is_detachment else ATTACH_FAILED
            yield Trouble(about_attachment(item), reason, str(error) or type(error).__name__)
        case Wait() | CheckVolume() | FindByMark() | FindCopy() | ReadSource() | CheckInstances():
            pass
        case FindTwins() | ConfirmRelease() | ConfirmUnmounted() | ConfirmStray():
            return
        case CreateVolume() | Attach() | Detach() | DetachStray() | Resize() | DeleteVolume():
            about, effect, summary, details = _in_cloud(step)
            yield Planned(
                about=about,
                place=Place.CLOUD,
                effect=effect,
                summary=summary,
                details=details,
                waits_for=waits_for,
            )
        case _:
            about, effect, summary, details = _in_cluster(step)
            yield Planned(
                about=about,
                place=Place.CLUSTER,
                effect=effect,
                summary=summary,
                details=details,
                waits_for=waits_for,
            )


Parts = tuple[ObjectReference, Effect, str, tuple[str, ...]]


def _in_cloud(
    step: CreateVolume | Attach | Detach | DetachStray | Resize | DeleteVolume,
) -> Parts:
    match step:
        case CreateVolume(claim, spec):
            kind = f", type {spec.type}" if spec.type else ""
            places = tuple(f"place: {dict(place)}" for place in spec.topologies)
            summary = f"volume {spec.name}: {spec.size_gib} GiB{kind}"
            return about_claim(claim), Effect.CREATE, summary, (*_origin(spec.source), *places)
        case Attach(item, volume, instance):
            summary = f"attach volume {volume} to {instance}"
            return about_attachment(item), Effect.UPDATE, summary, ()
        case Detach(item, volume, instance, is_forced):
            how = " by force: the machine is off" if is_forced else ""
            summary = f"detach volume {volume} from {instance}{how}"
            return about_attachment(item), Effect.UPDATE, summary, ()
        case DetachStray(pv, volume, instance):
            summary = f"detach volume {volume} from {instance}: there is no attachment for it"
            return about_volume(pv), Effect.UPDATE, summary, ()
        case Resize(claim, volume, size):
            return about_claim(claim), Effect.UPDATE, f"volume {volume}: {size} GiB", ()
        case DeleteVolume(about, volume, why):
            return about, Effect.DELETE, f"volume {volume}, with its data", (why,)
        case _:
            assert_never(step)


def _origin(source: Source | None) -> Iterator[str]:
    match source:
        case FromSnapshot(id_):
            yield f"content: snapshot {id_}"
        case FromVolume(id_):
            yield f"content: volume {id_}"
        case None:
            pass


ClusterStep = (
    AddClaimFinalizer
    | RemoveClaimFinalizer
    | ClearSelectedNode
    | CreatePersistentVolume
    | PrepareAttachment
    | PublishAttached
    | RemoveAttachmentFinalizer
    | PublishCapacity
    | PublishResize
    | SetFinalizer
    | DeletePersistentVolume
)


def _in_cluster(step: ClusterStep) -> Parts:  # noqa: PLR0911 -- one case per step
    match step:
        case AddClaimFinalizer(claim):
            return about_claim(claim), Effect.UPDATE, "finalizer", (_with(CLAIM_FINALIZER),)
        case RemoveClaimFinalizer(claim):
            return about_claim(claim), Effect.UPDATE, "finalizer", (_without(CLAIM_FINALIZER),)
        case ClearSelectedNode(claim, node):
            detail = f'metadata.annotations[{SELECTED_NODE}]: "{node}" → removed'
            return about_claim(claim), Effect.UPDATE, "selected node does not exist", (detail,)
        case CreatePersistentVolume(claim, body):
            name = body.metadata.name
            return about_claim(claim), Effect.CREATE, f"PersistentVolume {name}", _new(step)
        case PrepareAttachment(item):
            return about_attachment(item), Effect.UPDATE, "finalizer and machine", ()
        case PublishAttached(item, device):
            detail = f'status.attached: false → true (device "{device or "set by the cloud"}")'
            return about_attachment(item), Effect.UPDATE, f"attached to {node_of(item)}", (detail,)
        case RemoveAttachmentFinalizer(item):
            return about_attachment(item), Effect.UPDATE, "without finalizer: detached", ()
        case PublishCapacity(volume, size):
            return about_volume(volume), Effect.UPDATE, f"spec.capacity: {size}Gi", ()
        case PublishResize(claim, size, needs_node):
            what = "NodeResizePending" if needs_node else f"status.capacity: {size}"
            return about_claim(claim), Effect.UPDATE, f"resized: {what}", ()
        case SetFinalizer(volume, finalizer, adds):
            detail = _with(finalizer) if adds else _without(finalizer)
            return about_volume(volume), Effect.UPDATE, "finalizer", (detail,)
        case DeletePersistentVolume(volume):
            summary = f"PersistentVolume {volume.metadata.name}"
            return about_volume(volume), Effect.DELETE, summary, ()
        case _:
            assert_never(step)


def _with(finalizer: str) -> str:
    return f"metadata.finalizers: with {finalizer}"


def _without(finalizer: str) -> str:
    return f"metadata.finalizers: without {finalizer}"


def _new(step: CreatePersistentVolume) -> tuple[str, ...]:
    spec = step.body.spec
    if spec is None:
        return ()
    size = (spec.capacity or {}).get("storage", "")
    handle = (spec.csi and spec.csi.volume_handle) or "set by the cloud"
    return (
        f"spec.capacity: {size}",
        f"spec.csi.volumeHandle: {handle}",
        f"spec.persistentVolumeReclaimPolicy: {spec.persistent_volume_reclaim_policy}",
    )


def record_observed(seen: Observation) -> None:
    """Record in the journal that the current pass is about these objects."""
    if seen.claim is not None:
        record_observation(about_claim(seen.claim), volume_text(seen.volume))
    if seen.pv is not None:
        record_observation(about_volume(seen.pv), volume_text(seen.volume))


def record_steps(seen: Observation, steps: Plan) -> None:
    """Record a plan in the journal, and what the cloud said."""
    if seen.is_checked:
        record_observed(seen)
    record_plan(lines(steps))


def volume_text(volume: Volume | None) -> str:
    """Returns a volume in one line."""
    if volume is None:
        return ""
    holders = ", ".join(one.instance for one in volume.attachments)
    parts = (f"{volume.size_gib} GiB", volume.state.value, holders, volume.reason)
    return f"volume {volume.id}: {', '.join(filter(None, parts))}"
