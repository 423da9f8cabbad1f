"""The cloud-node-lifecycle controller: the monitor, woken by changes of nodes."""

from collections.abc import Mapping, Sequence

from pileus.cloud.interface import Instances
from pileus.cloud.options import CORE_NAMESPACE
from pileus.controllers.lifecycle.annotations import invalid_annotations
from pileus.controllers.lifecycle.guard import initial_guards
from pileus.controllers.lifecycle.monitor import (
    ROUND,
    MonitorTools,
    NodeMonitor,
)
from pileus.controllers.lifecycle.observation import ClusterView, InstanceLookup
from pileus.controllers.lifecycle.patches import Write, patch_of
from pileus.controllers.lifecycle.preview import LifecyclePreview
from pileus.controllers.lifecycle.reconciler import GuardMemory, PerformerTools, StepPerformer
from pileus.controllers.lifecycle.settings import LifecycleSettings
from pileus.kube.informer import Informer
from pileus.kube.model.core_v1 import NODES, Node
from pileus.objects.cluster_nodes import ClusterNodes, NodeWriter
from pileus.objects.descriptor import ControllerContext
from pileus.objects.events import ObjectEvents
from pileus.objects.nodes import about_node, is_ready
from pileus.objects.ownership import Ownership, Whose
from pileus.objects.preview import Planned, Scope, Trouble

STALE_AFTER = 120.0
"""Seconds without a byte from the watch after which its view counts as stale."""

UNKNOWN_ANNOTATION = "UnknownAnnotation"
"""The event on a Node with a misspelt `pileus.dev/` annotation."""


class LifecycleController:
    """Deletes nodes whose instances are deleted, as the policy allows, and taints stopped ones."""

    def __init__(
        self, context: ControllerContext, instances: Instances, settings: LifecycleSettings
    ) -> None:
        informer = self._informer = context.informers.of(NODES)
        nodes = ClusterNodes[Write](context.client, informer.store, patch_of)
        notices = ObjectEvents(context.events)
        view = ClusterView(
            node=nodes.node,
            nodes=nodes.nodes,
            whose=context.scope.whose,
            staleness=lambda: staleness(informer),
        )
        lookup = InstanceLookup(instances=instances, view=view)
        self._memory = GuardMemory(initial_guards(settings), context.metrics)
        performer = StepPerformer(
            PerformerTools(
                nodes=nodes,
                writer=NodeWriter(nodes, context.random),
                whose=context.scope.whose,
                notices=notices,
                clock=context.clock,
                metrics=context.metrics,
                concurrency=settings.concurrency,
            ),
            self._memory,
        )
        tools = MonitorTools(
            view=view,
            lookup=lookup,
            memory=self._memory,
            performer=performer,
            clock=context.clock,
            metrics=context.metrics,
            random=context.random,
        )
        self._annotations = _Annotations(view.whose, notices)
        self._nodes = nodes
        self._monitor = NodeMonitor(tools, settings, context.scoped(ROUND))
        self._preview = LifecyclePreview(view, lookup, context.clock)

    async def run(self) -> None:
        """Works until cancelled, after the informer has synced. Call once."""
        await self._informer.wait_synced()
        self._informer.subscribe(self._nodes.without_echoes(_Wake(self._monitor)))
        self._informer.subscribe(self._annotations)
        await self._monitor.run()

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """Returns what would be done now and after a second check. Needs a running informer."""
        await self._informer.wait_synced()
        return await self._preview.of(scope, self._memory.guards)

    def stuck(self, limit: float) -> str | None:
        """Returns a message for the health check if work on a node takes more than `limit` s."""
        return self._monitor.stuck(limit)

    def failing(self) -> str | None:
        """Returns a message for the health check if monitoring keeps failing."""
        return self._monitor.failing()


def staleness(informer: Informer[Node]) -> str:
    """Returns why the informer's view may be stale; empty if it is current."""
    if informer.failure is not None:
        return str(informer.failure) or type(informer.failure).__name__
    age = informer.age()
    return f"the watch has been silent for {age:.0f} s" if age > STALE_AFTER else ""


class _Wake:
    """Wakes the monitor for changes of readiness and of our annotations."""

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
    """Reports misspelt annotations as soon as they are set, before they matter."""

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
