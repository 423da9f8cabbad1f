"""The cloud-node controller: the queue of nodes, its workers and the periodic refresh."""

import asyncio
from collections.abc import Sequence

from pileus.cloud.interface import Instances
from pileus.controllers.node.identity import AcceptedNodes
from pileus.controllers.node.patches import Write, expected, patch_of
from pileus.controllers.node.plan import is_worth_a_pass
from pileus.controllers.node.preview import NodePreview
from pileus.controllers.node.reconciler import ROUND, NodeReconciler, NodeRefresher, Tools
from pileus.controllers.node.settings import NodeSettings
from pileus.kube.model.core_v1 import NODES, Node
from pileus.objects.cluster_nodes import MACHINE_INDEX, ClusterNodes, NodeWriter
from pileus.objects.descriptor import ControllerContext
from pileus.objects.events import ObjectEvents
from pileus.objects.lookup import CHUNK
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.runtime.backoff import Exponential, RetryPolicy
from pileus.runtime.controller import Controller, Limits
from pileus.runtime.queue import Priority, WorkQueue

QUEUE = "Nodes"
WORKERS = CHUNK // 2
"""Passes at a time. A waiting pass costs 10 KB; the API server is busy with 32 of them."""
GROUP = WORKERS // 2
"""Passes that start together once all workers were busy, so that they share their lookup."""

RETRIES = Exponential(0.25, 300.0)
"""Without jitter: nodes whose common lookup failed are retried together, in one lookup."""


class NodeController:
    """Initializes new nodes, and keeps the addresses and optionally the labels of nodes current."""

    def __init__(
        self, context: ControllerContext, instances: Instances, settings: NodeSettings
    ) -> None:
        """`instances` are batched: concurrent lookups become one call."""
        self._informer = context.informers.of(NODES, MACHINE_INDEX)
        nodes = ClusterNodes[Write](context.client, self._informer.store, patch_of, expected)
        self._accepted = AcceptedNodes(settings.identity)
        tools = Tools(
            nodes=nodes,
            instances=instances,
            whose=context.scope.whose,
            writer=NodeWriter(nodes, context.random),
            notices=ObjectEvents(context.events),
            clock=context.clock,
            metrics=context.metrics,
            accepted=self._accepted,
        )
        self._nodes = nodes
        self._preview = NodePreview(tools, settings.sync_labels)
        self._queue = WorkQueue[str](context.scoped(QUEUE), context.metrics)
        reconciler = NodeReconciler(tools)
        self._controller = Controller(
            context.scoped(context.names.canonical),
            reconciler,
            self._queue,
            RetryPolicy(RETRIES, context.random, jitter=0.0),
            Limits(workers=settings.workers)
            if settings.workers
            else Limits(workers=context.affordable(WORKERS), group=GROUP),
        )
        self._refresher = NodeRefresher(
            tools, reconciler.performer, settings, context.random, context.scoped(ROUND)
        )

    async def run(self) -> None:
        """Works until cancelled, after the informer has synced. Call once."""
        await self._informer.wait_synced()
        self._accepted.start(self._informer.store.list())
        self._informer.subscribe(self._nodes.without_echoes(_Enqueue(self._queue)))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._controller.run())
            group.create_task(self._refresher.run())

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """Returns what this controller would write now. Needs only a running informer."""
        await self._informer.wait_synced()
        return await self._preview.of(scope)

    def stuck(self, limit: float) -> str | None:
        """Returns a message for the health check if a pass runs for more than `limit` seconds."""
        return self._controller.stuck(limit) or self._refresher.rounds.stuck(limit)

    def failing(self) -> str | None:
        """Returns a message for the health check if the periodic refresh keeps failing."""
        return self._refresher.rounds.failing()


class _Enqueue:
    def __init__(self, queue: WorkQueue[str]) -> None:
        self._queue = queue

    def added(self, new: Node, /) -> None:
        self._queue.add(new.metadata.name)

    def updated(self, old: Node, new: Node, /) -> None:
        if old is new:
            self._queue.add(new.metadata.name, Priority.REFRESH)
        elif is_worth_a_pass(old, new):
            self._queue.add(new.metadata.name)

    def deleted(self, old: Node, /) -> None:
        """The last pass forgets the failures of the node."""
        self._queue.add(old.metadata.name)
