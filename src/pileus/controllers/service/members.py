"""Which nodes are members of balancers: the Go framework's stable set, and none that leaves. Pure.

A node's readiness makes no difference: balancers check the health of members themselves, and a
control plane that is ill must not take traffic away from nodes that are well.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pileus.cloud.model import NodeRef
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import taints_of
from pileus.objects.ownership import Ownership, Whose
from pileus.settings.go_bool import go_bool

EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
LEAVING = "ToBeDeletedByClusterAutoscaler"
"""The key of the taint by which the autoscaler says that the node is about to go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRules:
    whose: Whose
    drain_cordoned: bool = False
    labels: frozenset[str] = frozenset()
    """Keys of labels whose change is a change of members (`Abilities.member_labels`)."""

    def is_member(self, node: Node) -> bool:
        """Whether balancers send traffic to the node. Nodes of other clouds are never members."""
        return not self.is_foreign(node) and self.is_candidate(node)

    def is_candidate(self, node: Node) -> bool:
        """Whether the node is a member if it is a machine of this cloud."""
        if node.metadata.deletion_timestamp or is_excluded(node):
            return False
        if any(taint.key == LEAVING for taint in taints_of(node)):
            return False
        return not (self.drain_cordoned and node.spec is not None and node.spec.unschedulable)

    def is_foreign(self, node: Node) -> bool:
        return self.whose(node) is Ownership.FOREIGN


def is_excluded(node: Node) -> bool:
    """By its label, whose value may be anything but a word for false."""
    value = (node.metadata.labels or {}).get(EXCLUDED)
    return value is not None and go_bool(value) is not False


def means_the_same(
    one: NodeRef | None, other: NodeRef | None, labels: frozenset[str] = frozenset()
) -> bool:
    """Whether no balancer could tell the difference: labels make none but those named."""
    return _facts(one) == _facts(other) and _named(one, labels) == _named(other, labels)


def _named(ref: NodeRef | None, labels: frozenset[str]) -> dict[str, str]:
    return {key: ref.labels[key] for key in labels & ref.labels.keys()} if ref and labels else {}


def facts_of(members: Iterable[NodeRef]) -> frozenset[object]:
    """All that balancers may know of the members."""
    return frozenset((_facts(ref), frozenset(ref.labels.items())) for ref in members)


def _facts(ref: NodeRef | None) -> tuple[object, ...] | None:
    return ref and (ref.name, ref.provider_id, ref.addresses)
