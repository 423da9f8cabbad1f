"""The cloud-node controller, as the manager knows it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pileus.kube.model.core_v1 import NODES
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    Skipped,
)

if TYPE_CHECKING:
    from pileus.controllers.node.controller import NodeController

NODE = ControllerNames(
    canonical="cloud-node-controller",
    alias="cloud-node",
    event_source="cloud-node-controller",
    metric="cloud-node",
    identity="node-controller",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFlags:
    """The flags of this controller. Durations are seconds."""

    workers: int | None
    """Nodes initialized at a time; None: as many as the request rate affords."""
    status_workers: int | None
    """Nodes refreshed at a time; None: the controller's default."""
    status_update_frequency: float
    label_sync: bool


def build(context: ControllerContext, flags: NodeFlags) -> "NodeController | Skipped":
    from pileus.controllers.node.controller import (  # noqa: PLC0415 -- not needed by help
        WORKERS,
        NodeController,
        NodeSettings,
        Surroundings,
    )
    from pileus.controllers.node.refresh import RefreshSettings  # noqa: PLC0415 -- the same

    cloud = context.scope.cloud
    if cloud.instances is None:
        return Skipped("the cloud provider does not support instances")
    around = Surroundings(
        client=context.client,
        informer=context.informers.of(NODES),
        instances=cloud.instances,
        whose=context.scope.whose,
        events=context.events,
        clock=context.clock,
        metrics=context.metrics,
        random=context.random,
        scoped=context.scoped,
    )
    refresh = RefreshSettings(
        period=flags.status_update_frequency,
        sync_labels=flags.label_sync,
        concurrency=flags.status_workers or RefreshSettings().concurrency,
    )
    workers = flags.workers or context.affordable(WORKERS)
    return NodeController(around, NodeSettings(workers=workers, refresh=refresh))


DESCRIPTOR = ControllerDescriptor(names=NODE, settings=NodeFlags, build=build, kinds=(NODES,))
