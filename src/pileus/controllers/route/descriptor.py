"""The route controller, as the manager knows it."""

from typing import TYPE_CHECKING

from pileus.controllers.route.settings import RouteSettings
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


def build(context: ControllerContext, settings: RouteSettings) -> "RouteController | Skipped":
    from pileus.controllers.route.controller import RouteController  # noqa: PLC0415 -- not for help

    routes = context.scope.cloud.routes
    if routes is None:
        return Skipped("the cloud provider does not support routes")
    if not settings.enabled:
        return Skipped("--configure-cloud-routes=false")
    if not settings.cluster.cidr:
        return Skipped("--cluster-cidr is not set, so its own routes cannot be identified")
    return RouteController(context, routes, settings)


DESCRIPTOR = ControllerDescriptor(
    names=ROUTE, settings=RouteSettings, build=build, kinds=(NODES,), stuck_after=2400.0
)
