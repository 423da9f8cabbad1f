"""Which nodes are members of load balancers: the Go framework's stable set without leaving nodes.

Members are the nodes of the load balancer's own cloud, or of all clouds if the Service asks for it.

A node's readiness makes no difference: load balancers check the health of their members
themselves, and an unhealthy control plane must not take traffic away from healthy nodes.

    node changes ──1 s──▶ NodeRounds ──▶ queues each Service whose load balancer needs other members
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pileus.cloud.errors import Misconfigured
from pileus.cloud.members import with_known_id
from pileus.cloud.model import NodeRef
from pileus.cloud.selectors import Selector
from pileus.controllers.service.annotations import MemberScope
from pileus.controllers.service.notes import Note, Notes
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import provider_id_of, reference, taints_of
from pileus.objects.ownership import Ownership, Whose
from pileus.runtime.memory import PerObject
from pileus.runtime.queue import Priority, WorkQueue
from pileus.runtime.reconcile import DONE, Result
from pileus.settings.go_bool import go_bool
from pileus.telemetry.metrics import Metrics

EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
LEAVING = "ToBeDeletedByClusterAutoscaler"
"""The key of the taint that the cluster autoscaler sets before it deletes a node."""
FRESH = 2.0
"""Seconds for which one list of nodes serves all second checks."""
MEMBERS = "members"
"""The only key of the node queue."""
Comparison = tuple[int, int]
"""Of two sets of members, by identity."""
GATHER = 1.0
"""Seconds for which the first change of a burst waits for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRules:
    whose: Whose
    drain_cordoned: bool = False
    labels: frozenset[str] | None = frozenset()
    """Keys of labels whose change is a change of members (`Abilities.member_labels`); None: all,
    because annotations of Services select members."""

    def is_member(self, node: Node, scope: MemberScope = MemberScope.CLOUD) -> bool:
        """Returns whether load balancers send traffic to the node.

        A node of another cloud is a member only of load balancers with nodes of all clouds.
        """
        is_in_scope = scope is MemberScope.ALL or not self.is_foreign(node)
        return is_in_scope and self.is_candidate(node)

    def is_candidate(self, node: Node) -> bool:
        """Returns whether the node is a member, provided that it is a machine of this cloud."""
        if node.metadata.deletion_timestamp or is_excluded(node):
            return False
        if any(taint.key == LEAVING for taint in taints_of(node)):
            return False
        return not (self.drain_cordoned and node.spec is not None and node.spec.unschedulable)

    def is_foreign(self, node: Node) -> bool:
        return self.whose(node) is Ownership.FOREIGN


def is_excluded(node: Node) -> bool:
    """Returns whether the node has the label that excludes it, with any value but false."""
    value = (node.metadata.labels or {}).get(EXCLUDED)
    return value is not None and go_bool(value) is not False


def means_the_same(
    one: NodeRef | None, other: NodeRef | None, labels: frozenset[str] | None = frozenset()
) -> bool:
    """Returns whether load balancers treat both alike: of labels, only the named ones count."""
    return _facts(one) == _facts(other) and _named(one, labels) == _named(other, labels)


def _named(ref: NodeRef | None, labels: frozenset[str] | None) -> dict[str, str]:
    if ref is None:
        return {}
    keys = ref.labels.keys() if labels is None else labels & ref.labels.keys()
    return {key: ref.labels[key] for key in keys}


def facts_of(members: Iterable[NodeRef]) -> frozenset[object]:
    """Returns everything about the members that makes a difference to load balancers."""
    return frozenset((_facts(ref), frozenset(ref.labels.items())) for ref in members)


def _facts(ref: NodeRef | None) -> tuple[object, ...] | None:
    return ref and (ref.name, ref.provider_id, ref.addresses)


class MemberSet:
    """The members of all load balancers with one scope: the same object until a member changes."""

    def __init__(self, scope: MemberScope, rules: MemberRules, changed: Callable[[], None]) -> None:
        self._scope = scope
        self._rules = rules
        self._changed = changed
        self._refs = PerObject[str, NodeRef]("nodes/members")
        self._left = PerObject[str, NodeRef]("nodes/former-members", ends_with_object=True)
        """Members whose Node was deleted a moment ago, by UID: it may register again."""
        self._set: frozenset[NodeRef] | None = frozenset()

    def now(self) -> frozenset[NodeRef]:
        if self._set is None:
            self._set = frozenset(self._refs.values())
        return self._set

    def of(self, nodes: Iterable[Node]) -> frozenset[NodeRef]:
        """Returns the members among these nodes."""
        rules, scope = self._rules, self._scope
        return frozenset(self._reference(node) for node in nodes if rules.is_member(node, scope))

    def put(self, node: Node) -> None:
        is_member = self._rules.is_member(node, self._scope)
        self._note(node.metadata.name, self._reference(node) if is_member else None)

    def remove(self, node: Node) -> None:
        former = self._refs.get(node.metadata.name)
        if former is not None:
            self._left[node.metadata.uid] = former
        self._note(node.metadata.name, None)

    def _reference(self, node: Node) -> NodeRef:
        """Returns the node; one that registered again keeps the provider ID of its machine."""
        ref = reference(node)
        for known in (self._refs.get(ref.name), *self._left.values()):
            ref = with_known_id(ref, known)
        return ref

    def _note(self, name: str, ref: NodeRef | None) -> None:
        before = self._refs.get(name)
        if ref == before:
            return
        self._set = None
        if ref is None:
            del self._refs[name]
        else:
            self._refs[name] = ref
        if not means_the_same(ref, before, self._rules.labels):
            self._changed()


