"""The cloud-node-lifecycle controller, as the manager knows it."""

from typing import TYPE_CHECKING

from pileus.controllers.lifecycle.settings import LifecycleSettings
from pileus.kube.model.core_v1 import NODES
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    Skipped,
)

if TYPE_CHECKING:
    from pileus.controllers.lifecycle.controller import LifecycleController

LIFECYCLE = ControllerNames(
    canonical="cloud-node-lifecycle-controller",
    alias="cloud-node-lifecycle",
    event_source="cloud-node-lifecycle-controller",
    metric="cloud-node-lifecycle",
    identity="node-controller",
)


def build(
    context: ControllerContext, settings: LifecycleSettings
) -> "LifecycleController | Skipped":
    from pileus.controllers.lifecycle.controller import (  # noqa: PLC0415 -- not needed by help
        LifecycleController,
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
    return LifecycleController(around, settings)


DESCRIPTOR = ControllerDescriptor(
    names=LIFECYCLE, settings=LifecycleSettings, build=build, kinds=(NODES,)
)
