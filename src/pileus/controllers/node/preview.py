"""What the passes over nodes would write, told instead of written. Reads only.

node ──look up──▶ facts ──the passes' own decisions──▶ writes ──▶ lines of a plan
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pileus.clock import Clock
from pileus.cloud.balancer import Effect
from pileus.cloud.errors import CloudError, NotFound
from pileus.cloud.interface import Instances
from pileus.controllers.node.events import PATIENCE, is_lasting, message_of, reason_of, skipped
from pileus.controllers.node.observation import Answer, look_up
from pileus.controllers.node.plan import (
    CONDITION,
    Decide,
    StatusWrite,
    Write,
    expected,
    initialization,
    is_settled,
    refreshment,
    settlement,
    stuck_status,
)
from pileus.kube.model.core_v1 import Node, NodeAddress
from pileus.objects.lookup import CHUNK, chunks
from pileus.objects.node_ips import NodeIpRefused
from pileus.objects.nodes import (
    UNINITIALIZED,
    about_node,
    addresses_of,
    condition_of,
    is_uninitialized,
)
from pileus.objects.preview import Place, Planned, Scope, Trouble, condition_detail
from pileus.settings.go_quote import quote


@dataclass(frozen=True, slots=True)
class NodePreview:
    """The plan of this controller for nodes as they are seen now."""

    instances: Instances
    clock: Clock
    sync_labels: bool

    async def of(self, nodes: Iterable[Node], scope: Scope) -> Sequence[Planned | Trouble]:
        """One line per write that a pass, or the next round, would make; and why some cannot."""
        found = [node for node in nodes if _is_shown(node) and scope.has(about_node(node))]
        lines: list[Planned | Trouble] = []
        for chunk in chunks(sorted(found, key=lambda node: node.metadata.name), CHUNK):
            answers = await look_up(self.instances, chunk)
            for node in chunk:
                lines += self._lines(node, answers[node.metadata.name])
        return lines

    def _lines(self, node: Node, answer: Answer) -> Iterator[Planned | Trouble]:
        """The writes of a pass, of the one that follows it, and of the next round."""
        about, now = about_node(node), self.clock.now()
        facts = None if isinstance(answer, CloudError) else answer
        try:
            if facts is not None and is_uninitialized(node):
                node = yield from _writes(node, initialization(facts, now))
            if not is_uninitialized(node):
                node = yield from _writes(node, settlement(now))
            if facts is not None and is_settled(node):
                yield from _writes(node, refreshment(facts, sync_labels=self.sync_labels))
        except NodeIpRefused as error:
            answer = error
        if is_uninitialized(node) and isinstance(answer, CloudError):
            yield from _stuck(node, answer, now)
        if is_uninitialized(node) or not isinstance(answer, NotFound):  # else lifecycle's matter
            yield from (Trouble(about, *each) for each in _troubles(answer))


def _stuck(node: Node, error: CloudError, now: datetime) -> Iterator[Planned]:
    """Yields the write that reports on the node why it is not initialized."""
    write = stuck_status(node, reason_of(error), message_of(error), now)
    if write is not None:
        waits_for = "" if is_lasting(error) else f"the failure to last for {PATIENCE:g} s"
        yield replace(_planned(node, write), waits_for=waits_for)


def _troubles(answer: Answer) -> Iterator[tuple[str, str]]:
    if isinstance(answer, CloudError):
        yield reason_of(answer), message_of(answer)
    else:
        yield from skipped(answer)


def _is_shown(node: Node) -> bool:
    return bool(node.metadata.name) and not node.metadata.deletion_timestamp


def _writes(node: Node, decisions: Iterable[Decide]) -> Generator[Planned, None, Node]:
    """Each decision made from what the one before would leave; returns the node after all."""
    for decide in decisions:
        write = decide(node)
        if write is not None:
            yield _planned(node, write)
            node = expected(node, write)
    return node


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
    """What the write is about, and the fields of it before and after."""
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


def _labels(node: Node, wanted: Iterable[tuple[str, str]]) -> Iterator[str]:
    present = node.metadata.labels or {}
    for key, value in sorted(wanted):
        before = f"{quote(present[key])} → " if key in present else ""
        yield f"metadata.labels[{key}]: {before}{quote(value)}"


def _list(addresses: Sequence[NodeAddress]) -> str:
    return ", ".join(f"{each.type} {each.address}" for each in addresses) or "none"
