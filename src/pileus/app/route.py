"""The route controller, given what it needs of this process."""

from pileus.app.beside import beside
from pileus.app.cluster_id import find_cluster_id
from pileus.app.controllers import ROUTE
from pileus.app.ending import Fatal
from pileus.app.work import Duty, Post, Skipped
from pileus.controllers.route.controller import RouteController, RouteSettings, Surroundings
from pileus.kube.client import Client
from pileus.objects.ranges import Range, parse_ranges
from pileus.runtime.events import EventRecorder

STUCK = 2400.0
"""Seconds after which a round that does not end makes the process ill."""
CHECKS = 300.0
"""Seconds between two checks for drift, where changes of nodes cause rounds."""


def route_duty(post: Post) -> Duty | Skipped:
    """What the route controller does while this process leads.

    Errors: `Fatal` for a cluster range that is none.
    """
    routes, shared = post.cloud.routes, post.config.shared
    if routes is None:
        return Skipped("the cloud provider does not support routes")
    if not shared.configure_cloud_routes:
        return Skipped("--configure-cloud-routes=false")
    if not shared.cluster_cidr:
        return Skipped("there is no --cluster-cidr, so that no route could be told from others'")
    settings = _settings(post, cluster_ranges(shared.cluster_cidr))
    client = post.clients.controller(ROUTE.identity, fence=post.fence)
    main = post.clients.main(ROUTE.identity)
    events = _events(post, client)
    around = Surroundings(
        client=client,
        informer=post.informers.nodes(),
        routes=routes,
        identify=lambda: find_cluster_id(main, post.config.service.cluster_id),
        events=events,
        clock=post.clock,
        metrics=post.metrics,
        random=post.random,
    )
    controller = RouteController(around, settings)

    async def run() -> None:
        async with beside(events.run()):
            await controller.run()

    return Duty(run, health=lambda: controller.stuck(STUCK), preview=controller.preview)


def _events(post: Post, client: Client) -> EventRecorder:
    return EventRecorder(
        ROUTE.event_source,
        client,
        clock=post.clock,
        random=post.random,
        metrics=post.metrics,
    )


def cluster_ranges(text: str) -> tuple[Range, ...]:
    """What `--cluster-cidr` says. Errors: `Fatal`."""
    try:
        return parse_ranges(text)
    except ValueError as error:
        raise Fatal(f"--cluster-cidr: {error}") from error


def _settings(post: Post, ranges: tuple[Range, ...]) -> RouteSettings:
    asked = post.config.route
    return RouteSettings(
        ranges=ranges,
        ownership=asked.ownership,
        watch=asked.watch_based,
        period=asked.period or CHECKS,
    )
