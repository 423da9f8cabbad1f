"""The members of balancers as the cluster has them: kept between changes, looked at twice."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pileus.cloud.errors import Misconfigured
from pileus.cloud.members import with_known_id
from pileus.cloud.model import NodeRef
from pileus.controllers.service.members import MemberRules, means_the_same
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import provider_id_of, reference
from pileus.runtime.memory import PerObject

FRESH = 2.0
"""Seconds for which one fresh list of nodes serves all who take a second look."""


class Membership:
    """One set for all balancers: the same object until a member comes, goes or changes.

    Is told of nodes by an informer, and tells `changed` when that matters to balancers.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Sequence[Node]]],
        changed: Callable[[], None],
        rules: MemberRules,
    ) -> None:
        self._read = read
        self._changed = changed
        self._rules = rules
        self._knows_ours = False
        """Whether there has been a node that is not another cloud's."""
        self._refs = PerObject[str, NodeRef]("nodes/members")
        self._left = PerObject[str, NodeRef]("nodes/former-members", ends_with_object=True)
        """Members whose Node was deleted a moment ago, by UID: it may register again."""
        self._set: frozenset[NodeRef] | None = frozenset()
        self._fresh: tuple[float, frozenset[NodeRef]] | None = None
        self._reading = asyncio.Lock()

    def now(self) -> frozenset[NodeRef]:
        if self._set is None:
            self._set = frozenset(self._refs.values())
        return self._set

    async def second_look(self) -> frozenset[NodeRef]:
        """The members by a list of all nodes that the API server gives now.

        Raises what the API server says. Raises `Misconfigured` if all nodes are of other clouds and
        always were: more likely, the provider does not recognise its own nodes.
        """
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._fresh is None or now - self._fresh[0] > FRESH:
                nodes = await self._read()
                self._fresh = now, self._members(nodes)
            return self._fresh[1]

    def added(self, new: Node, /) -> None:
        self._knows_ours = self._knows_ours or not self._rules.is_foreign(new)
        name = new.metadata.name
        self._note(name, self._reference(new) if self._rules.is_member(new) else None)

    def updated(self, old: Node, new: Node, /) -> None:
        if old is not new:
            self.added(new)

    def deleted(self, old: Node, /) -> None:
        former = self._refs.get(old.metadata.name)
        if former is not None:
            self._left[old.metadata.uid] = former
        self._note(old.metadata.name, None)

    def _members(self, nodes: Sequence[Node]) -> frozenset[NodeRef]:
        candidates = [node for node in nodes if self._rules.is_candidate(node)]
        members = [node for node in candidates if not self._rules.is_foreign(node)]
        if candidates and not members and not self._knows_ours:
            one = candidates[0]
            raise Misconfigured(
                f"all nodes belong to other clouds, such as {one.metadata.name} with provider ID "
                f"{provider_id_of(one)}. The load balancer keeps its members. Fix: check "
                "--cloud-provider; a provider must recognise the provider IDs of its own nodes"
            )
        return frozenset(map(self._reference, members))

    def _reference(self, node: Node) -> NodeRef:
        """A node that registered again keeps the provider ID of its machine."""
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
