"""What is to be done about a node, by what the cloud says of its machine. Pure: no I/O, no clock.

ready                      what we put on it goes again
not ready, machine there   stopped: tainted
not ready, machine gone    deleted, or kept for a reason that the node then tells
not ready, no answer       left as it is
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from pileus.cloud.model import Absent, Instance, InstanceState, no_labels
from pileus.controllers.lifecycle.annotations import (
    DELETION,
    OUT_OF_SERVICE_MARK,
    Word,
    invalid_annotations,
    word_of,
)
from pileus.controllers.lifecycle.guard import Share, Standing, Subject
from pileus.kube.model.core_v1 import Node, NodeCondition, Taint
from pileus.objects.conditions import Said, lowered, raised
from pileus.objects.events import shortened
from pileus.objects.nodes import (
    READY,
    condition_of,
    is_ready,
    provider_id_of,
    taints_of,
)
from pileus.objects.ownership import Ownership

CONDITION = "CloudProviderInstanceGone"
"""True on a node that stays although the cloud has no machine for it; the reason says why."""
FOUND = Said("InstanceFound", "the cloud has a machine for this node")
READY_AGAIN = Said("NodeReady", "the node is ready")

SHUTDOWN = Taint(key="node.cloudprovider.kubernetes.io/shutdown", effect="NoSchedule")
GONE = Taint(key="pileus.dev/instance-gone", effect="NoSchedule")
OUT_OF_SERVICE = Taint(
    key="node.kubernetes.io/out-of-service", value="nodeshutdown", effect="NoExecute"
)

NEVER_INITIALIZED = "NeverInitialized"
TOO_MANY_GONE = "TooManyNodesGone"
REASONS = frozenset({
    "DeletionAnnotationUnknown",
    "DeletionVetoed",
    NEVER_INITIALIZED,
    "NodeKeptByPolicy",
    TOO_MANY_GONE,
    "TooManyNodesStopped",
})
"""Why a node is not treated as the cloud's answer suggests."""


class Policy(StrEnum):
    """What happens to a node whose machine is gone (`--node-deletion-policy`)."""

    GUARDED = "guarded"
    IMMEDIATE = "immediate"
    """As the Go framework: the first answer counts, however many nodes it concerns."""
    TAINT = "taint"
    """Never deleted; no new pods, and told."""
    REPORT = "report"
    """Never deleted; told."""


@dataclass(frozen=True, slots=True)
class Delete:
    evidence: str


@dataclass(frozen=True, slots=True)
class Wait:
    """The machine seems to be gone: look again before anything is concluded."""

    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What of ours should be on the node: True is added, False removed, None left as it is."""

    shut_down: bool | None = None
    gone: bool | None = None
    out_of_service: bool | None = None
    forgets_approval: bool = False
    off: Said = FOUND
    """Why our condition is off; it is, unless there is something in `kept`."""
    kept: Said | None = None
    """Why the node is kept, for the condition and a warning."""
    warning: Said | None = None


Step = Delete | Wait | Wanted

RECOVERED = Wanted(
    shut_down=False, gone=False, out_of_service=False, forgets_approval=True, off=READY_AGAIN
)
"""For a node that is ready: whatever was the matter is over, and an approval was about that."""


@dataclass(frozen=True, slots=True)
class StatusWrite:
    condition: NodeCondition


@dataclass(frozen=True, slots=True)
class ObjectWrite:
    taints: tuple[Taint, ...] | None = None
    """All of them, others' included; None leaves them alone."""
    annotations: Mapping[str, str | None] = field(default_factory=no_labels, hash=False)
    """None removes one."""


