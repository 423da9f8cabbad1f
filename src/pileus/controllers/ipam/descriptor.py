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


def build(context: ControllerContext, settings: IpamSettings) -> "IpamController | Skipped":
    from pileus.controllers.ipam.controller import IpamController  # noqa: PLC0415 -- not for help

    if not settings.allocate:
        return Skipped("--allocate-node-cidrs is not set")
    return IpamController(context, sizes(settings))


DESCRIPTOR = ControllerDescriptor(
    names=IPAM, settings=IpamSettings, build=build, kinds=(NODES,), per_cloud=False
)
