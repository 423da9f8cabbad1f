"""Renders the steps of passes over nodes as lines of a plan. Reads only."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import assert_never

from pileus.cloud.balancer import Effect
from pileus.cloud.errors import NotFound
from pileus.controllers.node.events import PATIENCE, message_of, reason_of
from pileus.controllers.node.observation import Observation, look_up
from pileus.controllers.node.patches import StatusWrite, Write, expected
from pileus.controllers.node.plan import (
    CONDITION,
    Apply,
    Finish,
    Report,
    Retry,
    Skip,
    Step,
    Warn,
    after,
    plan,
    plan_refresh,
)
from pileus.controllers.node.reconciler import Tools
from pileus.kube.model.core_v1 import Node, NodeAddress
from pileus.objects.lookup import CHUNK, chunks
from pileus.objects.nodes import UNINITIALIZED, about_node, addresses_of, condition_of
from pileus.objects.preview import Place, Planned, Scope, Trouble, condition_detail
from pileus.settings.go_quote import quote


@dataclass(frozen=True, slots=True)
class NodePreview:
    """What this controller would do for the nodes as they are now."""

    tools: Tools
    sync_labels: bool

    async def of(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """Returns one line per write of the next passes and refresh, and what blocks them."""
        found = [node for node in self.tools.managed() if _is_shown(node, scope)]
        lines: list[Planned | Trouble] = []
        for chunk in chunks(sorted(found, key=lambda node: node.metadata.name), CHUNK):
            answers = await look_up(self.tools.instances, chunk)
            for node in chunk:
                seen = self.tools.observation(node, answers[node.metadata.name])
                lines += _lines(node, self._steps(seen))
        return lines

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


def _lines(node: Node, steps: Iterable[Step]) -> Iterator[Planned | Trouble]:
    """Yields the lines of the steps, each as a change of what the steps before it leave."""
    about = about_node(node)
    for step in steps:
        match step:
            case Apply(_, write):
                yield _planned(node, write)
                node = expected(node, write)
            case Report():
                yield from _report(node, step)
            case Warn(reason, message):
                yield Trouble(about, reason, message)
            case Skip(NotFound()):
                pass  # the lifecycle controller reports it
            case Skip(error):
                yield Trouble(about, reason_of(error), message_of(error))
            case Finish() | Retry():
                pass
            case _:
                assert_never(step)


def _report(node: Node, report: Report) -> Iterator[Planned | Trouble]:
    if report.write is not None:
        waits_for = f"the failure to last for {PATIENCE:g} s" if report.wait else ""
        yield changed(_planned(node, report.write), waits_for=waits_for)
    yield Trouble(about_node(node), report.reason, report.message)


def _is_shown(node: Node, scope: Scope) -> bool:
    is_deleted = bool(node.metadata.deletion_timestamp)
    return bool(node.metadata.name) and not is_deleted and scope.has(about_node(node))


def _planned(node: Node, write: Write) -> Planned:
    parts = dict(_parts(node, write))
    return Planned(
        about=about_node(node),
        place=Place.CLUSTER,
        effect=Effect.UPDATE,
        summary=", ".join(parts),
        details=tuple(line for lines in parts.values() for line in lines),
    )


def _parts(node: Node, write: Write) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields what the write changes, and the fields before and after."""
    if isinstance(write, StatusWrite):
        if write.addresses is not None:
            change = f"{_list(addresses_of(node))} → {_list(write.addresses)}"
            yield "addresses", (f"status.addresses: {change}",)
        if write.condition is not None:
            before = condition_of(node, CONDITION)
            detail = condition_detail(CONDITION, before, write.condition)
            yield f"condition {CONDITION}", (detail,)
        return
    if write.provider_id:
        yield "provider ID", (f'spec.providerID: "" → {quote(write.provider_id)}',)
    if write.labels:
        yield "labels", tuple(_labels(node, write.labels.items()))
    if write.untaint:
        yield "initialized", (f"spec.taints: without {UNINITIALIZED}",)


def _labels(node: Node, desired: Iterable[tuple[str, str]]) -> Iterator[str]:
    present = node.metadata.labels or {}
    for key, value in sorted(desired):
        before = f"{quote(present[key])} → " if key in present else ""
        yield f"metadata.labels[{key}]: {before}{quote(value)}"


def _list(addresses: Sequence[NodeAddress]) -> str:
    return ", ".join(f"{each.type} {each.address}" for each in addresses) or "none"
