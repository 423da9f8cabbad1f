"""Properties of nodes that all controllers read. Pure."""

from pileus.cloud.model import NO_LABELS, Address, AddressType, NodeName, NodeRef
from pileus.kube.model.core_v1 import Node, NodeAddress, NodeCondition, ObjectReference, Taint

UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
"""The key of the taint with which kubelets register nodes. Its value and effect do not matter."""
READY = "Ready"
ADDRESS_TYPES = {each.value: each for each in AddressType}
MOST_ADDRESSES = 1000
"""Addresses of a node that providers get. A kubelet may report 20,000 for its node."""


def is_uninitialized(node: Node) -> bool:
    for taint in (node.spec and node.spec.taints) or ():  # noqa: SIM110 -- a pass asks 20 times
        if taint.key == UNINITIALIZED:
            return True
    return False


def taints_of(node: Node) -> tuple[Taint, ...]:
    return (node.spec and node.spec.taints) or ()


def addresses_of(node: Node) -> tuple[NodeAddress, ...]:
    return (node.status and node.status.addresses) or ()


def condition_of(node: Node, kind: str) -> NodeCondition | None:
    conditions = (node.status and node.status.conditions) or ()
    return next((each for each in conditions if each.type == kind), None)


def is_ready(node: Node) -> bool:
    """Returns whether the node has the condition Ready with status True."""
    ready = condition_of(node, READY)
    return ready is not None and ready.status == "True"


def provider_id_of(node: Node) -> str:
    return (node.spec and node.spec.provider_id) or ""


def is_unchecked_claim(node: Node) -> bool:
    """Whether the node came with a provider ID, and the node controller has not accepted it yet.

    Any kubelet can claim any machine so: nothing is done with that machine for the node.
    """
    return is_uninitialized(node) and bool(provider_id_of(node))


def reference(node: Node) -> NodeRef:
    """Returns the node in the form that providers get."""
    info = node.status.node_info if node.status else None
    return NodeRef(
        name=NodeName(node.metadata.name),
        provider_id=provider_id_of(node),
        system_uuid=(info and info.system_uuid) or "",
        addresses=tuple(
            Address(ADDRESS_TYPES.get(each.type, each.type), each.address)
            for each in addresses_of(node)[:MOST_ADDRESSES]
        ),
        labels=node.metadata.labels or NO_LABELS,
        annotations=node.metadata.annotations or NO_LABELS,
    )


def about_node(node: Node) -> ObjectReference:
    """Returns the reference of the node in events, which has no namespace."""
    return ObjectReference(
        api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid
    )
