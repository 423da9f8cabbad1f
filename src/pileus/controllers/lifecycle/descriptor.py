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
from pileus.objects.rights import Right, events

if TYPE_CHECKING:
    from pileus.controllers.lifecycle.controller import LifecycleController

LIFECYCLE = ControllerNames(
    canonical="cloud-node-lifecycle-controller",
    alias="cloud-node-lifecycle",
    event_source="cloud-node-lifecycle-controller",
    metric="cloud-node-lifecycle",
    identity="node-controller",
)

RIGHTS = (
    Right(
        purpose=(
            "get: read again before a deletion. patch: taints. delete: nodes whose machine "
            "no longer exists."
        ),
        resources=("nodes",),
        verbs=("get", "patch", "delete"),
    ),
    Right(purpose="Conditions.", resources=("nodes/status",), verbs=("patch",)),
    events("Events about nodes. `patch` counts repeated events."),
)


def build(
    context: ControllerContext, settings: LifecycleSettings
) -> "LifecycleController | Skipped":
    instances = context.scope.cloud.instances
    if instances is None:
        return Skipped("the cloud provider does not support instances")
    from pileus.controllers.lifecycle.controller import (  # noqa: PLC0415 -- not needed by help
        LifecycleController,
    )

    return LifecycleController(context, instances, settings)


DESCRIPTOR = ControllerDescriptor(
    names=LIFECYCLE,
    settings=LifecycleSettings,
    build=build,
    kinds=(NODES,),
    rights=lambda _: RIGHTS,
)
