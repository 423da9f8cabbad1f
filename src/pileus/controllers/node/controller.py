"""The cloud-node controller: the queue of nodes, its workers and the periodic refresh."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pileus.clock import Clock
from pileus.cloud.interface import Instances
from pileus.controllers.node.patches import Write, expected, patch_of
from pileus.controllers.node.plan import is_worth_a_pass
from pileus.controllers.node.preview import NodePreview
from pileus.controllers.node.reconciler import ROUND, NodeReconciler, NodeRefresher, Tools
from pileus.controllers.node.settings import NodeSettings
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import Node
from pileus.objects.cluster_nodes import ClusterNodes, NodeInformer, NodeWriter
from pileus.objects.events import ObjectEvents
from pileus.objects.ownership import Whose
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.runtime.backoff import Exponential, RetryPolicy
from pileus.runtime.controller import Controller, Limits
from pileus.runtime.events import Recorder
from pileus.runtime.queue import Priority, WorkQueue
from pileus.telemetry.metrics import Metrics

QUEUE = "Nodes"
WORKERS = 5000
"""Passes at a time. A pass mostly waits for the cloud and the API server. Lookups are batched and
the client limits its requests, so many passes cost little."""

RETRIES = Exponential(0.25, 300.0)
"""Without jitter: nodes whose common lookup failed are retried together, in one lookup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the controller needs from the process."""

    client: Client
    informer: NodeInformer
    instances: Instances
    """Batched: concurrent lookups become one call."""
    whose: Whose
    events: Recorder
    clock: Clock
    metrics: Metrics
    random: random.Random
    scoped: Callable[[str], str] = field(default=str)
    """Returns the name of a queue or round in the scope of this cloud."""


class NodeController:
    """Initializes new nodes, and keeps the addresses and optionally the labels of nodes current."""

    def __init__(
        self, around: Surroundings, settings: NodeSettings, *, workers: int = WORKERS
    ) -> None:
        nodes = ClusterNodes[Write](around.client, around.informer.store, patch_of, expected)
        tools = Tools(
            nodes=nodes,
            instances=around.instances,
            whose=around.whose,
            writer=NodeWriter(nodes, around.random),
            notices=ObjectEvents(around.events),
            clock=around.clock,
            metrics=around.metrics,
        )
        self._informer = around.informer
        self._nodes = nodes
        self._preview = NodePreview(tools, settings.sync_labels)
        self._queue = WorkQueue[str](around.scoped(QUEUE), around.metrics)
        reconciler = NodeReconciler(tools)
        self._controller = Controller(
            around.scoped("cloud-node-controller"),
            reconciler,
            self._queue,
            RetryPolicy(RETRIES, around.random, jitter=0.0),
            Limits(workers=workers),
        )
        self._refresher = NodeRefresher(
            tools, reconciler.performer, settings, around.random, around.scoped(ROUND)
        )

    async def run(self) -> None:
        """Works until cancelled, after the informer has synced. Call once."""
        await self._informer.wait_synced()
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
