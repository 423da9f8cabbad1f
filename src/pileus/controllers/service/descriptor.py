"""The service controller, as the manager knows it."""

from typing import TYPE_CHECKING

from pileus.controllers.service.annotations import Classes
from pileus.controllers.service.settings import ServiceSettings
from pileus.kube.model.core_v1 import NODES, SERVICES
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    Skipped,
)
from pileus.objects.rights import Right, events

if TYPE_CHECKING:
    from pileus.controllers.service.controller import ServiceController
    from pileus.objects.cloud_scope import CloudScope

SERVICE = ControllerNames(
    canonical="service-lb-controller",
    alias="service",
    event_source="service-controller",
    metric="service",
    identity="service-controller",
)

RIGHTS = (
    Right(
        purpose="Read again before a load balancer is deleted and before a write is repeated.",
        resources=("services",),
        verbs=("get", "list"),
    ),
    Right(
        purpose="Finalizer, ingress addresses and conditions.",
        resources=("services/status",),
        verbs=("patch",),
    ),
    Right(
        purpose="Read again before many members are removed from a load balancer.",
        resources=("nodes",),
        verbs=("list",),
    ),
    events("Events about Services. `patch` counts repeated events."),
)


def served_classes(scope: "CloudScope", settings: ServiceSettings) -> Classes:
    """Returns which Services a cloud serves.

    `--service-classes` adds classes to the only cloud. Several clouds list their classes in the
    configuration file: validation refuses the flag.
    """
    named = settings.classes if scope.is_only else ()
    default = scope.is_default and settings.serves_default
    return Classes.of(
        scope.name, {*scope.classes, *named}, default=default, of_others=scope.other_classes
    )


def build(context: ControllerContext, settings: ServiceSettings) -> "ServiceController | Skipped":
    balancers = context.scope.cloud.balancers
    if balancers is None:
        return Skipped("the cloud provider does not support load balancers")
    from pileus.controllers.service.controller import (  # noqa: PLC0415 -- not needed by help
        ServiceController,
    )

    classes = served_classes(context.scope, settings)
    return ServiceController(context, balancers, settings, classes)


DESCRIPTOR = ControllerDescriptor(
    names=SERVICE,
    settings=ServiceSettings,
    build=build,
    kinds=(NODES, SERVICES),
    rights=lambda _: RIGHTS,
    stuck_after=900.0,
)
