"""The cloud-node-lifecycle controller, given what it needs of this process."""

from pileus.app.beside import beside
from pileus.app.controllers import LIFECYCLE
from pileus.app.work import Duty, Post, Skipped
from pileus.controllers.lifecycle.controller import LifecycleController, Surroundings
from pileus.controllers.lifecycle.guard import Rules
from pileus.controllers.lifecycle.monitor import LifecycleSettings
from pileus.controllers.lifecycle.plan import Policy
from pileus.runtime.events import EventRecorder

STUCK = 600.0
"""Seconds after which work on a node that does not end makes the process ill."""


def lifecycle_duty(post: Post) -> Duty | Skipped:
    """What the cloud-node-lifecycle controller does while this process leads."""
    if post.cloud.instances is None:
        return Skipped("the cloud provider does not support instances")
    client = post.clients.controller(LIFECYCLE.identity, fence=post.fence)
    events = EventRecorder(
        LIFECYCLE.event_source,
        client,
        clock=post.clock,
        random=post.random,
        metrics=post.metrics,
    )
    around = Surroundings(
        client=client,
        informer=post.informers.nodes(),
        instances=post.cloud.instances,
        scheme=post.cloud.name,
        owns=post.cloud.owns,
        events=events,
        clock=post.clock,
        metrics=post.metrics,
        random=post.random,
    )
    controller = LifecycleController(around, _settings(post))

    async def run() -> None:
        async with beside(events.run()):
            await controller.run()

    return Duty(run, health=lambda: controller.stuck(STUCK), preview=controller.preview)


def _settings(post: Post) -> LifecycleSettings:
    asked = post.config.lifecycle
    return LifecycleSettings(
        period=asked.monitor_period,
        concurrency=asked.workers or LifecycleSettings().concurrency,
        policy=Policy(asked.deletion_policy),
        rules=Rules(
            grace=asked.deletion_grace,
            fraction=asked.deletion_max_fraction,
            window=asked.deletion_window,
        ),
        takes_out_of_service=asked.out_of_service_taint,
    )
