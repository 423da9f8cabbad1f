"""The service controller, as the manager knows it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pileus.controllers.service.annotations import NO_DEFAULT_CLASS, Classes
from pileus.kube.model.core_v1 import NODES, SERVICES
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    Skipped,
)

if TYPE_CHECKING:
    from pileus.controllers.service.controller import ServiceController, ServiceSettings
    from pileus.objects.cloud_scope import CloudScope

SERVICE = ControllerNames(
    canonical="service-lb-controller",
    alias="service",
    event_source="service-controller",
    metric="service",
    identity="service-controller",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFlags:
    """The flags of this controller. Durations are seconds."""

    workers: int | None
    """Services reconciled at a time; None: as many as the request rate affords."""
    classes: tuple[str, ...]
    drift_period: float
    drain_cordoned: bool
    orphans: str


def served_classes(scope: "CloudScope", flags: ServiceFlags) -> Classes:
    """Returns which Services a cloud serves.

    Of several clouds, the default one serves the classes of `--service-classes`.
    """
    named = flags.classes if scope.is_only or scope.is_default else ()
    classes = {*scope.classes, *(name for name in named if name != NO_DEFAULT_CLASS)}
    default = scope.is_default and NO_DEFAULT_CLASS not in named
    return Classes.of(scope.name, classes, default=default)


def build(context: ControllerContext, flags: ServiceFlags) -> "ServiceController | Skipped":
    from pileus.controllers.service.controller import (  # noqa: PLC0415 -- not needed by help
        ServiceController,
    )

    balancers = context.scope.cloud.balancers
    if balancers is None:
        return Skipped("the cloud provider does not support load balancers")
    return ServiceController(context, balancers, _settings(context, flags))


def _settings(context: ControllerContext, flags: ServiceFlags) -> "ServiceSettings":
    from pileus.controllers.service.controller import (  # noqa: PLC0415 -- not needed by help
        WORKERS,
        ServiceSettings,
    )
    from pileus.controllers.service.orphans import (  # noqa: PLC0415 -- the same
        SWEEP_PERIOD,
        Policy,
        SweepSettings,
    )

    return ServiceSettings(
        classes=served_classes(context.scope, flags),
        workers=flags.workers or context.affordable(WORKERS),
        drift_period=flags.drift_period,
        drain_cordoned=flags.drain_cordoned,
        sweep=SweepSettings(
            policy=Policy(flags.orphans), period=flags.drift_period or SWEEP_PERIOD
        ),
    )


DESCRIPTOR = ControllerDescriptor(
    names=SERVICE,
    settings=ServiceFlags,
    build=build,
    kinds=(NODES, SERVICES),
    stuck_after=900.0,
)
