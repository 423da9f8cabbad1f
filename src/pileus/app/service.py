"""The service controller, given what it needs of this process."""

from pileus.app.controllers import SERVICE
from pileus.app.declared.pileus import NO_DEFAULT_CLASS
from pileus.app.duties import affordable, client_of, duty_of, events_of, identify
from pileus.app.informers import BY_UID
from pileus.app.work import Duty, Post, Skipped
from pileus.controllers.service.classes import Classes
from pileus.controllers.service.controller import (
    WORKERS,
    ServiceController,
    ServiceSettings,
    Surroundings,
)
from pileus.controllers.service.orphans import SWEEP_PERIOD, Policy, SweepSettings
from pileus.objects.ownership import whose_by

STUCK = 900.0
"""Seconds after which a pass that does not end makes the process ill."""


def service_duty(post: Post) -> Duty | Skipped:
    """What the service controller does while this process leads."""
    if post.cloud.balancers is None:
        return Skipped("the cloud provider does not support load balancers")
    client = client_of(post, SERVICE)
    events = events_of(post, SERVICE, client)
    around = Surroundings(
        client=client,
        services=post.informers.services(),
        by_uid=BY_UID,
        nodes=post.informers.nodes(),
        whose=whose_by(post.cloud),
        balancers=post.cloud.balancers,
        annotations=post.cloud.annotations,
        abilities=post.cloud.abilities,
        identify=identify(post, SERVICE),
        events=events,
        clock=post.clock,
        metrics=post.metrics,
        random=post.random,
    )
    return duty_of(ServiceController(around, _settings(post)), events, stuck_after=STUCK)


def _settings(post: Post) -> ServiceSettings:
    asked = post.config.service
    return ServiceSettings(
        classes=served_classes(post),
        workers=asked.workers or affordable(post, WORKERS),
        drift_period=asked.drift_period,
        drain_cordoned=asked.drain_cordoned,
        sweep=SweepSettings(
            policy=Policy(asked.orphans), period=asked.drift_period or SWEEP_PERIOD
        ),
    )


def served_classes(post: Post) -> Classes:
    """Which Services are served, as `--service-classes` says."""
    asked = post.config.service.classes
    return Classes.of(
        post.cloud.name,
        (name for name in asked if name != NO_DEFAULT_CLASS),
        default=NO_DEFAULT_CLASS not in asked,
    )
