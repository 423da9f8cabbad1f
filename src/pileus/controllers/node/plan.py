"""What is to be written to a node, and why it is not as it should be. Pure: no I/O, no clock.

A new node costs two writes at most. The status goes first, the taint last: whoever dies in
between leaves a node that is still tainted, and the next pass finishes it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from pileus.cloud.model import no_labels
from pileus.controllers.node.addresses import check_node_ip, desired_addresses, same_addresses
from pileus.controllers.node.labels import completed, differing, missing
from pileus.controllers.node.observation import Facts
from pileus.kube.model.core_v1 import Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus
from pileus.objects.conditions import Said, lowered, raised
from pileus.objects.nodes import (
    UNINITIALIZED,
    addresses_of,
    condition_of,
    is_uninitialized,
    taints_of,
)

CONDITION = "CloudProviderUninitialized"
"""True while initialization fails, for the reason given; like the other conditions, bad if true."""
SETTLED = Said("NodeInitialized", "the cloud's facts are on the node")


@dataclass(frozen=True, slots=True)
class StatusWrite:
    """Replace the addresses, set our condition; None leaves either alone."""

    addresses: tuple[NodeAddress, ...] | None = None
    condition: NodeCondition | None = None


@dataclass(frozen=True, slots=True)
class ObjectWrite:
    """Set a provider ID and labels; take the taint off, whatever other taints there are."""

    provider_id: str = ""
    labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    untaint: bool = False


Write = StatusWrite | ObjectWrite
Decide = Callable[[Node], Write | None]
"""What to write to a node as it is now; None: nothing."""


def initialization(facts: Facts, now: datetime) -> tuple[Decide, Decide, Decide]:
    """The decisions of a pass over a new node, in order; the second takes the taint off."""
    return (
        lambda node: initial_status(node, facts, now),
        lambda node: initial_object(node, facts),
        lambda node: settled_status(node, now),
    )


def settlement(now: datetime) -> tuple[Decide, ...]:
    """The decisions of a pass over an initialized node; they need nothing from the cloud."""
    return (lambda node: settled_status(node, now), settled_object)


def refreshment(facts: Facts, *, sync_labels: bool) -> tuple[Decide, ...]:
    """The decisions of a round over an initialized node."""
    labels: tuple[Decide, ...] = (
        (lambda node: refreshed_object(node, facts),) if sync_labels else ()
    )
    return (*labels, lambda node: refreshed_status(node, facts))


def is_settled(node: Node) -> bool:
    """Whether rounds are for it; one without a status could not be read, or is odd."""
    odd = not node.metadata.name or node.status is None
    return not odd and not node.metadata.deletion_timestamp and not is_uninitialized(node)


def expected(node: Node, write: Write) -> Node:
    """The node as a write leaves it if no other process writes in between."""
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
    return replace(node, spec=spec, metadata=replace(node.metadata, labels=labels))


def is_worth_a_pass(old: Node, new: Node) -> bool:
    """Whether a pass over `new` may do anything that one over `old` would not.

    A heartbeat is not; nor is a condition on a node that is stuck, or telling it would wake it.
    """
    return _looked_at(old) != _looked_at(new)


def initial_status(node: Node, facts: Facts, now: datetime) -> StatusWrite | None:
    """The first write to a new node; None if its status is right.

    Our condition is turned off in the same request, unless the node has no addresses at all: no
    patch can merge conditions and set a new list safely, so `settled_status` does it afterwards.

    Errors: `NodeIpRefused`.
    """
    check_node_ip(node, facts.addresses)
    addresses = _changed_addresses(node, facts)
    apart = addresses is not None and not addresses_of(node)
    return _status(addresses, None if apart else cleared_condition(node, now))


def initial_object(node: Node, facts: Facts) -> ObjectWrite | None:
    """The second and last write to a new node; None if someone else has initialized it."""
    if not is_uninitialized(node):
        return None
    labels = node.metadata.labels or {}
    has_id = bool(node.spec and node.spec.provider_id)
    return ObjectWrite(
        provider_id="" if has_id else facts.provider_id,
        labels=differing(labels, facts.standard_labels) | missing(labels, facts.additional_labels),
        untaint=True,
    )


def settled_status(node: Node, now: datetime) -> StatusWrite | None:
    """What is left to say of an initialized node: that it is no longer stuck."""
    return _status(None, cleared_condition(node, now))


def settled_object(node: Node) -> ObjectWrite | None:
    """Give an initialized node the stable labels of which it has only the deprecated twins."""
    return _labels(completed(node.metadata.labels or {}))


def refreshed_status(node: Node, facts: Facts) -> StatusWrite | None:
    """Keep an initialized node's addresses as the cloud has them.

    An answer that is wrong in part is no reason to take addresses away: then nothing changes.

    Errors: `NodeIpRefused`.
    """
    if facts.bad_addresses:
        return None
    return _status(_changed_addresses(node, facts), None)


def refreshed_object(node: Node, facts: Facts) -> ObjectWrite | None:
    """Keep an initialized node's labels as the cloud has them; none is ever removed."""
    wanted = {**facts.additional_labels, **facts.standard_labels}
    return _labels(differing(node.metadata.labels or {}, wanted))


def stuck_status(node: Node, reason: str, message: str, now: datetime) -> StatusWrite | None:
    """Say on the node why it is not initialized; None if it says so already."""
    return _status(None, raised(node, CONDITION, Said(reason, message), now))


def cleared_condition(node: Node, now: datetime) -> NodeCondition | None:
    """Our condition, turned off; None if it is off or was never on."""
    return lowered(node, CONDITION, SETTLED, now)


def age(node: Node, now: datetime) -> float | None:
    """Seconds since the node was registered; None if it does not say."""
    born = node.metadata.creation_timestamp
    return None if born is None else max((now - born).total_seconds(), 0.0)


def _looked_at(node: Node) -> tuple[Node, NodeCondition | None]:
    """The node without what no decision is made from."""
    condition = None if is_uninitialized(node) else condition_of(node, CONDITION)
    metadata = replace(node.metadata, resource_version="")
    status = node.status and replace(node.status, conditions=None)
    return replace(node, metadata=metadata, status=status), condition


def _changed_addresses(node: Node, facts: Facts) -> tuple[NodeAddress, ...] | None:
    wanted = desired_addresses(node, facts.addresses)
    return None if same_addresses(addresses_of(node), wanted) else wanted


def _status(
    addresses: tuple[NodeAddress, ...] | None, condition: NodeCondition | None
) -> StatusWrite | None:
    return StatusWrite(addresses, condition) if addresses is not None or condition else None


def _labels(labels: Mapping[str, str]) -> ObjectWrite | None:
    return ObjectWrite(labels=labels) if labels else None
