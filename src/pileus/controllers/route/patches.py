"""The write to a node as the API server takes it. Pure."""

import msgspec

from pileus.kube.model.core_v1 import Node, NodeCondition
from pileus.kube.patch import StrategicPatch


def condition_patch(node: Node, condition: NodeCondition) -> tuple[StrategicPatch, str]:
    """Conditions are merged by type; a node of the same name but another UID refuses it."""
    body: dict[str, object] = {"status": {"conditions": [msgspec.to_builtins(condition)]}}
    if node.metadata.uid:
        body["metadata"] = {"uid": node.metadata.uid}
    return StrategicPatch(body), "status"
