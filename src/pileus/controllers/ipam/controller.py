"""The node-ipam controller as one thing to run: what is known first, then queue and workers."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pileus.controllers.ipam.blocks import Blocks
from pileus.controllers.ipam.patches import ranges_patch
from pileus.controllers.ipam.plan import Holdings
from pileus.controllers.ipam.preview import lines
from pileus.controllers.ipam.reconciler import IpamReconciler, Tools
from pileus.controllers.ipam.sizes import Sizes
from pileus.kube.client import Client
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import Node
from pileus.objects.cluster_nodes import ClusterNodes, NodeInformer, NodeWriter
from pileus.objects.events import ObjectEvents
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.objects.ranges import pod_ranges_of
from pileus.runtime.backoff import Exponential, RetryPolicy
from pileus.runtime.controller import Controller, Limits
from pileus.runtime.events import Recorder
from pileus.runtime.queue import WorkQueue
from pileus.runtime.supervision import Supervised
from pileus.telemetry.metrics import Metrics

QUEUE = "cidrallocator_node"
LEARNING = "pod-range-inventory"
WORKERS = 200
RETRIES = Exponential(0.25, 300.0)
PATIENCE = Exponential(1.0, 60.0)
"""Seconds between two attempts to read the ranges in use, before any range is assigned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the controller is put into."""

    client: Client
    informer: NodeInformer
    events: Recorder
    metrics: Metrics
    random: random.Random


class IpamController:
    """Gives nodes their pod ranges.

    Guarantees: before the first one is given, all nodes were read from the API server itself, after
    this process became leader. A range is given back only when its node is confirmed to be gone.
    """

    def __init__(self, around: Surroundings, sizes: Sizes) -> None:
        self._around = around
        self._sizes = sizes
        self._nodes = ClusterNodes(around.client, around.informer.store, ranges_patch)
        self._queue = WorkQueue[str](QUEUE, around.metrics)
        self._reconciler = IpamReconciler(
            Tools(
                nodes=self._nodes,
                writer=NodeWriter(self._nodes, around.random),
                holdings=Holdings(sizes, MeasuredBlocks(around.metrics)),
                notices=ObjectEvents(around.events),
                queue=self._queue,
            )
        )
        self._controller = Controller(
            "node-ipam-controller",
            self._reconciler,
            self._queue,
            RetryPolicy(RETRIES, around.random),
            Limits(workers=WORKERS),
        )
        self._learning = Supervised(
            LEARNING, self._learn, around.random, around.metrics, delays=PATIENCE
        )

    async def run(self) -> None:
        """Work until cancelled, once all nodes are known for certain; call once."""
        await self._around.informer.wait_synced()
        await self._learning.run()
        watcher = _Watcher(self._reconciler, self._queue)
        self._around.informer.subscribe(self._nodes.without_echoes(watcher))
        await self._controller.run()

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """What nodes of `scope` would be given by a manager that begins now. Reads only."""
        await self._around.informer.wait_synced()
        return lines(self._sizes, self._nodes.nodes(), scope)

    def stuck(self, limit: float) -> str | None:
        """What to tell a health check if a pass has been in hand for longer than `limit`."""
        return self._controller.stuck(limit)

    def failing(self) -> str | None:
        """The message for a health check if pod ranges in use cannot be read."""
        return self._learning.health()

    async def _learn(self) -> None:
        """Take note of the ranges of all nodes, as the API server has them. Raises if it cannot."""
        for node in await self._certainly():
            if pod_ranges_of(node):
                self._reconciler.know(node)

    async def _certainly(self) -> tuple[Node, ...]:
        listed = await self._nodes.fresh()
        if listed.unreadable:
            names = ", ".join(sorted(each.metadata.name for each in listed.unreadable))
            raise KubeError(f"nodes that cannot be read may have any range: {names}")
        return listed.items


@dataclass(frozen=True, slots=True)
class MeasuredBlocks:
    metrics: Metrics

    def changed(self, blocks: Blocks, *, taken: int = 0, released: int = 0) -> None:
        label = str(blocks.range)
        self.metrics.ranges_taken.labels(label).inc(taken)
        self.metrics.ranges_released.labels(label).inc(released)
        self.metrics.ranges_most.labels(label).set(blocks.count)
        self.metrics.ranges_usage.labels(label).set(blocks.used / blocks.count)

    def searched(self, blocks: Blocks, tries: int) -> None:
        self.metrics.range_tries.labels(str(blocks.range)).observe(tries)


@dataclass(frozen=True, slots=True)
class _Watcher:
    """Marks what nodes have at once, before anybody else can be given it."""

    reconciler: IpamReconciler
    queue: WorkQueue[str]

    def added(self, new: Node, /) -> None:
        self._see(new)

    def updated(self, old: Node, new: Node, /) -> None:
        if old is new or pod_ranges_of(old) != pod_ranges_of(new):
            self._see(new)

    def deleted(self, old: Node, /) -> None:
        self.queue.add(old.metadata.name)

    def _see(self, node: Node) -> None:
        if pod_ranges_of(node):
            self.reconciler.know(node)
        else:
            self.queue.add(node.metadata.name)
