"""The writes to a node as the API server takes them. Pure."""

from typing import assert_never

import msgspec

from pileus.controllers.node.plan import (
    ObjectWrite,
    StatusWrite,
    Write,
)
from pileus.kube.model.core_v1 import Node, NodeAddress
from pileus.kube.patch import MergePatch, Patch, StrategicPatch
from pileus.objects.nodes import UNINITIALIZED, taints_of

STATUS = "status"


def patch_of(node: Node, write: Write) -> tuple[Patch, str]:
    """The patch that brings `write` about, and the subresource that it goes to."""
    match write:
        case StatusWrite():
            return status_patch(node, write), STATUS
        case ObjectWrite():
            return object_patch(node, write), ""
        case _:
            assert_never(write)


def object_patch(node: Node, write: ObjectWrite) -> MergePatch:
    """One request that changes only what differs from `node`.

    The list of taints can only be sent whole, so a patch of it names the version of the node that
    it was made from: a taint which someone else added meanwhile makes it fail with a conflict.
    """
    metadata: dict[str, object] = _identity(node)
    spec: dict[str, object] = {}
    if write.labels:
        metadata["labels"] = dict(write.labels)
    if write.provider_id:
        spec["providerID"] = write.provider_id
    if write.untaint:
        others = [taint for taint in taints_of(node) if taint.key != UNINITIALIZED]
        spec["taints"] = msgspec.to_builtins(others) or None
    if spec:
        metadata["resourceVersion"] = node.metadata.resource_version
    return MergePatch({"metadata": metadata} | ({"spec": spec} if spec else {}))


def status_patch(node: Node, write: StatusWrite) -> Patch:
    """One request for `nodes/status`.

    Addresses alone are a JSON merge patch, which replaces the list. Conditions belong to many and
    can only be merged by the strategic kind, which merges addresses by type as well, unless told
    to replace them. Older servers take that directive for an address if they have no list, hence
    the version: `node` must have addresses, and so must the server.
    """
    if write.condition is None:
        addresses = _addresses(write.addresses or ())
        return MergePatch({"metadata": _identity(node), "status": {"addresses": addresses}})
    status: dict[str, object] = {"conditions": [msgspec.to_builtins(write.condition)]}
    metadata = _identity(node)
    if write.addresses is not None:
        status["addresses"] = [*_addresses(write.addresses), {"$patch": "replace"}]
        metadata["resourceVersion"] = node.metadata.resource_version
    return StrategicPatch({"metadata": metadata, "status": status})


def _identity(node: Node) -> dict[str, object]:
    """Names the very object: another node of the same name is refused."""
    return {"uid": node.metadata.uid} if node.metadata.uid else {}


def _addresses(addresses: tuple[NodeAddress, ...]) -> list[object]:
    return [msgspec.to_builtins(each) for each in addresses]
