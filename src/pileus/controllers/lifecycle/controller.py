"""The cloud-node-lifecycle controller as one thing to run, around one informer."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pileus.clock import Clock
from pileus.cloud.interface import Instances
from pileus.cloud.options import CORE_NAMESPACE
from pileus.controllers.lifecycle.annotations import invalid_annotations
from pileus.controllers.lifecycle.monitor import LifecycleSettings, NodeMonitor
from pileus.controllers.lifecycle.observation import View
from pileus.controllers.lifecycle.patches import patch_of
from pileus.controllers.lifecycle.plan import Write
from pileus.controllers.lifecycle.preview import LifecyclePreview
from pileus.controllers.lifecycle.reconciler import Actor, Tools
from pileus.controllers.lifecycle.telling import Teller
from pileus.kube.client import Client
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import Node
from pileus.objects.cluster_nodes import ClusterNodes, NodeInformer, NodeWriter
from pileus.objects.events import ObjectEvents
from pileus.objects.nodes import about_node, is_ready
from pileus.objects.ownership import Ownership, Whose
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.runtime.events import Recorder
from pileus.telemetry.metrics import Metrics

BLIND_AFTER = 120.0
"""Seconds without a byte from the watch after which nothing is concluded from what it showed."""

UNKNOWN_ANNOTATION = "UnknownAnnotation"
"""The event on a Node with a misspelt annotation of ours."""


class WatchedNodes(NodeInformer, Protocol):
    """One that also says how old its view may be."""

    failure: KubeError | None

    def age(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the controller is put into."""

    client: Client
    informer: WatchedNodes
    instances: Instances
    whose: Whose
    events: Recorder
    clock: Clock
    metrics: Metrics
    random: random.Random


class LifecycleController:
    """Deletes nodes whose machines are gone, as the policy allows, and taints stopped ones."""

    def __init__(self, around: Surroundings, settings: LifecycleSettings) -> None:
        nodes = ClusterNodes[Write](around.client, around.informer.store, patch_of)
        notices = ObjectEvents(around.events)
        tools = Tools(
            nodes=nodes,
            writer=NodeWriter(nodes, around.random),
            notices=notices,
            clock=around.clock,
            metrics=around.metrics,
            concurrency=settings.concurrency,
        )
        view = View(
            node=nodes.node,
            nodes=nodes.nodes,
            whose=around.whose,
            blindness=lambda: blindness(around.informer),
        )
        self._informer = around.informer
        self._annotations = _Annotations(view.whose, notices)
        self._nodes = nodes
        self._monitor = NodeMonitor(
            view, around.instances, Actor(tools), Teller(around.metrics), settings
        )
        self._preview = LifecyclePreview(view, around.instances, around.clock)

    async def run(self) -> None:
        """Work until cancelled, once the informer knows all nodes; call once."""
        await self._informer.wait_synced()
        self._informer.subscribe(self._nodes.without_echoes(_Wake(self._monitor)))
        self._informer.subscribe(self._annotations)
        await self._monitor.run()

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """What would be done now, or after a second look; the informer has to run."""
        await self._informer.wait_synced()
        return await self._preview.of(scope, self._monitor.knowledge)

    def stuck(self, limit: float) -> str | None:
        """What to tell a health check if a node has been in hand for longer than `limit`."""
        return self._monitor.stuck(limit)

    def failing(self) -> str | None:
        """The message for a health check if monitoring keeps failing."""
        return self._monitor.failing()


def blindness(informer: WatchedNodes) -> str:
    """Why what the informer shows may be old; empty: it is not."""
    if informer.failure is not None:
        return str(informer.failure) or type(informer.failure).__name__
    age = informer.age()
    return f"the watch has been silent for {age:.0f} s" if age > BLIND_AFTER else ""


class _Wake:
    """Tells the monitor which nodes changed in a way that matters to it."""

    def __init__(self, monitor: NodeMonitor) -> None:
        self._monitor = monitor

    def added(self, new: Node, /) -> None:
        self._monitor.wake(new.metadata.name)

    def updated(self, old: Node, new: Node, /) -> None:
        if is_ready(new):
            self._monitor.forget(new)
        if is_ready(old) != is_ready(new) or _annotations(old) != _annotations(new):
            self._monitor.changed(new)

    def deleted(self, old: Node, /) -> None:
        self._monitor.forget(old)


class _Annotations:
    """Reports misspelt annotations of ours as soon as they are set, long before they matter."""

    def __init__(self, whose: Whose, notices: ObjectEvents) -> None:
        self._whose = whose
        self._notices = notices

    def added(self, new: Node, /) -> None:
        invalid = invalid_annotations(new)
        if invalid and self._whose(new) is not Ownership.FOREIGN:
            self._notices.warn(about_node(new), UNKNOWN_ANNOTATION, invalid)

    def updated(self, old: Node, new: Node, /) -> None:
        if _annotations(old) != _annotations(new):
            self._notices.forget(about_node(new), UNKNOWN_ANNOTATION)
            self.added(new)

    def deleted(self, old: Node, /) -> None:
        self._notices.forget(about_node(old), UNKNOWN_ANNOTATION)


def _annotations(node: Node) -> Mapping[str, str]:
    given = node.metadata.annotations or {}
    return {name: value for name, value in given.items() if name.startswith(CORE_NAMESPACE)}
