"""Conditions on nodes that report a problem and since when it exists. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from pileus.kube.model.core_v1 import Node, NodeCondition
from pileus.objects.nodes import condition_of

REWORD_AFTER = timedelta(minutes=5)
"""How long a condition keeps its message if only the wording changes."""


@dataclass(frozen=True, slots=True)
class Said:
    """The reason of a condition: one CamelCase word, and a message."""

    reason: str
    message: str


def raised(node: Node, kind: str, said: Said, now: datetime) -> NodeCondition | None:
    """Returns the condition with status True; None if the node has it already."""
    present = condition_of(node, kind)
    if present and present.status == "True" and present.reason == said.reason:
        since = present.last_heartbeat_time
        if present.message == said.message or (since and now - since < REWORD_AFTER):
            return None
    return _condition(present, kind, "True", said, now)


def lowered(node: Node, kind: str, said: Said, now: datetime) -> NodeCondition | None:
    """Returns the condition with status False; None if it is False or was never set."""
    present = condition_of(node, kind)
    if present is None or present.status == "False":
        return None
    return _condition(present, kind, "False", said, now)


def _condition(
    present: NodeCondition | None, kind: str, status: str, said: Said, now: datetime
) -> NodeCondition:
    now = now.replace(microsecond=0)
    stays = present is not None and present.status == status
    return NodeCondition(
        type=kind,
        status=status,
        reason=said.reason,
        message=said.message,
        last_heartbeat_time=now,
        last_transition_time=present.last_transition_time if present and stays else now,
    )
