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
    from pileus.controllers.service.controller import (  # noqa: PLC0415 -- not needed by help
        ServiceController,
    )

    balancers = context.scope.cloud.balancers
    if balancers is None:
        return Skipped("the cloud provider does not support load balancers")
    classes = served_classes(context.scope, settings)
    return ServiceController(context, balancers, settings, classes)


DESCRIPTOR = ControllerDescriptor(
    names=SERVICE,
    settings=ServiceSettings,
    build=build,
    kinds=(NODES, SERVICES),
    stuck_after=900.0,
)
