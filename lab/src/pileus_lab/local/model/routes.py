"""Operations on the route table: one entry per destination."""

from dataclasses import replace
from ipaddress import ip_network
from typing import ClassVar

from msgspec.structs import replace as changed

from pileus.cloud.errors import Conflict, Rejected
from pileus_lab.local.model.records import Page, Route
from pileus_lab.local.model.state import Moment, Request, State, hold_quota, with_item, without


class CreateRoute(Request, frozen=True):
    """Creates a route to a machine. An existing one stays."""

    NAME: ClassVar[str] = "routes.create"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Route

    destination: str
    target: str
    cluster: str = ""

    def step(self, state: State, moment: Moment) -> tuple[State, Route]:
        destination = normal(self.destination)
        target = state.machine(self.target).name
        route = Route(destination=destination, target=target, cluster=self.cluster)
        existing = state.routes.get(destination)
        if existing is not None and existing != route:
            raise Conflict(
                f"{destination} already leads to {existing.target} "
                f"(cluster {existing.cluster or 'none'}); delete that route first"
            )
        hold_quota("routes", len({*state.routes, destination}), state.quota.routes)
        return replace(state, routes=with_item(state.routes, destination, route)), route


class DeleteRoute(Request, frozen=True):
    """Deletes a route of that cluster. Deleting a missing or changed one succeeds."""

    NAME: ClassVar[str] = "routes.delete"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[object] = None

    destination: str
    cluster: str = ""
    target: str = ""
    """Deletes the route only if it leads there; empty: always."""

    def step(self, state: State, moment: Moment) -> tuple[State, None]:
        destination = normal(self.destination)
        route = state.routes.get(destination)
        if route is None or self.target not in {"", route.target}:
            return state, None
        if route.cluster != self.cluster:
            raise Rejected(
                f"the route to {destination} belongs to cluster "
                f'"{route.cluster}", not "{self.cluster}"'
            )
        return replace(state, routes=without(state.routes, destination)), None


class ListRoutes(Request, frozen=True):
    NAME: ClassVar[str] = "routes.list"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[object] = Page[Route]

    fresh: bool = True

    def step(self, state: State, moment: Moment) -> tuple[State, Page[Route]]:
        names = {machine.name for machine in state.machines.values()}
        routes = (
            changed(route, is_blackhole=route.target not in names)
            for route in state.routes.values()
        )
        return state, Page(items=tuple(routes))


def normal(destination: str) -> str:
    """Returns the CIDR in canonical form. Raises `Rejected`."""
    try:
        return str(ip_network(destination))
    except ValueError as error:
        raise Rejected(f'"{destination}" is not the destination of a route: {error}') from error
