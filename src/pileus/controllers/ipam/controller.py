"""The node-ipam controller: reads the ranges in use first, then runs its queue and workers."""

from collections.abc import Sequence

from pileus.controllers.ipam.allocator import Allocator
from pileus.controllers.ipam.plan import lines, ranges_patch
from pileus.controllers.ipam.reconciler import IpamReconciler, Tools, first_steps, in_turn
from pileus.controllers.ipam.settings import Sizes
from pileus.dataclass import dataclass
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import NODES, Node
from pileus.objects.cluster_nodes import ClusterNodes, NodeWriter
from pileus.objects.descriptor import ControllerContext
from pileus.objects.events import ObjectEvents
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.objects.ranges import pod_ranges_of
from pileus.runtime.backoff import Exponential, RetryPolicy
from pileus.runtime.controller import Controller, Limits
from pileus.runtime.queue import WorkQueue
from pileus.runtime.supervision import Supervised

QUEUE = "cidrallocator_node"
INVENTORY = "pod-range-inventory"
WORKERS = 200
RETRIES = Exponential(0.25, 300.0)
INVENTORY_RETRIES = Exponential(1.0, 60.0)
"""Seconds between two attempts to read the ranges in use, before any range is assigned."""


class IpamController:
    """Assigns pod ranges to nodes.

    Guarantees: before the first range is assigned, all nodes are read from the API server, after
    this process became leader. A range is given back only if the API server confirms that its node
    is deleted.
    """

    def __init__(self, context: ControllerContext, sizes: Sizes) -> None:
        self._sizes = sizes
        self._informer = context.informers.of(NODES)
        self._nodes = ClusterNodes(context.client, self._informer.store, ranges_patch)
        self._queue = WorkQueue[str](QUEUE, context.metrics)
        self._reconciler = IpamReconciler(
            Tools(
                nodes=self._nodes,
                writer=NodeWriter(self._nodes, context.random),
                allocator=Allocator(sizes, context.metrics),
                events=ObjectEvents(context.events),
                queue=self._queue,
            )
        )
        self._controller = Controller(
            context.names.canonical,
            self._reconciler,
            self._queue,
            RetryPolicy(RETRIES, context.random),
            Limits(workers=WORKERS),
        )
        self._inventory = Supervised(
            INVENTORY,
            self._record_all,
            context.random,
            context.metrics,
            delays=INVENTORY_RETRIES,
        )

    async def run(self) -> None:
        """Work until cancelled; call once. Waits until the ranges of all nodes are known."""
        await self._informer.wait_synced()
        await self._inventory.run()
        for node in in_turn(self._nodes.nodes()):
            self._queue.add(node.metadata.name)
        handler = _NodeHandler(self._reconciler, self._queue)
        self._informer.subscribe(self._nodes.without_echoes(handler))
        await self._controller.run()

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """Returns what a manager that starts now would do for the nodes of `scope`. Reads only."""
        await self._informer.wait_synced()
        return lines(first_steps(Allocator(self._sizes), self._nodes.nodes()), scope)

    def stuck(self, limit: float) -> str | None:
        """Returns the message for a health check if a pass runs for longer than `limit` seconds."""
        return self._controller.stuck(limit)

    def failing(self) -> str | None:
        """Returns the message for a health check if pod ranges in use cannot be read."""
        return self._inventory.health()

    async def _record_all(self) -> None:
        """Record the ranges of all nodes of the API server. Raises if one cannot be read."""
        listed = await self._nodes.fresh()
        if listed.unreadable:
            names = ", ".join(sorted(each.metadata.name for each in listed.unreadable))
            raise KubeError(f"nodes that cannot be decoded may have any pod range: {names}")
        for node in filter(pod_ranges_of, listed.items):
            self._reconciler.record(node)


@dataclass(frozen=True, slots=True)
class _NodeHandler:
    """Records the ranges of nodes at once, before they can be assigned to another node."""

    reconciler: IpamReconciler
    queue: WorkQueue[str]

    def added(self, new: Node, /) -> None:
        self._record_or_queue(new)

    def updated(self, old: Node, new: Node, /) -> None:
        if old is new or pod_ranges_of(old) != pod_ranges_of(new):
            self._record_or_queue(new)

    def deleted(self, old: Node, /) -> None:
        self.queue.add(old.metadata.name)

    def _record_or_queue(self, node: Node) -> None:
        if pod_ranges_of(node):
            self.reconciler.record(node)
        else:
            self.queue.add(node.metadata.name)
