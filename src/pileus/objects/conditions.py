"""Conditions on nodes that report a problem and since when it exists. Pure."""

from datetime import datetime, timedelta

from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node, NodeCondition
from pileus.objects.nodes import condition_of

REWORD_AFTER = timedelta(minutes=5)
"""How long a condition keeps its message if only the wording changes."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason of a condition: one CamelCase word, and a message."""

    reason: str
    message: str


def problem_condition(
    node: Node, kind: str, why: Explanation, now: datetime
) -> NodeCondition | None:
    """Returns the condition with status True; None if the node has it already."""
    present = condition_of(node, kind)
    if present and present.status == "True" and present.reason == why.reason:
        since = present.last_heartbeat_time
        if present.message == why.message or (since and now - since < REWORD_AFTER):
            return None
    return _condition(present, kind, "True", why, now)


def solved_condition(
    node: Node, kind: str, why: Explanation, now: datetime
) -> NodeCondition | None:
    """Returns the condition with status False; None if it is False or was never set."""
    present = condition_of(node, kind)
    if present is None or present.status == "False":
        return None
    return _condition(present, kind, "False", why, now)


def _condition(
    present: NodeCondition | None, kind: str, status: str, why: Explanation, now: datetime
) -> NodeCondition:
    now = now.replace(microsecond=0)
    stays = present is not None and present.status == status
    return NodeCondition(
        type=kind,
        status=status,
        reason=why.reason,
        message=why.message,
        last_heartbeat_time=now,
        last_transition_time=present.last_transition_time if present and stays else now,
    )
