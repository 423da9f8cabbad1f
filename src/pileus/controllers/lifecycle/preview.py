"""Renders the steps for nodes as lines of a plan. Reads only.

nodes ──look up──▶ a copy of the guards ──plan──▶ steps now, after a second check, and later
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from pileus.clock import Clock
from pileus.cloud.balancer import Effect
from pileus.controllers.lifecycle.guard import Guards, subject_of
from pileus.controllers.lifecycle.observation import ClusterView, InstanceLookup, Observed
from pileus.controllers.lifecycle.patches import CONDITION, ObjectWrite, StatusWrite
from pileus.controllers.lifecycle.plan import (
    NEVER_INITIALIZED,
    Apply,
    Delete,
    ForgetWarnings,
    NoAnswer,
    Postpone,
    Step,
    Steps,
    Wait,
    Warn,
    is_deletion,
    plan,
    projected,
)
from pileus.controllers.lifecycle.settings import Policy
from pileus.kube.model.core_v1 import Node
from pileus.objects.lookup import CHUNK, chunks
from pileus.objects.nodes import about_node, condition_of, is_ready, taints_of
from pileus.objects.ownership import Ownership
from pileus.objects.preview import Place, Planned, Scope, Trouble, condition_detail
from pileus.settings.go_quote import quote

UNKNOWN = "InstanceStateUnknown"
DELETION = "delete node: the cloud has no machine for it"


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


def rendered(node: Node, step: Step, waits_for: str) -> Iterator[Planned | Trouble]:
    """Yields the lines of one step."""
    about = about_node(node)
    match step:
        case Delete(evidence):
            yield _deletion(node, evidence, waits_for)
        case Postpone(evidence, _, message):
            yield _deletion(node, evidence, message)
        case Apply(_, write):
            yield _update(node, write, waits_for)
        case Warn(reason, message):
            is_initialization = reason == NEVER_INITIALIZED  # which the node controller reports
            yield Trouble(about, reason, message, is_aftermath=is_initialization)
        case NoAnswer(error):
            text = str(error) or type(error).__name__
            message = f"The node is not ready, and the state of its machine is unknown: {text}"
            yield Trouble(about, UNKNOWN, message, is_aftermath=True)
        case Wait() | ForgetWarnings():
            return
        case _:
            assert_never(step)


def _new(lines: Iterable[Planned | Trouble], shown: set[object]) -> Iterator[Planned | Trouble]:
    """Yields the lines without details that were shown before, and adds theirs to `shown`."""
    for line in lines:
        if isinstance(line, Trouble) or line.effect is Effect.DELETE:
            yield line
        elif details := tuple(one for one in line.details if one not in shown):
            shown.update(details)
            yield replace(line, details=details)


def _deletion(node: Node, evidence: str, waits_for: str) -> Planned:
    return Planned(
        about=about_node(node),
        place=Place.CLUSTER,
        effect=Effect.DELETE,
        summary=DELETION,
        details=(f"the cloud reports: {evidence}",),
        waits_for=waits_for,
    )


def _update(node: Node, write: StatusWrite | ObjectWrite, waits_for: str) -> Planned:
    if isinstance(write, StatusWrite):
        before = condition_of(node, CONDITION)
        details = (condition_detail(CONDITION, before, write.condition),)
    else:
        details = tuple(_details(node, write))
    is_status = isinstance(write, StatusWrite)
    return Planned(
        about=about_node(node),
        place=Place.CLUSTER,
        effect=Effect.UPDATE,
        summary=f"condition {CONDITION}" if is_status else "taints and annotations",
        details=details,
        waits_for=waits_for,
    )


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
