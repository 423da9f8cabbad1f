"""Give each node its own part of the cluster's pod ranges, once, and take it back when it is gone.

node without ranges ──promise──▶ write, from this very version ──▶ known
                       │
                       └─ none free ──▶ told; tried again when one is given back
node gone ──asked of the API server──▶ given back
"""

from dataclasses import dataclass

from pileus.controllers.ipam.plan import FAILED, FULL, ODD, Holdings, status_text, wants_ranges
from pileus.kube.errors import KubeError, NotFound
from pileus.kube.model.core_v1 import Node
from pileus.objects.cluster_nodes import ClusterNodes, NodeReplaced, NodeWriter
from pileus.objects.events import ObjectEvents, shortened
from pileus.objects.nodes import about_node
from pileus.objects.ranges import Range, pod_ranges_of
from pileus.runtime.memory import PerObject
from pileus.runtime.queue import WorkQueue
from pileus.runtime.reconcile import DONE, Result, again_in
from pileus.telemetry.log import Log

log = Log(__name__)

LOOK_AGAIN = 300.0
"""Seconds after which a node is tried again for which nothing was free, if nothing happened."""
DOUBT = 60.0
"""Seconds after which a node is asked for again that the watch lost, and the server has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    nodes: ClusterNodes[tuple[Range, ...]]
    writer: NodeWriter[tuple[Range, ...]]
    holdings: Holdings
    notices: ObjectEvents
    queue: WorkQueue[str]


class IpamReconciler:
    """Key: the node's name."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._waiting = PerObject[str, None]("nodes/without-range")

    async def reconcile(self, key: str) -> Result:
        node = self._tools.nodes.node(key)
        if node is None:
            return await self._depart(key)
        if wants_ranges(node):
            return await self._serve(node)
        self._waiting.pop(key, None)
        return DONE

    def know(self, node: Node) -> None:
        """The node has ranges; say what is odd about them."""
        problems = self._tools.holdings.know(node)
        if problems:
            name, told = node.metadata.name, shortened("; ".join(problems))
            log.warning("A node's pod range is not as it should be", node=name, why=told)
            self._tools.notices.warn(about_node(node), ODD, f"Node {name}: {told}")

    async def _serve(self, node: Node) -> Result:
        name = node.metadata.name
        ranges = self._tools.holdings.promise(node)
        if ranges is None:
            self._waiting[name] = None
            self._announce(node, FULL)
            return again_in(LOOK_AGAIN)
        self._waiting.pop(name, None)
        try:
            brought = await self._tools.writer.bring(
                node, lambda seen: ranges if wants_ranges(seen) else None
            )
        except (NotFound, NodeReplaced) as error:
            log.info("Node went away meanwhile", v=2, node=name, why=error)
            return DONE
        except KubeError:
            self._announce(node, FAILED)
            raise
        if pod_ranges_of(brought.node):
            self.know(brought.node)
            self._report(brought.node, ranges, written=brought.written)
        return DONE

    def _report(self, node: Node, ranges: tuple[Range, ...], *, written: bool) -> None:
        name, given = node.metadata.name, [str(each) for each in ranges]
        if written:
            log.info("Gave a node its pod ranges", node=name, ranges=given)
        elif list(pod_ranges_of(node)) != given:
            log.warning(
                "Somebody else gives nodes their pod ranges; only one manager may "
                "(see --allocate-node-cidrs of kube-controller-manager)",
                node=name,
                ranges=list(pod_ranges_of(node)),
            )

    async def _depart(self, name: str) -> Result:
        """Give back what a deleted node held, once the API server confirms that it is gone."""
        self._waiting.pop(name, None)
        uid = self._tools.holdings.uid_of(name)
        if uid is None:
            return DONE
        try:
            found = await self._tools.nodes.read(name)
        except NotFound:
            found = None
        if found is not None and found.metadata.uid == uid:
            log.warning("The watch lost a node that exists; it keeps its pod ranges", node=name)
            return again_in(DOUBT)
        if self._tools.holdings.uid_of(name) == uid:  # else another took its name meanwhile
            self._tools.holdings.forget(name)
        self._wake()
        return DONE

    def _wake(self) -> None:
        """Something was given back: who waits longest is tried again."""
        if self._waiting:
            name = next(iter(self._waiting))
            del self._waiting[name]
            self._tools.queue.add(name)

    def _announce(self, node: Node, reason: str) -> None:
        log.warning("A node has no pod range", node=node.metadata.name, reason=reason)
        self._tools.notices.announce(about_node(node), reason, status_text(node, reason))
