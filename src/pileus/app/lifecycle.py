"""The cloud-node-lifecycle controller, given what it needs of this process."""

from pileus.app.controllers import LIFECYCLE
from pileus.app.duties import client_of, duty_of, events_of
from pileus.app.work import Duty, Post, Skipped
from pileus.controllers.lifecycle.controller import LifecycleController, Surroundings
from pileus.controllers.lifecycle.guard import Rules
from pileus.controllers.lifecycle.monitor import LifecycleSettings
from pileus.controllers.lifecycle.plan import Policy
from pileus.objects.ownership import whose_by

STUCK = 600.0
"""Seconds after which work on a node that does not end makes the process ill."""


def lifecycle_duty(post: Post) -> Duty | Skipped:
    """What the cloud-node-lifecycle controller does while this process leads."""
    if post.cloud.instances is None:
        return Skipped("the cloud provider does not support instances")
    client = client_of(post, LIFECYCLE)
    events = events_of(post, LIFECYCLE, client)
    around = Surroundings(
        client=client,
        informer=post.informers.nodes(),
        instances=post.cloud.instances,
        whose=whose_by(post.cloud),
        events=events,
        clock=post.clock,
        metrics=post.metrics,
        random=post.random,
    )
    return duty_of(LifecycleController(around, _settings(post)), events, stuck_after=STUCK)


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
            unidentified_grace=asked.deletion_unidentified_grace,
        ),
        takes_out_of_service=asked.out_of_service_taint,
    )
