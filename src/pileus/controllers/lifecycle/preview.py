"""What would be done to nodes, told instead of done. Reads only.

nodes ──look up──▶ a copy of what is known ──the monitor's own decisions──▶ lines of a plan
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pileus.clock import Clock
from pileus.cloud.balancer import Effect
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Instances
from pileus.controllers.lifecycle.knowledge import Knowledge, Seen
from pileus.controllers.lifecycle.looking import View, look_at
from pileus.controllers.lifecycle.plan import (
    CONDITION,
    NEVER_INITIALIZED,
    RECOVERED,
    TOO_MANY_GONE,
    Delete,
    Policy,
    Wait,
    Wanted,
    object_write,
    status_write,
    subject_of,
)
from pileus.kube.model.core_v1 import Node, Taint
from pileus.objects.chunks import chunks
from pileus.objects.lookups import CHUNK
from pileus.objects.nodes import about_node, is_ready, taints_of
from pileus.objects.ownership import Ownership
from pileus.objects.planned import Place, Planned, Scope, Trouble

UNKNOWN = "InstanceStateUnknown"
GONE = "delete node: the cloud has no machine for it"


@dataclass(frozen=True, slots=True)
class LifecyclePreview:
    """The plan of this controller for nodes as they are seen now."""

    view: View
    instances: Instances
    clock: Clock

    async def of(self, scope: Scope, known: Knowledge) -> Sequence[Planned | Trouble]:
        """Lines for all nodes in scope; all others are looked up too, because they are counted."""
        nodes = sorted(filter(self._is_shown, self.view.nodes()), key=lambda n: n.metadata.name)
        lines: list[Planned | Trouble] = []
        for node in nodes:
            if is_ready(node) and scope.has(about_node(node)):
                lines += self._writes(node, RECOVERED)
        seen, known = await self._look_at([n for n in nodes if not is_ready(n)], known)
        for each in seen:
            if scope.has(about_node(each.node)):
                lines += self._lines(each, known)
        return lines

    def _is_shown(self, node: Node) -> bool:
        odd = not node.metadata.name or bool(node.metadata.deletion_timestamp)
        return not odd and self.view.whose(node) is not Ownership.FOREIGN

    async def _look_at(
        self, nodes: Sequence[Node], known: Knowledge
    ) -> tuple[Sequence[Seen], Knowledge]:
        now, whose = asyncio.get_running_loop().time, self.view.whose
        ours = frozenset(n.metadata.uid for n in self.view.nodes() if whose(n) is Ownership.OURS)
        known = known.kept(map(subject_of, nodes), now(), ours)
        witnesses = self.view.witnesses() if known.policy is Policy.GUARDED else ()
        seen: list[Seen] = []
        for chunk in chunks(nodes, CHUNK):
            began = now()
            answers = await look_at(self.instances, chunk, witnesses)
            some = [Seen(node, whose(node), answers[node.metadata.name]) for node in chunk]
            known = known.heard(some, began=began, ended=now(), ours=ours)
            seen += some
        return seen, known

    def _lines(self, seen: Seen, known: Knowledge) -> Iterator[Planned | Trouble]:
        step, second_look = known.step(seen), ""
        if isinstance(step, Wait):
            grace = known.gone.rules.grace
            second_look = f"a second look that says the same, at least {grace:g} s after the first"
            step = known.step(seen, confirmed=True)
        match step:
            case Delete(evidence):
                yield _deletion(seen.node, evidence, second_look)
            case Wanted() as wanted:
                yield from self._consequences(seen.node, wanted, second_look, known)
            case Wait() | None:
                yield Trouble(about_node(seen.node), UNKNOWN, _trouble(seen), is_aftermath=True)

    def _consequences(
        self, node: Node, wanted: Wanted, waits_for: str, known: Knowledge
    ) -> Iterator[Planned | Trouble]:
        yield from self._writes(node, wanted, waits_for)
        for said in filter(None, (wanted.kept, wanted.warning)):
            if said.reason == NEVER_INITIALIZED and (grace := known.gone.rules.unidentified_grace):
                yield _deletion(node, "", f"the same answer for {grace:g} s in a row")
            if said.reason == TOO_MANY_GONE:
                yield _deletion(node, "", said.message)
            else:
                follows = said.reason == NEVER_INITIALIZED
                yield Trouble(about_node(node), said.reason, said.message, is_aftermath=follows)

    def _writes(self, node: Node, wanted: Wanted, waits_for: str = "") -> Iterator[Planned]:
        change = object_write(node, wanted)
        if change is not None:
            taints = taints_of(node) if change.taints is None else change.taints
            details = [f"spec.taints: {_list(taints_of(node))} → {_list(taints)}"]
            for key, value in change.annotations.items():
                details.append(f"metadata.annotations[{key}]: {value or 'removed'}")
            yield _update(node, "taints and annotations", details, waits_for)
        status = status_write(node, wanted, self.clock.now())
        if status is not None:
            said = status.condition
            details = [f"status.conditions[{CONDITION}]: {said.status} ({said.reason})"]
            yield _update(node, f"condition {CONDITION}", details, waits_for)


def _deletion(node: Node, evidence: str, waits_for: str) -> Planned:
    return Planned(
        about=about_node(node),
        place=Place.CLUSTER,
        effect=Effect.DELETE,
        summary=GONE,
        details=(f"the cloud says: {evidence}",) if evidence else (),
        waits_for=waits_for,
    )


def _update(node: Node, summary: str, details: Sequence[str], waits_for: str) -> Planned:
    return Planned(
        about=about_node(node),
        place=Place.CLUSTER,
        effect=Effect.UPDATE,
        summary=summary,
        details=tuple(details),
        waits_for=waits_for,
    )


def _trouble(seen: Seen) -> str:
    error = seen.answer
    text = str(error) if isinstance(error, CloudError) else ""
    return f"The node is not ready, and nothing is known of its machine: {text or type(error)}"


def _list(taints: Sequence[Taint]) -> str:
    return ", ".join(f"{each.key}:{each.effect}" for each in taints) or "none"