@dataclass(frozen=True, slots=True)
class NodeList:
    """A list of all nodes from the API server, and the members according to it."""

    time: float
    nodes: Sequence[Node]
    members: dict[MemberScope, frozenset[NodeRef]] = field(
        default_factory=dict[MemberScope, frozenset[NodeRef]]
    )


class Membership:
    """The members of all load balancers: of those with nodes of this cloud, and of all clouds.

    Handles an informer's events of nodes, and calls `changed` if load balancers are affected.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Sequence[Node]]],
        changed: Callable[[], None],
        rules: MemberRules,
    ) -> None:
        self._read = read
        self._rules = rules
        self._knows_ours = False
        """Whether any node of this cloud was ever seen."""
        self._sets = {scope: MemberSet(scope, rules, changed) for scope in MemberScope}
        self._fresh: NodeList | None = None
        self._reading = asyncio.Lock()

    def now(self, scope: MemberScope) -> frozenset[NodeRef]:
        return self._sets[scope].now()

    async def second_check(self, scope: MemberScope) -> frozenset[NodeRef]:
        """Returns the members according to a new list of all nodes from the API server.

        Raises KubeError if the list fails. Raises Misconfigured if all nodes belong to other clouds
        and always did: then the provider probably does not recognise its own nodes.
        """
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._fresh is None or now - self._fresh.time > FRESH:
                self._fresh = NodeList(now, await self._read())
            known = self._fresh.members
            if scope not in known:
                known[scope] = self._members(self._fresh.nodes, scope)
            return known[scope]

    def added(self, new: Node, /) -> None:
        self._knows_ours = self._knows_ours or not self._rules.is_foreign(new)
        for each in self._sets.values():
            each.put(new)

    def updated(self, old: Node, new: Node, /) -> None:  # noqa: ARG002 -- as handlers are called
        """A node that has not changed counts too: it may have been assigned to another cloud."""
        self.added(new)

    def deleted(self, old: Node, /) -> None:
        for each in self._sets.values():
            each.remove(old)

    def _members(self, nodes: Sequence[Node], scope: MemberScope) -> frozenset[NodeRef]:
        members = self._sets[scope].of(nodes)
        candidates = [node for node in nodes if self._rules.is_candidate(node)]
        if candidates and not members and not self._knows_ours:
            one = candidates[0]
            raise Misconfigured(
                f"all nodes belong to other clouds, such as {one.metadata.name} with provider ID "
                f"{provider_id_of(one)}. The load balancer keeps its members. Fix: check "
                "--cloud-provider; a provider must recognise the provider IDs of its own nodes"
            )
        return members


class NodeRounds:
    """Queues each Service whose load balancer was last given other members than the current ones.

    A Service that is failing or waiting gets them with its next pass. A running pass began with
    earlier members: its result is compared with the current members when it ends.
    """

    def __init__(
        self,
        notes: Notes,
        members: Callable[[str, Selector], frozenset[NodeRef]],
        queue: WorkQueue[str],
        metrics: Metrics,
    ) -> None:
        """`members` returns the current members for a Service (its UID) with this selector."""
        self._notes = notes
        self._members = members
        self._queue = queue
        self._metrics = metrics
        self._began = 0.0
        self._open = PerObject[str, bool]("services/member-updates")
        """Services that the rounds affect, and whether a pass was running in the latest round."""

    async def reconcile(self, key: str) -> Result:  # noqa: ARG002 -- there is only one
        known: dict[Comparison, bool] = {}
        for uid, note in self._notes.items():
            is_running = self._queue.is_held(uid)
            if is_running or self._differs(uid, note, known):
                self._touch(uid, is_running=is_running)
        return DONE

    def finished(self, uid: str) -> None:
        """Handle the end of a pass over the Service, successful or not.

        Queues the Service again if a round ran during the pass and the load balancer was not given
        the current members: once per round, so this ends when the nodes stop changing.
        """
        if uid not in self._open:
            return
        note = self._notes.find(uid)
        if self._open[uid] and note and self._differs(uid, note, {}):
            self._touch(uid, is_running=False)
            return
        del self._open[uid]
        if not self._open:
            elapsed = asyncio.get_running_loop().time() - self._began
            self._metrics.node_round_duration.observe(elapsed)

    def _touch(self, uid: str, *, is_running: bool) -> None:
        """Queue the Service now, or at the end of the running pass if it is still needed then."""
        if not self._open:
            self._began = asyncio.get_running_loop().time()
        self._open[uid] = is_running
        if not is_running:
            self._queue.add(uid, Priority.REFRESH)

    def _differs(self, uid: str, note: Note, known: "dict[Comparison, bool]") -> bool:
        """Returns whether the Service was given other members than it should have now.

        Two sets that many Services share, the given and the current members, are compared once.
        """
        if note.settled is None or note.settled.spec is None or note.failing is not None:
            return False
        given = note.settled.spec.members
        current = self._members(uid, note.settled.selector)
        both = id(given), id(current)
        if both not in known:
            known[both] = facts_of(given) != facts_of(current)
        return known[both]
