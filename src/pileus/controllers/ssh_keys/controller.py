"""The SSH key controller: passes over all nodes, woken by changes of the source and of nodes."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pileus.cloud.interface import SshKeys
from pileus.cloud.model import NodeName
from pileus.controllers.ssh_keys.events import KeyEvents
from pileus.controllers.ssh_keys.preview import SshKeysPreview
from pileus.controllers.ssh_keys.reconciler import KeyObserver, SshKeysReconciler, Tools
from pileus.controllers.ssh_keys.settings import Location
from pileus.controllers.ssh_keys.source import Source
from pileus.kube.model.core_v1 import Node
from pileus.objects.cluster_nodes import NodeInformer
from pileus.objects.events import ObjectEvents
from pileus.objects.nodes import is_uninitialized
from pileus.objects.ownership import Ownership, Whose
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.runtime.backoff import Exponential, RetryPolicy
from pileus.runtime.controller import Controller
from pileus.runtime.events import Recorder
from pileus.runtime.queue import WorkQueue
from pileus.runtime.supervision import Supervised
from pileus.telemetry.metrics import Metrics

QUEUE = "SshKeys"
FOLLOWING = "ssh-key-source"
ALL = "all nodes"
RETRIES = Exponential(1.0, 300.0)
GATHER = 2.0
"""Seconds for which new nodes are collected, so that they share one call to the cloud."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the controller needs from the process."""

    source: Source
    informer: NodeInformer
    keys: SshKeys
    whose: Whose
    identify: Callable[[], Awaitable[str]]
    """Returns the cluster's ID."""
    events: Recorder
    metrics: Metrics
    random: random.Random
    scoped: Callable[[str], str] = field(default=str)
    """Returns the name of a queue or task in the scope of this cloud."""


class SshKeysController:
    """Gives every node of this cloud the desired keys."""

    def __init__(self, around: Surroundings, location: Location) -> None:
        self._around = around
        tools = Tools(
            source=around.source,
            nodes=self._nodes,
            keys=around.keys,
            observer=KeyObserver(around.keys),
            identify=around.identify,
            events=KeyEvents(location, ObjectEvents(around.events), around.metrics),
        )
        self._preview = SshKeysPreview(tools, location)
        self._queue = WorkQueue[str](around.scoped(QUEUE), around.metrics)
        self._controller = Controller(
            around.scoped("ssh-key-controller"),
            SshKeysReconciler(tools),
            self._queue,
            RetryPolicy(RETRIES, around.random),
        )
        self._following = Supervised(
            around.scoped(FOLLOWING), self._follow, around.random, around.metrics
        )

    async def run(self) -> None:
        """Works until cancelled, after the informer has synced. Call once."""
        await self._around.informer.wait_synced()
        self._around.informer.subscribe(_Joined(self._queue))
        async with asyncio.TaskGroup() as group:
            self._queue.add(ALL)
            group.create_task(self._following.run())
            group.create_task(self._controller.run())

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """Returns what this controller would do now. Needs only a running informer."""
        await self._around.informer.wait_synced()
        return await self._preview.of(scope)

    def stuck(self, limit: float) -> str | None:
        """Returns a message for the health check if a pass runs for more than `limit` seconds."""
        return self._controller.stuck(limit)

    def failing(self) -> str | None:
        """Returns a message for the health check if the source cannot be followed."""
        return self._following.health()

    async def _follow(self) -> None:
        await self._around.source.follow(lambda: self._queue.add(ALL))

    def _nodes(self) -> Mapping[NodeName, Node]:
        return {
            NodeName(node.metadata.name): node
            for node in self._around.informer.store.list()
            if takes_keys(node) and self._around.whose(node) is not Ownership.FOREIGN
        }


def takes_keys(node: Node) -> bool:
    """Whether the node should have keys: it is initialized and not being deleted."""
    return not is_uninitialized(node) and node.metadata.deletion_timestamp is None


class _Joined:
    def __init__(self, queue: WorkQueue[str]) -> None:
        self._queue = queue

    def added(self, new: Node, /) -> None:
        if takes_keys(new):
            self._queue.add_after(ALL, GATHER)

    def updated(self, old: Node, new: Node, /) -> None:
        if takes_keys(new) and not takes_keys(old):
            self._queue.add_after(ALL, GATHER)

    def deleted(self, _: Node, /) -> None:
        """There is nothing to do for a deleted node."""
