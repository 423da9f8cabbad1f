"""The node-ipam controller, as the manager knows it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pileus.controllers.ipam.sizes import Asked, sizes
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


@dataclass(frozen=True, slots=True, kw_only=True)
class IpamFlags:
    """The flags of this controller."""

    allocate_node_cidrs: bool
    ranges: Asked


def build(context: ControllerContext, flags: IpamFlags) -> "IpamController | Skipped":
    from pileus.controllers.ipam.controller import IpamController  # noqa: PLC0415 -- not for help

    if not flags.allocate_node_cidrs:
        return Skipped("--allocate-node-cidrs is not set")
    return IpamController(context, sizes(flags.ranges))


DESCRIPTOR = ControllerDescriptor(
    names=IPAM, settings=IpamFlags, build=build, kinds=(NODES,), per_cloud=False
)
