"""The cloud-node controller, given what it needs of this process."""

from pileus.app.beside import beside
from pileus.app.clients import Rate
from pileus.app.controllers import NODE
from pileus.app.work import Duty, Post, Skipped
from pileus.controllers.node.controller import (
    WORKERS,
    NodeController,
    NodeSettings,
    Surroundings,
)
from pileus.controllers.node.refresh import RefreshSettings
from pileus.runtime.events import EventRecorder

PASS_SECONDS = 30
"""How long a pass may have to wait for the client's rate."""
STUCK = 600.0
"""Seconds after which a pass that does not end makes the process ill."""


def node_duty(post: Post) -> Duty | Skipped:
    """What the cloud-node controller does while this process leads."""
    if post.cloud.instances is None:
        return Skipped("the cloud provider does not support instances")
    client = post.clients.controller(NODE.identity, fence=post.fence)
    events = EventRecorder(
        NODE.event_source,
        client,
        clock=post.clock,
        random=post.random,
        metrics=post.metrics,
    )
    around = Surroundings(
        client=client,
        informer=post.informers.nodes(),
        instances=post.cloud.instances,
        events=events,
        clock=post.clock,
        metrics=post.metrics,
        random=post.random,
    )
    controller = NodeController(around, _settings(post))

    async def run() -> None:
        async with beside(events.run()):
            await controller.run()

    return Duty(run, health=lambda: controller.stuck(STUCK), preview=controller.preview)


def _settings(post: Post) -> NodeSettings:
    asked = post.config.node
    refresh = RefreshSettings(
        period=asked.status_update_frequency,
        sync_labels=asked.label_sync,
        concurrency=asked.status_workers or RefreshSettings().concurrency,
    )
    return NodeSettings(workers=asked.workers or _affordable(post), refresh=refresh)


def _affordable(post: Post) -> int:
    """With a fixed rate of requests, more passes would only wait until their time is over."""
    rate = Rate.of(post.config.client)
    return WORKERS if rate is None else min(WORKERS, max(1, int(rate.qps * PASS_SECONDS)))
