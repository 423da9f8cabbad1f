"""The writes to a node as the API server takes them. Pure."""

from typing import assert_never

import msgspec

from pileus.controllers.lifecycle.plan import ObjectWrite, StatusWrite, Write
from pileus.kube.model.core_v1 import Node
from pileus.kube.patch import MergePatch, Patch, StrategicPatch


def patch_of(node: Node, write: Write) -> tuple[Patch, str]:
    """The patch that brings `write` about, and the subresource that it goes to.

    The list of taints can only be sent whole, and an annotation of ours belongs to a taint, so the
    patch names the version that it was made from. Conditions belong to many and are merged.
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
