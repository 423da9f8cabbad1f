"""What would be done to nodes, told instead of done. Reads only.

nodes ──look up──▶ a copy of what is known ──the monitor's own decisions──▶ lines of a plan
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pileus.clock import Clock
from pileus.cloud.balancer import Effect
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Instances
from pileus.controllers.lifecycle.knowledge import Knowledge, Seen
from pileus.controllers.lifecycle.observation import View, look_at
from pileus.controllers.lifecycle.plan import (
    CONDITION,
    NEVER_INITIALIZED,
    RECOVERED,
    TOO_MANY_GONE,
    Delete,
    ObjectWrite,
    Policy,
    Step,
    Wait,
    Wanted,
    object_write,
    status_write,
    subject_of,
)
from pileus.kube.model.core_v1 import Node
from pileus.objects.lookup import CHUNK, chunks
from pileus.objects.nodes import about_node, condition_of, is_ready, taints_of
from pileus.objects.ownership import Ownership
from pileus.objects.preview import Place, Planned, Scope, Trouble, condition_detail
from pileus.settings.go_quote import quote

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
        late = known.foreseen(seen, self._ours())
        for each in seen:
            if scope.has(about_node(each.node)):
                lines += self._lines(each, known, late)
        return lines

    def _is_shown(self, node: Node) -> bool:
        odd = not node.metadata.name or bool(node.metadata.deletion_timestamp)
        return not odd and self.view.whose(node) is not Ownership.FOREIGN

    def _ours(self) -> frozenset[str]:
        nodes, whose = self.view.nodes(), self.view.whose
        return frozenset(n.metadata.uid for n in nodes if whose(n) is Ownership.OURS)

    async def _look_at(
        self, nodes: Sequence[Node], known: Knowledge
    ) -> tuple[Sequence[Seen], Knowledge]:
        now, whose = asyncio.get_running_loop().time, self.view.whose
        ours = self._ours()
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

    def _lines(self, seen: Seen, known: Knowledge, late: Knowledge) -> Iterator[Planned | Trouble]:
        """Yields what follows now, and what else if the cloud goes on saying the same."""
        grace, longest = known.gone.rules.grace, known.gone.rules.unidentified_grace
        stages = (
            (known.step(seen), ""),
            (
                known.step(seen, confirmed=True),
                f"a second look that says the same, at least {grace:g} s after the first",
            ),
            (late.step(seen), f"the same answer for {longest:g} s in a row"),
        )
        told: set[object] = set()
        steps: list[Step | None] = []
        for step, waits_for in stages:
            if step in steps or any(isinstance(one, Delete) for one in steps):
                continue
            steps.append(step)
            yield from _news(self._consequences(seen.node, step, waits_for), told)
        if steps[0] is None:
            about = about_node(seen.node)
            yield Trouble(about, UNKNOWN, _trouble(seen), is_aftermath=True)

    def _consequences(
        self, node: Node, step: Step | None, waits_for: str
    ) -> Iterator[Planned | Trouble]:
        match step:
            case Delete(evidence):
                yield _deletion(node, evidence, waits_for)
            case Wanted() as wanted:
                yield from self._brought(node, wanted, waits_for)
            case Wait() | None:
                return

    def _brought(self, node: Node, wanted: Wanted, waits_for: str) -> Iterator[Planned | Trouble]:
        yield from self._writes(node, wanted, waits_for)
        for said in filter(None, (wanted.kept, wanted.warning)):
            if said.reason == TOO_MANY_GONE:
                yield _deletion(node, "", said.message)
            else:
                follows = said.reason == NEVER_INITIALIZED
                yield Trouble(about_node(node), said.reason, said.message, is_aftermath=follows)

    def _writes(self, node: Node, wanted: Wanted, waits_for: str = "") -> Iterator[Planned]:
        change = object_write(node, wanted)
        if change is not None:
            yield _update(node, "taints and annotations", [*_details(node, change)], waits_for)
        status = status_write(node, wanted, self.clock.now())
        if status is not None:
            before = condition_of(node, CONDITION)
            details = [condition_detail(CONDITION, before, status.condition)]
            yield _update(node, f"condition {CONDITION}", details, waits_for)


def _news(lines: Iterable[Planned | Trouble], told: set[object]) -> Iterator[Planned | Trouble]:
    """Yields the lines without what was told before, which they are added to."""
    for line in lines:
        if isinstance(line, Trouble) or line.effect is Effect.DELETE:
            yield line
        elif details := tuple(one for one in line.details if one not in told):
            told.update(details)
            yield replace(line, details=details)


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


def _details(node: Node, write: ObjectWrite) -> Iterator[str]:
    before = taints_of(node)
    after = before if write.taints is None else write.taints
    for taint in before:
        if taint not in after:
            yield f"spec.taints: without {taint.key}"
    for taint in after:
        if taint not in before:
            yield f"spec.taints: with {taint.key}:{taint.effect}"
    for key, value in write.annotations.items():
        yield f"metadata.annotations[{key}]: {'removed' if value is None else quote(value)}"
