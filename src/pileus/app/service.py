"""The service controller, given what it needs of this process."""

from pileus.app.beside import beside
from pileus.app.clients import Rate
from pileus.app.cluster_id import find_cluster_id
from pileus.app.controllers import SERVICE
from pileus.app.declared.pileus import NO_DEFAULT_CLASS
from pileus.app.informers import BY_UID
from pileus.app.work import Duty, Post, Skipped
from pileus.controllers.service.classes import Classes
from pileus.controllers.service.controller import (
    WORKERS,
    ServiceController,
    ServiceSettings,
    Surroundings,
)
from pileus.controllers.service.orphans import Policy, SweepSettings
from pileus.runtime.events import EventRecorder

PASS_SECONDS = 30
"""How long a pass may have to wait for the client's rate."""
STUCK = 900.0
"""Seconds after which a pass that does not end makes the process ill."""


def service_duty(post: Post) -> Duty | Skipped:
    """What the service controller does while this process leads."""
    if post.cloud.balancers is None:
        return Skipped("the cloud provider does not support load balancers")
    client = post.clients.controller(SERVICE.identity, fence=post.fence)
    main = post.clients.main(SERVICE.identity)
    events = EventRecorder(
        SERVICE.event_source,
        client,
        clock=post.clock,
        random=post.random,
        metrics=post.metrics,
    )
    around = Surroundings(
        client=client,
        services=post.informers.services(),
        by_uid=BY_UID,
        nodes=post.informers.nodes(),
        balancers=post.cloud.balancers,
        annotations=post.cloud.annotations,
        identify=lambda: find_cluster_id(main, post.config.service.cluster_id),
        events=events,
        clock=post.clock,
        metrics=post.metrics,
        random=post.random,
    )
    controller = ServiceController(around, _settings(post))

    async def run() -> None:
        async with beside(events.run()):
            await controller.run()

    return Duty(run, health=lambda: controller.stuck(STUCK), preview=controller.preview)


def _settings(post: Post) -> ServiceSettings:
    asked = post.config.service
    return ServiceSettings(
        classes=served_classes(post),
        workers=asked.workers or _affordable(post),
        drift_period=asked.drift_period,
        drain_cordoned=asked.drain_cordoned,
        sweep=SweepSettings(policy=Policy(asked.orphans), period=asked.drift_period),
    )


def served_classes(post: Post) -> Classes:
    """Which Services are served, as `--service-classes` says."""
    asked = post.config.service.classes
    return Classes.of(
        post.cloud.name,
        (name for name in asked if name != NO_DEFAULT_CLASS),
        default=NO_DEFAULT_CLASS not in asked,
    )


def _affordable(post: Post) -> int:
    """With a fixed rate of requests, more passes would only wait until their time is over."""
    rate = Rate.of(post.config.client)
    return WORKERS if rate is None else min(WORKERS, max(1, int(rate.qps * PASS_SECONDS)))
