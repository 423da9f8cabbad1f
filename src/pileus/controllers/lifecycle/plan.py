"""The steps for one node, from what the cloud reports about its instance. Pure: no I/O, no clock.

the node is ready                marks of this controller are removed
not ready, the instance exists   tainted if it is stopped
not ready, no instance           deleted, or kept for a reason that is reported on the node
not ready, no answer             nothing
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from pileus.cloud.errors import CloudError
from pileus.cloud.model import Absent, Instance, InstanceState
from pileus.controllers.lifecycle.annotations import (
    DELETION,
    DeletionDecision,
    deletion_decision,
    invalid_annotations,
)
from pileus.controllers.lifecycle.guard import Guards, Share, Standing, subject_of
from pileus.controllers.lifecycle.observation import Observed
from pileus.controllers.lifecycle.patches import (
    OUT_OF_SERVICE,
    RECOVERED,
    Marks,
    Write,
    object_write,
    status_write,
)
from pileus.controllers.lifecycle.settings import Policy
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node
from pileus.objects.conditions import Explanation
from pileus.objects.events import shortened
from pileus.objects.nodes import is_ready
from pileus.objects.ownership import Ownership

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
"""The reasons why a node is kept although the cloud's answer suggests an action."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the node, if a plan for its newest version has this step too."""

    evidence: str


@dataclass(frozen=True, slots=True)
class Wait:
    """The instance seems to be deleted: ask again before anything is concluded."""

    evidence: str


@dataclass(frozen=True, slots=True)
class Postpone:
    """Do not delete the node while too many nodes are affected, and warn."""

    evidence: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Warn:
    """Record a warning event; repeated at most once an hour."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ForgetWarnings:
    """The next warning for one of these reasons is recorded at once."""

    reasons: frozenset[str]


@dataclass(frozen=True, slots=True)
class Apply:
    """Make one write. After a conflict it is decided again by the same marks."""

    marks: Marks
    write: Write


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Do nothing: the state of the instance is unknown."""

    error: CloudError


