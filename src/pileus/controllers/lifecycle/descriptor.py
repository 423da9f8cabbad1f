"""The cloud-node-lifecycle controller, as the manager knows it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pileus.kube.model.core_v1 import NODES
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    Skipped,
)

if TYPE_CHECKING:
    from pileus.controllers.lifecycle.controller import LifecycleController

LIFECYCLE = ControllerNames(
    canonical="cloud-node-lifecycle-controller",
    alias="cloud-node-lifecycle",
    event_source="cloud-node-lifecycle-controller",
    metric="cloud-node-lifecycle",
    identity="node-controller",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleFlags:
    """The flags of this controller. Durations are seconds."""

    monitor_period: float
    workers: int | None
    """Nodes written at a time; None: the controller's default."""
    deletion_policy: str
    deletion_grace: float
    deletion_unidentified_grace: float
    deletion_max_fraction: float
    deletion_window: float
    out_of_service_taint: bool


def build(context: ControllerContext, flags: LifecycleFlags) -> "LifecycleController | Skipped":
    from pileus.controllers.lifecycle.controller import (  # noqa: PLC0415 -- not needed by help
        LifecycleController,
        Surroundings,
    )
    from pileus.controllers.lifecycle.guard import Policy, Rules  # noqa: PLC0415 -- the same
    from pileus.controllers.lifecycle.monitor import LifecycleSettings  # noqa: PLC0415 -- the same

    cloud = context.scope.cloud
    if cloud.instances is None:
        return Skipped("the cloud provider does not support instances")
    around = Surroundings(
        client=context.client,
        informer=context.informers.of(NODES),
        instances=cloud.instances,
        whose=context.scope.whose,
        events=context.events,
        clock=context.clock,
        metrics=context.metrics,
        random=context.random,
        scoped=context.scoped,
    )
    settings = LifecycleSettings(
        period=flags.monitor_period,
        concurrency=flags.workers or LifecycleSettings().concurrency,
        policy=Policy(flags.deletion_policy),
        rules=Rules(
            grace=flags.deletion_grace,
            fraction=flags.deletion_max_fraction,
            window=flags.deletion_window,
            unidentified_grace=flags.deletion_unidentified_grace,
        ),
        takes_out_of_service=flags.out_of_service_taint,
    )
    return LifecycleController(around, settings)


DESCRIPTOR = ControllerDescriptor(
    names=LIFECYCLE, settings=LifecycleFlags, build=build, kinds=(NODES,)
)
