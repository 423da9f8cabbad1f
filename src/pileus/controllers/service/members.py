"""Which nodes are members of load balancers: the Go framework's stable set without leaving nodes.

Members are the nodes of the load balancer's own cloud, or of all clouds if the Service asks for it.

A node's readiness makes no difference: load balancers check the health of their members
themselves, and an unhealthy control plane must not take traffic away from healthy nodes.

    node changes ──▶ Gathering ──▶ NodeRounds ──▶ queues each Service that needs other members
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import field
from functools import lru_cache
from math import inf

from pileus.cloud.abilities import Abilities
from pileus.cloud.balancer import REACHABLE
from pileus.cloud.errors import Misconfigured
from pileus.cloud.members import with_known_id
from pileus.cloud.model import NodeRef
from pileus.cloud.selectors import EVERY_NODE, Selector
from pileus.controllers.service.annotations import MemberScope
from pileus.controllers.service.notes import Note, Notes
from pileus.dataclass import dataclass
from pileus.fix import quoted
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import (
    addresses_of,
    is_unchecked_claim,
    is_uninitialized,
    provider_id_of,
    reference,
    taints_of,
)
from pileus.objects.ownership import Ownership, Whose
from pileus.runtime.memory import PerObject
from pileus.runtime.queue import Priority, WorkQueue
from pileus.runtime.reconcile import DONE, Result, again_in
from pileus.settings.go_bool import go_bool
from pileus.telemetry.metrics import Metrics

EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
LEAVING = "ToBeDeletedByClusterAutoscaler"
"""The key of the taint that the cluster autoscaler sets before it deletes a node."""
FRESH = 2.0
"""Seconds for which one list of nodes serves all second checks."""
MEMBERS = "members"
"""The only key of the node queue."""
TICK = 1e-3
"""Seconds by which an update may begin early: another pass would cost more."""
COMPARISONS = 16
"""Pairs of sets of members whose comparison is remembered."""
QUIET = 0.3
"""Seconds without a further change after which members are updated."""
QUIET_ALONE = 0.15
"""The same if one node changed, after a calm time, and is initialized."""
QUIET_TOGETHER = 0.5
"""The same if several nodes changed: others probably follow."""
QUIET_AFTER_REMOVAL = 1.0
"""The same after a member was removed: a node that registers again meanwhile stays a member."""
SHORTEST_BOUND, LONGEST_BOUND = 1.0, 12.0
"""Seconds for which the first change waits at most while others follow it."""
LONGEST_REMOVAL = 6.0
"""The same if a member was removed: traffic to it fails until health checks notice."""
NEW_NODE = 5.0
"""Seconds for which a new load balancer waits for a node that is about to be initialized."""
NEW_NODE_STEP = 0.5
"""Seconds after which it checks again."""
LONGEST_NEW_NODES = 10.0
"""Seconds for which it waits at most while further nodes are created."""
COST = 10.0
"""Within these limits it waits so many times as long as the last update of all members took."""


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A change of one node that affects load balancers."""

    node: str
    is_removal: bool = False
    """Whether the node is not a member any more."""
    is_initialized: bool = True
    """Whether the node has been initialized; otherwise it will change again."""


