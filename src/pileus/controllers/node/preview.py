"""Renders the steps of passes over nodes as lines of a plan. Reads only."""

from collections.abc import Sequence

from pileus.controllers.node.lines import lines
from pileus.controllers.node.observation import Observation, look_up
from pileus.controllers.node.plan import (
    Step,
    Warn,
    after,
    plan,
    plan_refresh,
)
from pileus.controllers.node.reconciler import Tools
from pileus.dataclass import dataclass
from pileus.dataclass import replace as changed
from pileus.kube.model.core_v1 import Node
from pileus.objects.lookup import CHUNK, chunks
from pileus.objects.nodes import about_node
from pileus.objects.preview import Planned, Scope, Trouble


@dataclass(frozen=True, slots=True)
class NodePreview:
    """What this controller would do for the nodes as they are now."""

    tools: Tools
    sync_labels: bool

    async def of(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """Returns one line per write of the next passes and refresh, and what blocks them."""
        found = [node for node in self.tools.managed() if _is_shown(node, scope)]
        planned: list[Planned | Trouble] = []
        for chunk in chunks(sorted(found, key=lambda node: node.metadata.name), CHUNK):
            answers = await look_up(self.tools.instances, chunk)
            for node in chunk:
                seen = self.tools.observation(node, answers[node.metadata.name])
                planned += lines(node, self._steps(seen))
        return planned

    def _steps(self, seen: Observation) -> Sequence[Step]:
        """Returns the steps of a pass, of the pass after it, and of the next refresh."""
        now = self.tools.clock.now()
        first = plan(seen, now)
        seen = after(seen, first)
        second = plan(changed(seen, answer=None), now)
        third = plan_refresh(after(seen, second), now, sync_labels=self.sync_labels)
        warned = {step.reason for step in first if isinstance(step, Warn)}
        again = [step for step in third if isinstance(step, Warn) and step.reason in warned]
        return [*first, *second, *(step for step in third if step not in again)]


def _is_shown(node: Node, scope: Scope) -> bool:
    is_deleted = bool(node.metadata.deletion_timestamp)
    return bool(node.metadata.name) and not is_deleted and scope.has(about_node(node))
