"""The cloud-node controller as one thing to run: queue, workers and rounds around one informer."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from pileus.clock import Clock
from pileus.cloud.interface import Instances
from pileus.controllers.node.patches import patch_of
from pileus.controllers.node.plan import Write, expected, is_worth_a_pass
from pileus.controllers.node.preview import NodePreview
from pileus.controllers.node.reconciler import NodeReconciler, Tools
from pileus.controllers.node.refresh import NodeRefresher, RefreshSettings
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
"""Passes at a time. Each waits for cloud and API server most of its time; look-ups travel
together and the client limits itself, so many passes cost little and few only wait in line."""

RETRIES = Exponential(0.25, 300.0)
"""Without jitter: nodes whose common look-up failed are retried together, in one look-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    workers: int = WORKERS
    """`--concurrent-node-syncs`, if the user gave it."""
    refresh: RefreshSettings = field(default_factory=RefreshSettings)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(
                f"concurrent-node-syncs must be at least 1, but got {self.workers}: "
                "without a worker no node is ever initialized"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the controller is put into."""

    client: Client
    informer: NodeInformer
    instances: Instances
    """With batching around it, so that concurrent look-ups become one call."""
    whose: Whose
    events: Recorder
    clock: Clock
    metrics: Metrics
    random: random.Random


class NodeController:
    """Initializes new nodes and keeps addresses (and labels, if told to) current."""

    def __init__(self, around: Surroundings, settings: NodeSettings) -> None:
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
        self._tools = tools
        self._nodes = nodes
        self._preview = NodePreview(around.instances, around.clock, settings.refresh.sync_labels)
        self._queue = WorkQueue[str](QUEUE, around.metrics)
        self._controller = Controller(
            "cloud-node-controller",
            NodeReconciler(tools),
            self._queue,
            RetryPolicy(RETRIES, around.random, jitter=0.0),
            Limits(workers=settings.workers),
        )
        self._refresher = NodeRefresher(tools, settings.refresh, around.random)

    async def run(self) -> None:
        """Work until cancelled, once the informer knows all nodes; call once."""
        await self._informer.wait_synced()
        self._informer.subscribe(self._nodes.without_echoes(_Enqueue(self._queue)))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._controller.run())
            group.create_task(self._refresher.run())

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """What this controller would write now; the informer has to run, and nothing else."""
        await self._informer.wait_synced()
        return await self._preview.of(self._tools.managed(), scope)

    def stuck(self, limit: float) -> str | None:
        """What to tell a health check if a pass has been in hand for longer than `limit`."""
        return self._controller.stuck(limit)

    def failing(self) -> str | None:
        """The message for a health check if the periodic refresh keeps failing."""
        return self._refresher.rounds.health()


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
        """Asks for a last pass, which forgets what was remembered of the node."""
        self._queue.add(old.metadata.name)
