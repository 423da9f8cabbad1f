"""The node-ipam controller, as the manager knows it."""

from typing import TYPE_CHECKING

from pileus.controllers.ipam.settings import IpamSettings, sizes
from pileus.kube.model.core_v1 import NODES
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    Skipped,
)
from pileus.objects.rights import Right, events

if TYPE_CHECKING:
    from pileus.controllers.ipam.controller import IpamController

IPAM = ControllerNames(
    canonical="node-ipam-controller",
    alias="nodeipam",
    event_source="cidrAllocator",
    metric="",
    identity="node-controller",
    # Most clusters set --allocate-node-cidrs although kube-controller-manager allocates; two
    # allocators would assign the same ranges.
    off_by_default=True,
)

RIGHTS = (
    Right(
        purpose="list: at the start. get: before a pod range is reused. patch: pod ranges.",
        resources=("nodes",),
        verbs=("get", "list", "patch"),
    ),
    events("Events about nodes. `patch` counts repeated events."),
)


def build(context: ControllerContext, settings: IpamSettings) -> "IpamController | Skipped":
    if not settings.allocate:
        return Skipped("--allocate-node-cidrs is not set")
    from pileus.controllers.ipam.controller import IpamController  # noqa: PLC0415 -- not for help

    return IpamController(context, sizes(settings))


DESCRIPTOR = ControllerDescriptor(
    names=IPAM,
    settings=IpamSettings,
    build=build,
    kinds=(NODES,),
    rights=lambda settings: RIGHTS if settings.allocate else (),
    per_cloud=False,
)
