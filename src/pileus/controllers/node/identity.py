"""Whether a node is the one of the machine whose provider ID it has.

A kubelet may create its Node with any provider ID, addresses and system UUID, and without the taint
of a new node. What it cannot choose is the name of the node (NodeRestriction). So a node that comes
with a provider ID has to have a name of that machine, and one machine has one node.

Nodes that exist without the taint when the process starts were accepted before, perhaps by another
program. A node that is refused later gets the taint, which a kubelet cannot remove: it is refused
after a restart, too.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import IntEnum

from pileus.cloud.errors import Rejected
from pileus.controllers.node.settings import IdentityRule
from pileus.dataclass import dataclass
from pileus.fix import one_line
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import is_uninitialized, provider_id_of
from pileus.runtime.memory import PerObject

_LAST = datetime.max.replace(tzinfo=UTC)


class IdentityRefused(Rejected):
    """The node is not the one of the machine whose provider ID it has; the text says why."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides whose machine it is."""

    provider_id: str
    names: frozenset[str] = frozenset()
    """Names that its node may have; empty: not known."""


def refusal(
    node: Node, machine: Machine, others: Iterable[Node], rule: IdentityRule
) -> IdentityRefused | None:
    """Returns why the node is not accepted as that of the machine; None if it is.

    `others` are initialized nodes with a provider ID of the machine, in any of its forms.
    """
    name, rank = node.metadata.name, _rank(node, machine)
    is_stranger = rank[0] is Match.NONE and bool(machine.names)
    if is_stranger and provider_id_of(node) and rule is IdentityRule.NAME:
        known = one_line(", ".join(sorted(machine.names)))
        return IdentityRefused(
            f"the machine with provider ID {one_line(machine.provider_id)} is named {known}, and "
            f"this node {name}: it may be another machine. Fix, if it is this machine: give "
            "the machine the name of the node, or start the manager with "
            "--node-identity=provider-id"
        )
    for other in sorted(others, key=_age):
        if _rank(other, machine) < rank:
            return IdentityRefused(
                f"node {other.metadata.name} has the same provider ID "
                f"{one_line(machine.provider_id)}, and one machine has one node. Fix: delete the "
                "one that is wrong (kubectl delete node NAME)"
            )
    return None


class Match(IntEnum):
    """How far the name of a node is one of its machine; the best is first."""

    FULL = 0
    """It is one of them, or one without its domain."""
    OTHER_DOMAIN = 1
    """It has a domain that the machine does not know."""
    NONE = 2


def _rank(node: Node, machine: Machine) -> tuple[Match, datetime, str]:
    """Returns what decides which of several nodes is the machine's: the least."""
    name, known = node.metadata.name.lower(), [each.lower() for each in machine.names]
    match = Match.OTHER_DOMAIN if has_name(name, known) else Match.NONE
    if name in known or name in {each.partition(".")[0] for each in known}:
        match = Match.FULL
    return match, *_age(node)


def has_name(node: str, names: Iterable[str]) -> bool:
    """Returns whether one of the names is the node's: in any case, with or without its domain."""
    wanted = node.lower()
    for name in map(str.lower, names):
        if name == wanted:
            return True
        is_short = "." not in name or "." not in wanted
        if is_short and name.partition(".")[0] == wanted.partition(".")[0]:
            return True
    return False


def _age(node: Node) -> tuple[datetime, str]:
    return node.metadata.creation_timestamp or _LAST, node.metadata.uid


class AcceptedNodes:
    """The nodes that were accepted as those of their machines."""

    def __init__(self, rule: IdentityRule = IdentityRule.NAME) -> None:
        self.rule = rule
        self._accepted: PerObject[str, str] | None = None
        """Provider IDs by the UID of the node; None: not started, all nodes are accepted."""

    def start(self, nodes: Iterable[Node]) -> None:
        """Accept the initialized ones of the nodes that exist."""
        self._accepted = PerObject[str, str]("nodes/accepted", ends_with_object=True)
        for node in nodes:
            if not is_uninitialized(node):
                self.accept(node, provider_id_of(node))

    def accept(self, node: Node, provider_id: str) -> None:
        if self._accepted is not None:
            self._accepted[node.metadata.uid] = provider_id

    def is_claim(self, node: Node) -> bool:
        """Whether the node has a provider ID that was not checked yet."""
        claimed = provider_id_of(node)
        if not claimed or self._accepted is None:
            return False
        return self._accepted.get(node.metadata.uid) != claimed
