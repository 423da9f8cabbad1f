"""The writes to a node: as values, what they leave of a node, and their patches. Pure."""

from collections.abc import Mapping
from dataclasses import field
from typing import assert_never

import msgspec
from msgspec.structs import replace

from pileus.cloud.model import no_labels
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, Taint
from pileus.kube.patch import MergePatch, Patch, StrategicPatch
from pileus.objects.nodes import UNINITIALIZED, taints_of

STATUS = "status"
TAINT = Taint(key=UNINITIALIZED, value="true", effect="NoSchedule")


@dataclass(frozen=True, slots=True)
class StatusWrite:
    """Replaces the addresses and sets our condition; None leaves the field unchanged."""

    addresses: tuple[NodeAddress, ...] | None = None
    condition: NodeCondition | None = None


@dataclass(frozen=True, slots=True)
class ObjectWrite:
    """Sets the provider ID and labels; removes or sets the taint, and keeps all other taints."""

    provider_id: str = ""
    labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    untaint: bool = False
    taint: bool = False
    """Sets the taint of a new node on one that lacks it."""


Write = StatusWrite | ObjectWrite


def expected(node: Node, write: Write) -> Node:
    """Returns the node as a write leaves it if no other process writes in between."""
    if isinstance(write, StatusWrite):
        status = node.status or NodeStatus()
        if write.addresses is not None:
            status = replace(status, addresses=write.addresses)
        if (new := write.condition) is not None:
            others = tuple(each for each in status.conditions or () if each.type != new.type)
            status = replace(status, conditions=(*others, new))
        return replace(node, status=status)
    labels = {**(node.metadata.labels or {}), **write.labels}
    spec = node.spec or NodeSpec()
    if write.provider_id:
        spec = replace(spec, provider_id=write.provider_id)
    if write.untaint:
        left = tuple(taint for taint in taints_of(node) if taint.key != UNINITIALIZED)
        spec = replace(spec, taints=left or None)
    if write.taint:
        spec = replace(spec, taints=(*taints_of(node), TAINT))
    return replace(node, spec=spec, metadata=replace(node.metadata, labels=labels))


def patch_of(node: Node, write: Write) -> tuple[Patch, str]:
    """Returns the patch that makes the write, and the subresource that it is sent to."""
    match write:
        case StatusWrite():
            return status_patch(node, write), STATUS
        case ObjectWrite():
            return object_patch(node, write), ""
        case _:
            assert_never(write)


def object_patch(node: Node, write: ObjectWrite) -> MergePatch:
    """One request that changes only what differs from `node`.

    The list of taints can only be replaced as a whole, so the patch names the version of the node
    that it was made from. It fails with a conflict if another process added a taint meanwhile.
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
    if write.taint:
        spec["taints"] = msgspec.to_builtins((*taints_of(node), TAINT))
    if spec:
        metadata["resourceVersion"] = node.metadata.resource_version
    return MergePatch({"metadata": metadata} | ({"spec": spec} if spec else {}))


def status_patch(node: Node, write: StatusWrite) -> Patch:
    """One request for `nodes/status`.

    Addresses alone are a JSON merge patch, which replaces the list. Conditions belong to several
    controllers and are merged by a strategic patch, which merges addresses by type as well unless
    a directive replaces them. Older API servers take that directive for an address if the node has
    no addresses. So the patch names the version: `node` must have addresses.
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
    """Returns the precondition: the API server rejects the patch for a node with another UID."""
    return {"uid": node.metadata.uid} if node.metadata.uid else {}


def _addresses(addresses: tuple[NodeAddress, ...]) -> list[object]:
    return [msgspec.to_builtins(each) for each in addresses]
