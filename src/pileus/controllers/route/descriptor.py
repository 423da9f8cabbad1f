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
from pileus.objects.rights import Right, events

if TYPE_CHECKING:
    from pileus.controllers.route.controller import RouteController

ROUTE = ControllerNames(
    canonical="node-route-controller",
    alias="route",
    event_source="route_controller",
    metric="route",
    identity="route-controller",
)

RIGHTS = (
    Right(
        purpose="Read again before many routes are deleted.", resources=("nodes",), verbs=("list",)
    ),
    Right(
        purpose="The condition NetworkUnavailable.", resources=("nodes/status",), verbs=("patch",)
    ),
    events("Events about nodes. `patch` counts repeated events."),
)


def rights(settings: RouteSettings) -> tuple[Right, ...]:
    return RIGHTS if settings.enabled and settings.cluster.cidr else ()


def build(context: ControllerContext, settings: RouteSettings) -> "RouteController | Skipped":
    routes = context.scope.cloud.routes
    if routes is None:
        why = context.scope.cloud.absent.get("routes")
        return Skipped(why or "the cloud provider does not support routes")
    if not settings.enabled:
        return Skipped("--configure-cloud-routes=false")
    if not settings.cluster.cidr:
        return Skipped("--cluster-cidr is not set, so its own routes cannot be identified")
    from pileus.controllers.route.controller import RouteController  # noqa: PLC0415 -- not for help

    return RouteController(context, routes, settings)


DESCRIPTOR = ControllerDescriptor(
    names=ROUTE,
    settings=RouteSettings,
    build=build,
    kinds=(NODES,),
    rights=rights,
    stuck_after=2400.0,
)
