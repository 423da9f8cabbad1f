"""The cloud-node controller, given what it needs of this process."""

from pileus.app.controllers import NODE
from pileus.app.duties import affordable, client_of, duty_of, events_of
from pileus.app.work import Duty, Post, Skipped
from pileus.controllers.node.controller import (
    WORKERS,
    NodeController,
    NodeSettings,
    Surroundings,
)
from pileus.controllers.node.refresh import RefreshSettings
from pileus.objects.ownership import whose_by

STUCK = 600.0
"""Seconds after which a pass that does not end makes the process ill."""


def node_duty(post: Post) -> Duty | Skipped:
    """What the cloud-node controller does while this process leads."""
    if post.cloud.instances is None:
        return Skipped("the cloud provider does not support instances")
    client = client_of(post, NODE)
    events = events_of(post, NODE, client)
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
    return duty_of(NodeController(around, _settings(post)), events, stuck_after=STUCK)


def _settings(post: Post) -> NodeSettings:
    asked = post.config.node
    refresh = RefreshSettings(
        period=asked.status_update_frequency,
        sync_labels=asked.label_sync,
        concurrency=asked.status_workers or RefreshSettings().concurrency,
    )
    return NodeSettings(workers=asked.workers or affordable(post, WORKERS), refresh=refresh)
