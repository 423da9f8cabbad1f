"""Renders the steps for a node as lines of a plan, for `pileus plan` and the journal."""

from collections.abc import Iterator
from typing import assert_never

from pileus.cloud.balancer import Effect
from pileus.controllers.lifecycle.patches import CONDITION, ObjectWrite, StatusWrite
from pileus.controllers.lifecycle.plan import (
    NEVER_INITIALIZED,
    Apply,
    Delete,
    ForgetWarnings,
    NoAnswer,
    Postpone,
    Step,
    Wait,
    Warn,
)
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import about_node, condition_of, taints_of
from pileus.objects.preview import Place, Planned, Trouble, condition_detail
from pileus.settings.go_quote import quote

UNKNOWN = "InstanceStateUnknown"
DELETION = "delete node: the cloud has no machine for it"


def rendered(node: Node, step: Step, waits_for: str) -> Iterator[Planned | Trouble]:
    """Yields the lines of one step."""
    about = about_node(node)
    match step:
        case Delete(evidence):
            yield _deletion(node, evidence, waits_for)
        case Postpone(evidence, _, message):
            yield _deletion(node, evidence, message)
        case Apply(_, write):
            yield _update(node, write, waits_for)
        case Warn(reason, message):
            is_initialization = reason == NEVER_INITIALIZED  # which the node controller reports
            yield Trouble(about, reason, message, is_aftermath=is_initialization)
        case NoAnswer(error):
            text = str(error) or type(error).__name__
            message = f"The node is not ready, and the state of its machine is unknown: {text}"
            yield Trouble(about, UNKNOWN, message, is_aftermath=True)
        case Wait() | ForgetWarnings():
            return
        case _:
            assert_never(step)


def _deletion(node: Node, evidence: str, waits_for: str) -> Planned:
    return Planned(
        about=about_node(node),
        place=Place.CLUSTER,
        effect=Effect.DELETE,
        summary=DELETION,
        details=(f"the cloud reports: {evidence}",),
        waits_for=waits_for,
    )


def _update(node: Node, write: StatusWrite | ObjectWrite, waits_for: str) -> Planned:
    if isinstance(write, StatusWrite):
        before = condition_of(node, CONDITION)
        details = (condition_detail(CONDITION, before, write.condition),)
    else:
        details = tuple(_details(node, write))
    is_status = isinstance(write, StatusWrite)
    return Planned(
        about=about_node(node),
        place=Place.CLUSTER,
        effect=Effect.UPDATE,
        summary=f"condition {CONDITION}" if is_status else "taints and annotations",
        details=details,
        waits_for=waits_for,
    )


def _details(node: Node, write: ObjectWrite) -> Iterator[str]:
    before = taints_of(node)
    after = before if write.taints is None else write.taints
    for taint in before:
        if taint not in after:
            yield f"spec.taints: without {taint.key}"
    for taint in after:
        if taint not in before:
            yield f"spec.taints: with {taint.key}:{taint.effect}"
    for key, value in write.annotations.items():
        yield f"metadata.annotations[{key}]: {'removed' if value is None else quote(value)}"
