"""Renders the steps for nodes as lines of a plan. Reads only.

nodes ──look up──▶ a copy of the guards ──plan──▶ steps now, after a second check, and later
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from pileus.clock import Clock
from pileus.cloud.balancer import Effect
from pileus.controllers.lifecycle.guard import Guards, subject_of
from pileus.controllers.lifecycle.lines import rendered
from pileus.controllers.lifecycle.observation import ClusterView, InstanceLookup, Observed
from pileus.controllers.lifecycle.plan import (
    Steps,
    is_deletion,
    plan,
    projected,
)
from pileus.controllers.lifecycle.settings import Policy
from pileus.dataclass import dataclass, replace
from pileus.kube.model.core_v1 import Node
from pileus.objects.lookup import CHUNK, chunks
from pileus.objects.nodes import about_node, is_ready
from pileus.objects.ownership import Ownership
from pileus.objects.preview import Planned, Scope, Trouble


@dataclass(frozen=True, slots=True)
class LifecyclePreview:
    """What this controller would do for the nodes as they are now."""

    view: ClusterView
    lookup: InstanceLookup
    clock: Clock

    async def of(self, scope: Scope, guards: Guards) -> Sequence[Planned | Trouble]:
        """Returns lines for the nodes in scope. All others are looked up too: they count."""
        nodes = sorted(filter(self._is_shown, self.view.nodes()), key=lambda n: n.metadata.name)
        ready = [Observed(node, self.view.whose(node)) for node in nodes if is_ready(node)]
        seen, guards = await self._observe([n for n in nodes if not is_ready(n)], guards)
        late = projected(guards, seen, self.view.ours(), self.clock.now())
        return [
            line
            for each in (*ready, *seen)
            if scope.has(about_node(each.node))
            for line in self._lines(each, guards, late)
        ]

    def _is_shown(self, node: Node) -> bool:
        odd = not node.metadata.name or bool(node.metadata.deletion_timestamp)
        return not odd and self.view.whose(node) is not Ownership.FOREIGN

    async def _observe(
        self, nodes: Sequence[Node], guards: Guards
    ) -> tuple[Sequence[Observed], Guards]:
        now, ours = asyncio.get_running_loop().time, self.view.ours()
        guards = guards.retained(map(subject_of, nodes), now(), ours)
        seen: list[Observed] = []
        for chunk in chunks(nodes, CHUNK):
            began = now()
            answers = await self.lookup.answers(
                chunk, witnesses=guards.policy is Policy.GUARDED, suspected=True
            )
            some = [Observed(n, self.view.whose(n), answers[n.metadata.name]) for n in chunk]
            guards = guards.recorded(some, began=began, ended=now(), ours=ours)
            seen += some
        return seen, guards

    def _lines(self, seen: Observed, guards: Guards, late: Guards) -> Iterator[Planned | Trouble]:
        """Yields the steps of now, and those that follow if the cloud reports the same."""
        rules, now = guards.deletion.rules, self.clock.now()
        stages = (
            (plan(seen, guards, now), ""),
            (
                plan(seen, guards, now, confirmed=True),
                f"a second check with the same result, at least {rules.grace:g} s after the first",
            ),
            (
                plan(seen, late, now),
                f"the same answer for {rules.unidentified_grace:g} s in a row",
            ),
        )
        shown: set[object] = set()
        earlier: list[Steps] = []
        for steps, waits_for in stages:
            if steps not in earlier and not any(map(is_deletion, earlier)):
                earlier.append(steps)
                lines = (line for step in steps for line in rendered(seen.node, step, waits_for))
                yield from _new(lines, shown)


def _new(lines: Iterable[Planned | Trouble], shown: set[object]) -> Iterator[Planned | Trouble]:
    """Yields the lines without details that were shown before, and adds theirs to `shown`."""
    for line in lines:
        if isinstance(line, Trouble) or line.effect is Effect.DELETE:
            yield line
        elif details := tuple(one for one in line.details if one not in shown):
            shown.update(details)
            yield replace(line, details=details)
