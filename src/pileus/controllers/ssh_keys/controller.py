"""The SSH key controller: passes over all nodes, woken by changes of the source and of nodes."""

import asyncio
from collections.abc import Mapping, Sequence

from pileus.cloud.interface import SshKeys
from pileus.cloud.model import NodeName
from pileus.controllers.ssh_keys.events import KeyEvents
from pileus.controllers.ssh_keys.preview import SshKeysPreview
from pileus.controllers.ssh_keys.reconciler import KeyObserver, SshKeysReconciler, Tools
from pileus.controllers.ssh_keys.settings import Location
from pileus.controllers.ssh_keys.source import source_of
from pileus.kube.model.core_v1 import NODES, Node
from pileus.objects.descriptor import ControllerContext
from pileus.objects.events import ObjectEvents
from pileus.objects.nodes import is_uninitialized
from pileus.objects.ownership import Ownership
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.runtime.backoff import Exponential, RetryPolicy
from pileus.runtime.controller import Controller
from pileus.runtime.queue import WorkQueue
from pileus.runtime.supervision import Supervised

QUEUE = "SshKeys"
FOLLOWING = "ssh-key-source"
ALL = "all nodes"
RETRIES = Exponential(1.0, 300.0)
GATHER = 2.0
"""Seconds for which new nodes are collected, so that they share one call to the cloud."""


class SshKeysController:
    """Gives every node of this cloud the desired keys."""

    def __init__(self, context: ControllerContext, keys: SshKeys, location: Location) -> None:
        self._informer = context.informers.of(NODES)
        self._whose = context.scope.whose
        self._source = source_of(location, context.client, context.informers)
        tools = Tools(
            source=self._source,
            nodes=self._nodes,
            keys=keys,
            observer=KeyObserver(keys),
            identify=context.cluster_id,
            events=KeyEvents(location, ObjectEvents(context.events), context.metrics),
        )
        self._preview = SshKeysPreview(tools, location)
        self._queue = WorkQueue[str](context.scoped(QUEUE), context.metrics)
        self._controller = Controller(
            context.scoped(context.names.canonical),
            SshKeysReconciler(tools),
            self._queue,
            RetryPolicy(RETRIES, context.random),
        )
        self._following = Supervised(
            context.scoped(FOLLOWING), self._follow, context.random, context.metrics
        )

    async def run(self) -> None:
        """Works until cancelled, after the informer has synced. Call once."""
        await self._informer.wait_synced()
        self._informer.subscribe(_Joined(self._queue))
        async with asyncio.TaskGroup() as group:
            self._queue.add(ALL)
            group.create_task(self._following.run())
            group.create_task(self._controller.run())

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """Returns what this controller would do now. Needs only a running informer."""
        await self._informer.wait_synced()
        return await self._preview.of(scope)

    def stuck(self, limit: float) -> str | None:
        """Returns a message for the health check if a pass runs for more than `limit` seconds."""
        return self._controller.stuck(limit)

    def failing(self) -> str | None:
        """Returns a message for the health check if the source cannot be followed."""
        return self._following.health()

    async def _follow(self) -> None:
        await self._source.follow(lambda: self._queue.add(ALL))

    def _nodes(self) -> Mapping[NodeName, Node]:
        return {
            NodeName(node.metadata.name): node
            for node in self._informer.store.list()
            if takes_keys(node) and self._whose(node) is not Ownership.FOREIGN
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