Step = Delete | Wait | Postpone | Warn | ForgetWarnings | Apply | NoAnswer
Steps = tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is known about a node without an instance, besides the node itself."""

    ownership: Ownership
    standing: Standing
    share: Share
    policy: Policy
    is_overdue: bool = False
    """Whether the grace period of unidentified nodes is over."""
    unidentified_grace: float = 0.0
    """Seconds; 0: an unidentified node is never deleted."""


def plan(seen: Observed, guards: Guards, now: datetime, *, confirmed: bool = False) -> Steps:
    """Returns the steps for a node. `confirmed`: as if a second check had reported the same."""
    if is_ready(seen.node):
        return _writes(seen.node, RECOVERED, now)
    verdict = _verdict(seen, guards, confirmed=confirmed)
    match verdict:
        case None:
            return ()
        case Marks():
            evidence = seen.answer.evidence if isinstance(seen.answer, Absent) else ""
            return (*_warnings(verdict, evidence), *_writes(seen.node, verdict, now))
        case _:
            return (verdict,)


def projected(
    guards: Guards, seen: Sequence[Observed], ours: AbstractSet[str], now: datetime
) -> Guards:
    """Returns the guards as they will be if the cloud reports the same until all graces end.

    Nodes that are deleted after a second check are no longer counted by then.
    """
    left = [each for each in seen if not is_deletion(plan(each, guards, now, confirmed=True))]
    deleted = {each.node.metadata.uid for each in seen} - {e.node.metadata.uid for e in left}
    return guards.projected(left, ours - deleted)


def is_deletion(steps: Steps) -> bool:
    return any(isinstance(step, Delete) for step in steps)


def approval_command(name: str) -> str:
    return f"kubectl annotate node {name} {DELETION}={DeletionDecision.APPROVED}"


def taint_command(name: str) -> str:
    taint = OUT_OF_SERVICE
    return f"kubectl taint node {name} {taint.key}={taint.value}:{taint.effect}"


def on_absence(node: Node, absent: Absent, case: Case) -> Delete | Wait | Marks:
    """Returns what to do with a node that has no instance."""
    kept = _kept_by_annotation(node, absent)
    if case.policy is Policy.IMMEDIATE and kept is None:
        return Delete(absent.evidence)
    if case.standing in {Standing.CLEAR, Standing.WAITING}:
        return Wait(absent.evidence)
    kept = kept or _kept_by_policy(absent, case.policy) or _kept_by_guard(node, absent, case)
    if kept is None:
        return Delete(absent.evidence)
    return Marks(gone=case.policy is Policy.TAINT or None, kept=kept)


def on_presence(node: Node, instance: Instance, stopped: Standing, share: Share) -> Marks:
    """Returns the marks of a node that has an instance.

    `stopped`: how far it is confirmed that the instance is stopped; CLEAR if nodes are not taken
    out of service.
    """
    match instance.state:
        case InstanceState.STOPPED:
            return Marks(
                shut_down=True,
                gone=False,
                out_of_service=True if stopped is Standing.CONFIRMED else None,
                warning=_too_many_stopped(node, share) if stopped is Standing.TOO_MANY else None,
            )
        case InstanceState.RUNNING:
            return Marks(gone=False, out_of_service=False)
        case _:
            return Marks(gone=False)


def _verdict(
    seen: Observed, guards: Guards, *, confirmed: bool
) -> Delete | Wait | NoAnswer | Marks | None:
    subject = subject_of(seen.node)
    match seen.answer:
        case Absent():
            guard = guards.deletion
            case = Case(
                ownership=seen.whose,
                standing=guard.standing(subject, confirmed=confirmed),
                share=guard.share,
                policy=guards.policy,
                is_overdue=guard.is_overdue(subject),
                unidentified_grace=guard.rules.unidentified_grace,
            )
            return on_absence(seen.node, seen.answer, case)
        case Instance():
            applies = guards.takes_out_of_service and seen.whose is Ownership.OURS
            stopped = guards.out_of_service.standing(subject, confirmed=confirmed)
            standing = stopped if applies else Standing.CLEAR
            return on_presence(seen.node, seen.answer, standing, guards.out_of_service.share)
        case CloudError():
            return NoAnswer(seen.answer)
        case None:
            return None


def _writes(node: Node, marks: Marks, now: datetime) -> tuple[Apply, ...]:
    writes = object_write(node, marks), status_write(node, marks, now)
    return tuple(Apply(marks, write) for write in writes if write is not None)


def _warnings(marks: Marks, evidence: str) -> Steps:
    """Returns the warnings that apply now; those that do not apply any more are forgotten."""
    said = [each for each in (marks.kept, marks.warning) if each]
    warnings = (
        Postpone(evidence, each.reason, each.message)
        if each.reason == TOO_MANY_GONE
        else Warn(each.reason, each.message)
        for each in said
    )
    return (ForgetWarnings(REASONS - {each.reason for each in said}), *warnings)


def _kept_by_annotation(node: Node, absent: Absent) -> Explanation | None:
    """A misspelt annotation keeps the node too: it may have been meant to."""
    if deletion_decision(node) == DeletionDecision.NEVER:
        return _kept(
            "DeletionVetoed", absent, f"its annotation {DELETION} is {DeletionDecision.NEVER}"
        )
    if invalid := invalid_annotations(node):
        return _kept("DeletionAnnotationUnknown", absent, invalid)
    return None


def _kept_by_policy(absent: Absent, policy: Policy) -> Explanation | None:
    if policy in {Policy.GUARDED, Policy.IMMEDIATE}:
        return None
    return _kept("NodeKeptByPolicy", absent, f"--node-deletion-policy is {policy}")


def _kept_by_guard(node: Node, absent: Absent, case: Case) -> Explanation | None:
    if deletion_decision(node) == DeletionDecision.APPROVED:
        return None
    fix = f"To delete it: {approval_command(node.metadata.name)}"
    if case.ownership is not Ownership.OURS and not case.is_overdue:
        why = "it has no provider ID of this cloud, so it may never have had a machine here"
        wait = f"It is deleted if this stays so for {case.unidentified_grace:g} s. "
        later = wait if case.unidentified_grace else ""
        return _kept(NEVER_INITIALIZED, absent, f"{why}. {later}{fix}")
    if case.standing is Standing.TOO_MANY:
        share = case.share
        why = (
            f"{share.affected} of {share.nodes} nodes have no machine or were deleted recently, "
            f"and the limit is {share.limit}"
        )
        return _kept(TOO_MANY_GONE, absent, f"{why}. {fix}")
    return None


def _kept(reason: str, absent: Absent, why: str) -> Explanation:
    text = f"The cloud has no machine for this node ({absent.evidence}). It is kept: {why}"
    return Explanation(reason, shortened(text))


def _too_many_stopped(node: Node, share: Share) -> Explanation:
    return Explanation(
        "TooManyNodesStopped",
        f"The machine is stopped, like those of {share.affected} of {share.nodes} nodes. The "
        f"limit is {share.limit}, so no node is taken out of service. To move its pods: "
        f"{taint_command(node.metadata.name)}",
    )