Write = StatusWrite | ObjectWrite


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is known about a node whose machine is gone, besides the node itself."""

    ownership: Ownership
    standing: Standing
    share: Share
    policy: Policy
    is_overdue: bool = False
    """Whether it has been denied for the whole grace for unidentified nodes."""
    unidentified_grace: float = 0.0
    """Seconds; 0: an unidentified node is never deleted."""


def approval_by_hand(name: str) -> str:
    return f"kubectl annotate node {name} {DELETION}={Word.APPROVED}"


def taint_by_hand(name: str) -> str:
    taint = OUT_OF_SERVICE
    return f"kubectl taint node {name} {taint.key}={taint.value}:{taint.effect}"


def subject_of(node: Node) -> Subject:
    ready = condition_of(node, READY)
    since = ready.last_transition_time if ready else None
    return Subject(node.metadata.uid, provider_id_of(node), since)


def counts(node: Node, whose: Ownership) -> bool:
    """Whether deleting it is limited: not where it would not be deleted, or a human said so."""
    return whose is Ownership.OURS and not word_of(node) and not invalid_annotations(node)


def counts_late(node: Node, whose: Ownership) -> bool:
    """Whether deleting it is limited once it has been denied for long: nothing identifies it."""
    return whose is Ownership.UNPROVEN and not word_of(node) and not invalid_annotations(node)


def is_out_of_service(node: Node) -> bool:
    """Whether we took it out of service."""
    return OUT_OF_SERVICE_MARK in (node.metadata.annotations or {})


def on_absence(node: Node, absent: Absent, case: Case) -> Step:
    said = _says_annotation(node, absent)
    if case.policy is Policy.IMMEDIATE and said is None:
        return Delete(absent.evidence)
    if case.standing in {Standing.CLEAR, Standing.WAITING}:
        return Wait(absent.evidence)
    said = said or _says_policy(absent, case.policy) or _says_guard(node, absent, case)
    if said is None:
        return Delete(absent.evidence)
    return Wanted(gone=case.policy is Policy.TAINT or None, kept=said)


def on_presence(node: Node, instance: Instance, stopped: Standing, share: Share) -> Wanted:
    """`stopped`: how sure it is that the machine is stopped; CLEAR also if nobody wants to know."""
    match instance.state:
        case InstanceState.STOPPED:
            return Wanted(
                shut_down=True,
                gone=False,
                out_of_service=True if stopped is Standing.CONFIRMED else None,
                warning=_too_many_stopped(node, share) if stopped is Standing.HELD else None,
            )
        case InstanceState.RUNNING:
            return Wanted(gone=False, out_of_service=False)
        case _:
            return Wanted(gone=False)


def object_write(node: Node, wanted: Wanted) -> ObjectWrite | None:
    """What brings taints and annotations there; None if they are. A ready node is never tainted."""
    taints = list(taints_of(node))
    annotations: dict[str, str | None] = {}
    has = node.metadata.annotations or {}
    if wanted.forgets_approval and has.get(DELETION) == Word.APPROVED:
        annotations[DELETION] = None
    _settle(node, taints, SHUTDOWN, wanted.shut_down)
    _settle(node, taints, GONE, wanted.gone)
    marked = is_out_of_service(node)
    if wanted.out_of_service is False and marked:
        _settle(node, taints, OUT_OF_SERVICE, wanted=False)
        annotations[OUT_OF_SERVICE_MARK] = None
    elif wanted.out_of_service and not marked and _may_mark(node):
        taints.append(OUT_OF_SERVICE)
        annotations[OUT_OF_SERVICE_MARK] = "true"
    changed = tuple(taints) if tuple(taints) != taints_of(node) else None
    return ObjectWrite(changed, annotations) if changed is not None or annotations else None


def is_met(node: Node, wanted: Wanted, now: datetime) -> bool:
    """Whether nothing would be written."""
    return object_write(node, wanted) is None and status_write(node, wanted, now) is None


def needs_recovery(node: Node) -> bool:
    """Whether a node that is ready still carries anything of ours."""
    condition = condition_of(node, CONDITION)
    return bool(condition and condition.status != "False") or bool(object_write(node, RECOVERED))


def status_write(node: Node, wanted: Wanted, now: datetime) -> StatusWrite | None:
    if wanted.kept and not is_ready(node):
        condition = raised(node, CONDITION, wanted.kept, now)
    else:
        condition = lowered(node, CONDITION, wanted.off, now)
    return StatusWrite(condition) if condition else None


def _settle(node: Node, taints: list[Taint], taint: Taint, wanted: bool | None) -> None:  # noqa: FBT001 -- a wish
    """As upstream, a taint is known by its key and effect; ours out of service by its value too."""
    alike = [each for each in taints if (each.key, each.effect) == (taint.key, taint.effect)]
    if wanted and not alike and not is_ready(node):
        taints.append(taint)
    elif wanted is False:
        taints[:] = [
            t for t in taints if t not in alike or (taint.value and t.value != taint.value)
        ]


def _may_mark(node: Node) -> bool:
    """Whoever set the taint by hand keeps it: then it is neither ours to add nor to remove."""
    theirs = any(each.key == OUT_OF_SERVICE.key for each in taints_of(node))
    return not theirs and not is_ready(node)


def _says_annotation(node: Node, absent: Absent) -> Said | None:
    """A misspelt annotation keeps the node too: it may have been meant to."""
    if word_of(node) == Word.NEVER:
        return _said("DeletionVetoed", absent, f"its annotation {DELETION} is {Word.NEVER}")
    if invalid := invalid_annotations(node):
        return _said("DeletionAnnotationUnknown", absent, invalid)
    return None


def _says_policy(absent: Absent, policy: Policy) -> Said | None:
    if policy in {Policy.GUARDED, Policy.IMMEDIATE}:
        return None
    return _said("NodeKeptByPolicy", absent, f"--node-deletion-policy is {policy}")


def _says_guard(node: Node, absent: Absent, case: Case) -> Said | None:
    if word_of(node) == Word.APPROVED:
        return None
    resume = f"If it is to go: {approval_by_hand(node.metadata.name)}"
    if case.ownership is not Ownership.OURS and not case.is_overdue:
        why = "nothing proves that it ever had one: no provider ID of this cloud is on it"
        wait = f"It is deleted if this stays so for {case.unidentified_grace:g} s. "
        later = wait if case.unidentified_grace else ""
        return _said(NEVER_INITIALIZED, absent, f"{why}. {later}{resume}")
    if case.standing is Standing.HELD:
        share = case.share
        why = (
            f"{share.going} of {share.nodes} nodes are gone, or were deleted lately, and at most "
            f"{share.limit} may be"
        )
        return _said(TOO_MANY_GONE, absent, f"{why}. {resume}")
    return None


def _said(reason: str, absent: Absent, why: str) -> Said:
    text = f"The cloud has no machine for this node ({absent.evidence}). It is kept: {why}"
    return Said(reason, shortened(text))


def _too_many_stopped(node: Node, share: Share) -> Said:
    return Said(
        "TooManyNodesStopped",
        f"The cloud says that this machine is stopped, and {share.going} of {share.nodes} are; "
        f"{share.limit} may be taken out of service at once, so none is. If its pods are to "
        f"move: {taint_by_hand(node.metadata.name)}",
    )
