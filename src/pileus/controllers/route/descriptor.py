"""The route controller, as the manager knows it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pileus.controllers.route.ownership import Ownership
from pileus.kube.model.core_v1 import NODES
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    Skipped,
)

if TYPE_CHECKING:
    from pileus.controllers.route.controller import RouteController

ROUTE = ControllerNames(
    canonical="node-route-controller",
    alias="route",
    event_source="route_controller",
    metric="route",
    identity="route-controller",
)
CHECKS = 300.0
"""Seconds between two checks for drift, if changes of nodes cause rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFlags:
    """The flags of this controller. Durations are seconds."""

    configure_cloud_routes: bool
    cluster_cidr: str
    ownership: Ownership
    watch_based: bool
    period: float | None
    """None if it is not set and changes of nodes cause rounds."""


def build(context: ControllerContext, flags: RouteFlags) -> "RouteController | Skipped":
    from pileus.controllers.route.controller import (  # noqa: PLC0415 -- not needed by help
        RouteController,
        RouteSettings,
    )
    from pileus.objects.ranges import parse_ranges  # noqa: PLC0415 -- the same

    routes = context.scope.cloud.routes
    if routes is None:
        return Skipped("the cloud provider does not support routes")
    if not flags.configure_cloud_routes:
        return Skipped("--configure-cloud-routes=false")
    if not flags.cluster_cidr:
        return Skipped("--cluster-cidr is not set, so its own routes cannot be identified")
    settings = RouteSettings(
        ranges=parse_ranges(flags.cluster_cidr),
        ownership=flags.ownership,
        watch=flags.watch_based,
        period=flags.period or CHECKS,
    )
    return RouteController(context, routes, settings)


DESCRIPTOR = ControllerDescriptor(
    names=ROUTE, settings=RouteFlags, build=build, kinds=(NODES,), stuck_after=2400.0
)
