"""The route controller, given what it needs of this process."""

from pileus.app.controllers import ROUTE
from pileus.app.duties import client_of, duty_of, events_of, identify
from pileus.app.work import Duty, Post, Skipped
from pileus.controllers.route.controller import RouteController, RouteSettings, Surroundings
from pileus.objects.ownership import whose_by
from pileus.objects.ranges import Range, parse_ranges

STUCK = 2400.0
"""Seconds after which a round that does not end makes the process ill."""
CHECKS = 300.0
"""Seconds between two checks for drift, where changes of nodes cause rounds."""


def route_duty(post: Post) -> Duty | Skipped:
    """The route controller, or why it does not run."""
    routes, shared = post.cloud.routes, post.config.shared
    if routes is None:
        return Skipped("the cloud provider does not support routes")
    if not shared.configure_cloud_routes:
        return Skipped("--configure-cloud-routes=false")
    if not shared.cluster_cidr:
        return Skipped("--cluster-cidr is not set, so its own routes cannot be identified")
    settings = _settings(post, parse_ranges(shared.cluster_cidr))
    client = client_of(post, ROUTE)
    events = events_of(post, ROUTE, client)
    around = Surroundings(
        client=client,
        informer=post.informers.nodes(),
        routes=routes,
        whose=whose_by(post.cloud),
        identify=identify(post, ROUTE),
        events=events,
        clock=post.clock,
        metrics=post.metrics,
        random=post.random,
    )
    return duty_of(RouteController(around, settings), events, stuck_after=STUCK)


def _settings(post: Post, ranges: tuple[Range, ...]) -> RouteSettings:
    asked = post.config.route
    return RouteSettings(
        ranges=ranges,
        ownership=asked.ownership,
        watch=asked.watch_based,
        period=asked.period or CHECKS,
    )
