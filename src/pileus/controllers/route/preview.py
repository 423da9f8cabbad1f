"""A plan of routes as the lines that users read. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from pileus.cloud.balancer import Effect
from pileus.cloud.model import Route
from pileus.controllers.route.plan import CONDITION, Plan, Standing, condition, is_available
from pileus.controllers.route.telling import REFUSED, refused
from pileus.kube.model.core_v1 import ObjectReference
from pileus.objects.nodes import about_node, condition_of
from pileus.objects.preview import Place, Planned, Scope, Trouble, condition_detail


def lines(made: Plan, scope: Scope, now: datetime) -> Sequence[Planned | Trouble]:
    return [each for each in _lines(made, now) if scope.has(each.about)]


def _lines(made: Plan, now: datetime) -> Iterator[Planned | Trouble]:
    for route in made.delete:
        about = ObjectReference(api_version="v1", kind="Node", name=route.target or "")
        yield _planned(about, Effect.DELETE, route)
    for standing in made.standings:
        about = about_node(standing.node)
        for route in standing.create:
            yield _planned(about, Effect.CREATE, route)
        if standing.problems:
            yield Trouble(about, REFUSED, refused(standing))
        yield from _condition(standing, now)


def _planned(about: ObjectReference, effect: Effect, route: Route) -> Planned:
    summary = f"route {route.destination} to {route.target or 'an unknown machine'}"
    return Planned(about=about, place=Place.CLOUD, effect=effect, summary=summary)


def _condition(standing: Standing, now: datetime) -> Iterator[Planned]:
    available = bool(is_available(standing, frozenset(), frozenset()))
    present = condition_of(standing.node, CONDITION)
    said = condition(standing.node, available=available, now=now)
    if said is None:
        return
    yield Planned(
        about=about_node(standing.node),
        place=Place.CLUSTER,
        effect=Effect.UPDATE if present else Effect.CREATE,
        summary=f"condition {CONDITION} of node {standing.node.metadata.name}",
        details=(condition_detail(CONDITION, present, said),),
        waits_for="the routes" if standing.create else "",
    )
