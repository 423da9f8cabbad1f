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
from pileus.objects.rights import Right, events

if TYPE_CHECKING:
    from pileus.controllers.node.controller import NodeController

NODE = ControllerNames(
    canonical="cloud-node-controller",
    alias="cloud-node",
    event_source="cloud-node-controller",
    metric="cloud-node",
    identity="node-controller",
)

RIGHTS = (
    Right(
        purpose="get: read again after a conflict. patch: provider ID, labels and taints.",
        resources=("nodes",),
        verbs=("get", "patch"),
    ),
    Right(purpose="Addresses and conditions.", resources=("nodes/status",), verbs=("patch",)),
    events("Events about nodes. `patch` counts repeated events."),
)


def build(context: ControllerContext, settings: NodeSettings) -> "NodeController | Skipped":
    instances = context.scope.cloud.instances
    if instances is None:
        return Skipped("the cloud provider does not support instances")
    from pileus.controllers.node.controller import (  # noqa: PLC0415 -- not needed by help
        NodeController,
    )

    return NodeController(context, instances, settings)


DESCRIPTOR = ControllerDescriptor(
    names=NODE, settings=NodeSettings, build=build, kinds=(NODES,), rights=lambda _: RIGHTS
)
