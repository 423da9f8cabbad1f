"""The cloud-node controller, as the manager knows it."""

from typing import TYPE_CHECKING

from pileus.controllers.node.settings import NodeSettings
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


def build(context: ControllerContext, settings: NodeSettings) -> "NodeController | Skipped":
    from pileus.controllers.node.controller import (  # noqa: PLC0415 -- not needed by help
        WORKERS,
        NodeController,
        Surroundings,
    )

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
    workers = settings.workers or context.affordable(WORKERS)
    return NodeController(around, settings, workers=workers)


DESCRIPTOR = ControllerDescriptor(names=NODE, settings=NodeSettings, build=build, kinds=(NODES,))