Changed = Callable[[MemberChange], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRules:
    whose: Whose
    is_of_another: Callable[[Node], bool] = lambda _: False
    """Whether a node provably belongs to another cloud of this manager."""
    drain_cordoned: bool = False
    labels: frozenset[str] | None = frozenset()
    """Keys of labels whose change is a change of members (`Abilities.member_labels`); None: all,
    because annotations of Services select members."""
    checks_claims: bool = True
    """Whether new nodes with a provider ID wait for the node controller. Not without Instances:
    that controller does not run then."""

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

    def is_unchecked(self, node: Node) -> bool:
        """Returns whether the node has a provider ID that the node controller is about to check."""
        return self.checks_claims and is_unchecked_claim(node)


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


@lru_cache(maxsize=COMPARISONS)
def differ(given: frozenset[NodeRef], current: frozenset[NodeRef]) -> bool:
    """Returns whether load balancers with these members treat nodes differently.

    Two sets that many Services share, the given and the current members, are compared once.
    """
    return given is not current and _all_facts(given) != _all_facts(current)


def _all_facts(members: frozenset[NodeRef]) -> frozenset[object]:
    """Returns everything about the members that makes a difference to load balancers."""
    return frozenset((_facts(ref), frozenset(ref.labels.items())) for ref in members)


def _facts(ref: NodeRef | None) -> tuple[object, ...] | None:
    return ref and (ref.name, ref.provider_id, ref.addresses)


class Gathering:
    """Decides when the changes of many nodes have been gathered and members are updated.

    An update costs a call to the cloud per load balancer. Nodes that join one after the other
    therefore share few updates: an update waits until nodes stop changing, up to a bound that is
    longer where updates take longer. A node that joins alone hardly waits.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._latest = -inf
        self._node: str | None = None
        """The node that changed, if it is the only one and nodes were calm before."""
        self._due = self._due_after_removal = 0.0
        self._bound = SHORTEST_BOUND

    def changed(self, now: float, change: MemberChange) -> None:
        """Record a change of members."""
        if self._first is None:
            self._first = now
            self._node = change.node if now - self._latest >= self._bound else None
        elif self._node != change.node:
            self._node = None
        self._latest = now
        self._due = now + self._quiet(change)
        if change.is_removal:
            self._due_after_removal = now + QUIET_AFTER_REMOVAL

    def wait(self, now: float) -> float:
        """Returns the seconds until members are to be updated; 0 or less: now."""
        if self._first is None:
            return 0.0
        has_removal = self._due_after_removal > self._first
        bound = min(self._bound, LONGEST_REMOVAL) if has_removal else self._bound
        due = max(self._due, self._due_after_removal) if has_removal else self._due
        return min(due, self._first + bound) - now

    def began(self) -> None:
        """Record that an update begins: later changes belong to the next one."""
        self._first, self._due_after_removal = None, 0.0

    def ended(self, seconds: float) -> None:
        """Record how long an update of all load balancers took."""
        self._bound = min(max(COST * seconds, SHORTEST_BOUND), LONGEST_BOUND)

    def _quiet(self, change: MemberChange) -> float:
        if self._node is None:
            return QUIET_TOGETHER
        return QUIET_ALONE if change.is_initialized else QUIET


class MemberSet:
    """The members of all load balancers with one scope: the same object until a member changes."""

    def __init__(self, scope: MemberScope, rules: MemberRules, changed: Changed) -> None:
        self._scope = scope
        self._rules = rules
        self._changed = changed
        self._refs = PerObject[str, NodeRef]("nodes/members")
        self._uids = PerObject[str, str]("nodes/members")
        """UIDs of the Nodes with which members were initialized."""
        self._left = PerObject[str, NodeRef]("nodes/former-members", ends_with_object=True)
        """Members whose Node was deleted a moment ago, by UID: it may register again."""
        self._set: frozenset[NodeRef] | None = frozenset()

    def now(self) -> frozenset[NodeRef]:
        if self._set is None:
            self._set = frozenset(self._refs.values())
        return self._set

    def of(self, nodes: Iterable[Node]) -> frozenset[NodeRef]:
        """Returns the members among these nodes."""
        found = (reference(node) for node in nodes if self._is_member(node))
        return frozenset(map(self._identified, found))

    def put(self, node: Node, ref: NodeRef) -> None:
        """`ref` is the node; sets with other scopes keep the same object."""
        self._note(node, self._identified(ref) if self._is_member(node) else None)

    def _is_member(self, node: Node) -> bool:
        """A node with a provider ID that was not checked yet is none, unless it registers again."""
        if not self._rules.is_member(node, self._scope):
            return False
        return not self._rules.is_unchecked(node) or self._registers_again(node)

    def _registers_again(self, node: Node) -> bool:
        """Returns whether a former Node of this name was a member with the same provider ID."""
        name, uid, claimed = node.metadata.name, node.metadata.uid, provider_id_of(node)
        former = [ref for key, ref in self._left.items() if key != uid]
        if self._uids.get(name, uid) != uid:
            former += [self._refs[name]]
        return any((ref.name, ref.provider_id) == (name, claimed) for ref in former)

    def remove(self, node: Node) -> None:
        former = self._refs.get(node.metadata.name)
        if former is not None:
            self._left[node.metadata.uid] = former
        self._note(node, None)

    def _identified(self, ref: NodeRef) -> NodeRef:
        """Returns the node; one that registered again keeps the provider ID of its machine."""
        for known in (self._refs.get(ref.name), *self._left.values()):
            ref = with_known_id(ref, known)
        return ref

    def _note(self, node: Node, ref: NodeRef | None) -> None:
        name = node.metadata.name
        before = self._refs.get(name)
        if ref == before:
            return
        self._set = None
        if ref is None:
            del self._refs[name]
            self._uids.pop(name, None)
        else:
            self._refs[name] = ref
            if not self._rules.is_unchecked(node):
                self._uids[name] = node.metadata.uid
        if not means_the_same(ref, before, self._rules.labels):
            change = MemberChange(name, ref is None, not is_uninitialized(node))
            self._changed(change)


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
        changed: Changed,
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

        Raises KubeError if the list fails. Raises Misconfigured if all nodes belong to clouds that
        the manager does not have, and always did: then the provider probably does not recognise
        its own nodes; or if the
        node controller has checked none yet: those that registered again while no manager ran may
        be the members that there are.
        """
        async with self._reading:
            now = _now()
            if self._fresh is None or now - self._fresh.time > FRESH:
                self._fresh = NodeList(now, await self._read())
            known = self._fresh.members
            if scope not in known:
                known[scope] = self._members(self._fresh.nodes, scope)
            return known[scope]

    def added(self, new: Node, /) -> None:
        self._knows_ours = self._knows_ours or not self._rules.is_foreign(new)
        ref = reference(new)
        for each in self._sets.values():
            each.put(new, ref)

    def updated(self, old: Node, new: Node, /) -> None:  # noqa: ARG002 -- as handlers are called
        """A node that has not changed counts too: it may have been assigned to another cloud."""
        self.added(new)

    def deleted(self, old: Node, /) -> None:
        for each in self._sets.values():
            each.remove(old)

    def _members(self, nodes: Sequence[Node], scope: MemberScope) -> frozenset[NodeRef]:
        members = self._sets[scope].of(nodes)
        candidates = [node for node in nodes if self._rules.is_candidate(node)]
        if members or not candidates:
            return members
        unchecked = next((node for node in candidates if self._is_unchecked(node, scope)), None)
        if unchecked is not None:
            name = unchecked.metadata.name
            raise Misconfigured(
                "no node of this cloud is initialized, and the provider IDs that they claim are "
                f"not checked: {name} claims {quoted(provider_id_of(unchecked))}. The load "
                f"balancer keeps its members. To see what is missing: kubectl describe node {name}"
            )
        unrecognised = [node for node in candidates if not self._rules.is_of_another(node)]
        if unrecognised and not self._knows_ours:
            one = unrecognised[0]
            raise Misconfigured(
                f"all nodes belong to other clouds, such as {one.metadata.name} with provider ID "
                f"{quoted(provider_id_of(one))}. The load balancer keeps its members. Fix: check "
                "--cloud-provider; a provider must recognise the provider IDs of its own nodes"
            )
        return members

    def _is_unchecked(self, node: Node, scope: MemberScope) -> bool:
        return self._rules.is_member(node, scope) and self._rules.is_unchecked(node)


class NewNodes:
    """Nodes that can be members only after they are initialized, which takes a moment.

    A new load balancer waits for them: without members it would be built, and then changed again
    for each group of nodes that follows. Handles an informer's events of nodes.
    """

    def __init__(self, rules: MemberRules, abilities: Abilities) -> None:
        self._rules = rules
        self._abilities = abilities
        self._since = PerObject[str, float]("nodes/new-members", ends_with_object=True)
        """When each of them was first seen, by UID."""
        self._waiting = PerObject[str, float]("services/new-members", ends_with_object=True)
        """When each Service began to wait, by UID."""

    def wait(self, service: str) -> float:
        """Returns the seconds after which the Service asks again; 0: its members are known."""
        now = _now()
        if all(now - since >= NEW_NODE for since in self._since.values()):
            self._waiting.pop(service, None)
            return 0.0
        began = self._waiting.setdefault(service, now)
        return NEW_NODE_STEP if now - began < LONGEST_NEW_NODES else 0.0

    def added(self, new: Node, /) -> None:
        uid = new.metadata.uid
        if self._is_awaited(new):
            self._since.setdefault(uid, _now())
        else:
            self._since.pop(uid, None)

    def updated(self, old: Node, new: Node, /) -> None:  # noqa: ARG002 -- as handlers are called
        self.added(new)

    def deleted(self, old: Node, /) -> None:
        self._since.pop(old.metadata.uid, None)

    def _is_awaited(self, node: Node) -> bool:
        if not is_uninitialized(node) or not self._rules.is_member(node):
            return False
        by_address = self._abilities.members_by_address
        lacks_address = by_address and not any(
            each.type in REACHABLE for each in addresses_of(node)
        )
        lacks_id = self._abilities.members_by_provider_id and not provider_id_of(node)
        return lacks_address or lacks_id or (by_address and self._rules.is_unchecked(node))


class NodeRounds:
    """Queues each Service whose load balancer was last given other members than the current ones.

    A Service that is failing is tried again at once, its members first: they must not stay
    outdated for as long as its back-off lasts. One that is waiting gets them with its next pass. A
    running pass began with earlier members: its result is compared with the current members when
    it ends.
    """

    def __init__(
        self,
        notes: Notes,
        members: Callable[[str, Selector], frozenset[NodeRef]],
        queue: WorkQueue[str],
        gathering: Gathering,
        metrics: Metrics,
        began: Callable[[], None] = lambda: None,
    ) -> None:
        """`members` returns the current members for a Service (its UID) with this selector.

        `began` is called when a round begins.
        """
        self._on_begin = began
        self._gathering = gathering
        self._notes = notes
        self._members = members
        self._queue = queue
        self._metrics = metrics
        self._began = 0.0
        self._open = PerObject[str, bool]("services/member-updates")
        """Services that the rounds affect, and whether a pass was running in the latest round."""

    async def reconcile(self, key: str) -> Result:  # noqa: ARG002 -- there is only one
        wait = self._gathering.wait(_now())
        if wait > TICK:
            return again_in(wait)
        self._gathering.began()
        self._on_begin()
        for uid, note in self._notes.items():
            is_running = self._queue.is_held(uid)
            if is_running or self._differs(uid, note):
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
        if self._open[uid] and note and self._differs(uid, note):
            self._touch(uid, is_running=False)
            return
        del self._open[uid]
        if not self._open:
            elapsed = _now() - self._began
            self._metrics.node_round_duration.observe(elapsed)
            self._gathering.ended(elapsed)

    def _touch(self, uid: str, *, is_running: bool) -> None:
        """Queue the Service now, or at the end of the running pass if it is still needed then."""
        if not self._open:
            self._began = _now()
        self._open[uid] = is_running
        if not is_running:
            self._queue.add(uid, Priority.REFRESH)

    def _differs(self, uid: str, note: Note) -> bool:
        """Returns whether the Service was given other members than it should have now."""
        if note.failing is not None:
            had = note.failing.members
            return had is not None and differ(had, self._members(uid, EVERY_NODE))
        if note.settled is None or note.settled.spec is None:
            return False
        return differ(note.settled.spec.members, self._members(uid, note.settled.selector))


def _now() -> float:
    return asyncio.get_running_loop().time()
