"""Assign each node its own part of the cluster's pod ranges; take it back when it is deleted.

node without ranges ──reserve──▶ write, for this version of the node ──▶ recorded
                       │
                       └─ none free ──▶ reported; tried again when one is given back
node deleted ──confirmed by the API server──▶ given back
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import assert_never

from pileus.controllers.ipam.allocator import Allocator
from pileus.controllers.ipam.plan import (
    FAILED,
    FULL,
    ODD,
    AssignRanges,
    ExistingNode,
    KeepRanges,
    MissingNode,
    Observation,
    ReleaseRanges,
    ReportProblems,
    Step,
    WaitForRange,
    lines,
    needs_ranges,
    plan,
    status_text,
)
from pileus.dataclass import dataclass
from pileus.kube.errors import KubeError, NotFound
from pileus.kube.model.core_v1 import Node
from pileus.objects.cluster_nodes import ClusterNodes, NodeReplaced, NodeWriter
from pileus.objects.decisions import record_plan
from pileus.objects.events import ObjectEvents, shortened
from pileus.objects.nodes import about_node
from pileus.objects.preview import EVERYTHING
from pileus.objects.ranges import Range, pod_ranges_of
from pileus.runtime.memory import PerObject
from pileus.runtime.queue import WorkQueue
from pileus.runtime.reconcile import DONE, Result, again_in
from pileus.telemetry.log import Log

log = Log(__name__)

RETRY_FULL = 300.0
"""Seconds after which a node is tried again for which no range was free."""
DOUBT = 60.0
"""Seconds after which a node is checked again that the watch lost and the API server has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    nodes: ClusterNodes[tuple[Range, ...]]
    writer: NodeWriter[tuple[Range, ...]]
    allocator: Allocator
    events: ObjectEvents
    queue: WorkQueue[str]


def first_steps(allocator: Allocator, nodes: Sequence[Node]) -> Iterator[Step]:
    """Returns the steps of a manager that starts now. Reads only; `allocator` is a fresh one."""
    for node in filter(pod_ranges_of, nodes):
        yield from plan(ExistingNode(node, problems=allocator.record(node)))
    for node in in_turn(nodes):
        yield from plan(ExistingNode(node, allocator.reserve(node)))


def in_turn(nodes: Iterable[Node]) -> Sequence[Node]:
    """Returns the nodes that need ranges, the oldest first.

    They are served in this order if there are not enough ranges for all, also after a restart.
    """
    return sorted(filter(needs_ranges, nodes), key=_age)


def _age(node: Node) -> tuple[float, str]:
    created = node.metadata.creation_timestamp
    return created.timestamp() if created else inf, node.metadata.name


class IpamReconciler:
    """Its keys are names of nodes."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._waiting = PerObject[str, None]("nodes/without-range")
        """Names of nodes for which no range was free."""

    async def reconcile(self, key: str) -> Result:
        steps, result = plan(await self._observe(key)), DONE
        if not any(isinstance(step, WaitForRange) for step in steps):
            self._waiting.pop(key, None)
        record_plan(lines(steps, EVERYTHING))
        for step in steps:
            result = await self._perform(step)
        return result

    def record(self, node: Node) -> None:
        """Record the ranges that the node has, at once, and report what is wrong with them."""
        for step in plan(ExistingNode(node, problems=self._tools.allocator.record(node))):
            if isinstance(step, ReportProblems):
                self._report(step)

    async def _observe(self, name: str) -> Observation:
        """Returns what is known of the node. Reserves ranges for it if it needs them."""
        node, allocator = self._tools.nodes.node(name), self._tools.allocator
        if node is not None:
            return ExistingNode(node, allocator.reserve(node) if needs_ranges(node) else None)
        uid = allocator.uid_of(name)
        if uid is None:
            return MissingNode(name)
        try:
            found = await self._tools.nodes.read(name)
        except NotFound:
            return MissingNode(name, uid)
        return MissingNode(name, uid, still_exists=found.metadata.uid == uid)

    async def _perform(self, step: Step) -> Result:
        match step:
            case AssignRanges(node, ranges):
                await self._assign(node, ranges)
            case WaitForRange(node):
                self._waiting[node.metadata.name] = None
                self._announce(node, FULL)
                return again_in(RETRY_FULL)
            case ReportProblems():
                self._report(step)
            case KeepRanges(name):
                log.warning("Watch lost a node that exists, keeping its pod ranges", node=name)
                return again_in(DOUBT)
            case ReleaseRanges(name, uid):
                self._release(name, uid)
            case _:
                assert_never(step)
        return DONE

    async def _assign(self, node: Node, ranges: tuple[Range, ...]) -> None:
        name = node.metadata.name
        try:
            brought = await self._tools.writer.bring(
                node, lambda seen: ranges if needs_ranges(seen) else None
            )
        except (NotFound, NodeReplaced) as error:
            log.info("Node was deleted meanwhile", v=2, node=name, why=error)
            return
        except KubeError:
            self._announce(node, FAILED)
            raise
        if pod_ranges_of(brought.node):
            self.record(brought.node)
            _log_assigned(brought.node, ranges, written=brought.written)

    def _release(self, name: str, uid: str) -> None:
        """Give back what the node had, unless another node got its name meanwhile."""
        if self._tools.allocator.uid_of(name) == uid:
            self._tools.allocator.release(name)
        waiting = map(self._tools.nodes.node, self._waiting)
        for node in in_turn(one for one in waiting if one is not None)[:1]:
            del self._waiting[node.metadata.name]
            self._tools.queue.add(node.metadata.name)

    def _report(self, step: ReportProblems) -> None:
        name, text = step.node.metadata.name, shortened(step.text)
        log.warning("Unexpected pod range", node=name, why=text)
        self._tools.events.warn(about_node(step.node), ODD, f"Node {name}: {text}")

    def _announce(self, node: Node, reason: str) -> None:
        log.warning("Node has no pod range", node=node.metadata.name, reason=reason)
        self._tools.events.announce(about_node(node), reason, status_text(node, reason))


def _log_assigned(node: Node, ranges: tuple[Range, ...], *, written: bool) -> None:
    name, assigned = node.metadata.name, [str(each) for each in ranges]
    if written:
        log.info("Assigned pod ranges", node=name, ranges=assigned)
    elif list(pod_ranges_of(node)) != assigned:
        log.warning(
            "Another controller assigns pod ranges; only one may "
            "(see --allocate-node-cidrs of kube-controller-manager)",
            node=name,
            ranges=list(pod_ranges_of(node)),
        )
