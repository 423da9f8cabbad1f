"""The marks of this controller on a node (taints, annotations, condition), and patches. Pure."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import assert_never

import msgspec

from pileus.cloud.model import no_labels
from pileus.controllers.lifecycle.annotations import DELETION, OUT_OF_SERVICE_MARK, DeletionDecision
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node, NodeCondition, Taint
from pileus.kube.patch import MergePatch, Patch, StrategicPatch
from pileus.objects.conditions import Explanation, problem_condition, solved_condition
from pileus.objects.nodes import condition_of, is_ready, taints_of

CONDITION = "CloudProviderInstanceGone"
"""True on a node that is kept although the cloud has no machine for it, for the reason given."""
FOUND = Explanation("InstanceFound", "the cloud has a machine for this node")
READY_AGAIN = Explanation("NodeReady", "the node is ready")

SHUTDOWN = Taint(key="node.cloudprovider.kubernetes.io/shutdown", effect="NoSchedule")
GONE = Taint(key="pileus.dev/instance-gone", effect="NoSchedule")
OUT_OF_SERVICE = Taint(
    key="node.kubernetes.io/out-of-service", value="nodeshutdown", effect="NoExecute"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The desired marks: True adds a taint, False removes it, None leaves it unchanged."""

    shut_down: bool | None = None
    gone: bool | None = None
    out_of_service: bool | None = None
    removes_approval: bool = False
    off: Explanation = FOUND
    """The reason of our condition while it is off. It is on if `kept` is set."""
    kept: Explanation | None = None
    """Why the node is kept: the condition and a warning."""
    warning: Explanation | None = None


RECOVERED = Marks(
    shut_down=False, gone=False, out_of_service=False, removes_approval=True, off=READY_AGAIN
)
"""For a ready node: no marks. An approval of its deletion was about the former failure."""


@dataclass(frozen=True, slots=True)
class StatusWrite:
    condition: NodeCondition


@dataclass(frozen=True, slots=True)
class ObjectWrite:
    taints: tuple[Taint, ...] | None = None
    """All taints of the node; None leaves them unchanged."""
    annotations: Mapping[str, str | None] = field(default_factory=no_labels, hash=False)
    """None removes an annotation."""


Write = StatusWrite | ObjectWrite


def is_out_of_service(node: Node) -> bool:
    """Whether this controller added the out-of-service taint."""
    return OUT_OF_SERVICE_MARK in (node.metadata.annotations or {})


def object_write(node: Node, marks: Marks) -> ObjectWrite | None:
    """Returns the change of taints and annotations; None if there is none.

    A ready node is never tainted.
    """
    taints = list(taints_of(node))
    annotations: dict[str, str | None] = {}
    has = node.metadata.annotations or {}
    if marks.removes_approval and has.get(DELETION) == DeletionDecision.APPROVED:
        annotations[DELETION] = None
    _change(node, taints, SHUTDOWN, marks.shut_down)
    _change(node, taints, GONE, marks.gone)
    marked = is_out_of_service(node)
    if marks.out_of_service is False and marked:
        _change(node, taints, OUT_OF_SERVICE, adds=False)
        annotations[OUT_OF_SERVICE_MARK] = None
    elif marks.out_of_service and not marked and _may_mark(node):
        taints.append(OUT_OF_SERVICE)
        annotations[OUT_OF_SERVICE_MARK] = "true"
    changed = tuple(taints) if tuple(taints) != taints_of(node) else None
    return ObjectWrite(changed, annotations) if changed is not None or annotations else None


def status_write(node: Node, marks: Marks, now: datetime) -> StatusWrite | None:
    """Returns the change of our condition; None if there is none."""
    if marks.kept and not is_ready(node):
        condition = problem_condition(node, CONDITION, marks.kept, now)
    else:
        condition = solved_condition(node, CONDITION, marks.off, now)
    return StatusWrite(condition) if condition else None


def needs_recovery(node: Node) -> bool:
    """Whether a ready node still has marks of this controller."""
    condition = condition_of(node, CONDITION)
    return bool(condition and condition.status != "False") or bool(object_write(node, RECOVERED))


def patch_of(node: Node, write: Write) -> tuple[Patch, str]:
    """Returns the patch that makes the write, and the subresource that it is sent to.

    The list of taints can only be replaced as a whole, and our annotation belongs to a taint, so
    the patch names the version that it was made from. Conditions belong to several controllers and
    are merged.
    """
    metadata: dict[str, object] = {"uid": node.metadata.uid} if node.metadata.uid else {}
    match write:
        case StatusWrite(condition):
            status = {"conditions": [msgspec.to_builtins(condition)]}
            return StrategicPatch({"metadata": metadata, "status": status}), "status"
        case ObjectWrite(taints, annotations):
            metadata["resourceVersion"] = node.metadata.resource_version
            if annotations:
                metadata["annotations"] = dict(annotations)
            spec = {} if taints is None else {"taints": msgspec.to_builtins(taints) or None}
            return MergePatch({"metadata": metadata} | ({"spec": spec} if spec else {})), ""
        case _:
            assert_never(write)


def _change(node: Node, taints: list[Taint], taint: Taint, adds: bool | None) -> None:  # noqa: FBT001 -- as in Marks
    """As in the Go framework, key and effect identify a taint; out-of-service also its value."""
    alike = [each for each in taints if (each.key, each.effect) == (taint.key, taint.effect)]
    if adds and not alike and not is_ready(node):
        taints.append(taint)
    elif adds is False:
        taints[:] = [
            t for t in taints if t not in alike or (taint.value and t.value != taint.value)
        ]


def _may_mark(node: Node) -> bool:
    """Whether we may add the out-of-service taint: not if a user has added it manually."""
    theirs = any(each.key == OUT_OF_SERVICE.key for each in taints_of(node))
    return not theirs and not is_ready(node)
