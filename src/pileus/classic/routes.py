"""Routes of a ported provider: one call for each, many at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from pileus.classic import interface
from pileus.classic.calls import Calls
from pileus.classic.errors import translated
from pileus.classic.interface import Interface
from pileus.cloud.errors import CloudError, Misconfigured
from pileus.cloud.model import Address, NodeName, Route
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import NodeAddress
from pileus.runtime.cluster_access import ClusterView


@dataclass(frozen=True, slots=True)
class ClassicRoutes:
    """Ported providers identify a cluster by `--cluster-name`; `cluster` is not used."""

    provider: Interface
    view: ClusterView
    calls: Calls
    cluster_name: str

    async def list_routes(self, cluster: str) -> Sequence[Route]:  # noqa: ARG002 -- see the class
        try:
            routes = await self.calls.make(self._routes().list_routes, self.cluster_name)
        except Exception as error:
            raise translated(error) from error
        return [_neutral(route) for route in routes]

    async def create(
        self,
        cluster: str,  # noqa: ARG002 -- see the class
        routes: Sequence[Route],
    ) -> Mapping[Route, CloudError]:
        """Create them with one call each. The name hint is the UID of the node."""
        write, create = self.calls.make_alone, self._routes().create_route
        return await _each(
            routes,
            lambda route: write(
                _key(route), create, self.cluster_name, self._hint(route), _to_create(route)
            ),
        )

    async def delete(
        self,
        cluster: str,  # noqa: ARG002 -- see the class
        routes: Sequence[Route],
    ) -> Mapping[Route, CloudError]:
        """Delete them with one call each. The provider gets the same objects that it listed."""
        write, delete = self.calls.make_alone, self._routes().delete_route
        return await _each(
            routes, lambda route: write(_key(route), delete, self.cluster_name, _to_delete(route))
        )

    def _hint(self, route: Route) -> str:
        """Returns the UID of the node, by which the route controller names routes."""
        if route.name:
            return route.name
        node = self.view.node(route.target) if route.target else None
        return node.metadata.uid if node else ""

    def _routes(self) -> interface.Routes:
        routes = self.provider.routes()
        if routes is None:
            raise Misconfigured("the provider no longer supports routes")
        return routes


def _key(route: Route) -> str:
    """Writes of one destination exclude each other, also those whose caller was cancelled."""
    return f"route {route.destination}"


async def _each(
    routes: Sequence[Route], act: Callable[[Route], Awaitable[None]]
) -> Mapping[Route, CloudError]:
    """Act on all routes at once, but one by one on those of one destination."""
    errors: dict[Route, CloudError] = {}

    async def act_on(alike: Sequence[Route]) -> None:
        for route in alike:
            try:
                await act(route)
            except Exception as error:  # noqa: BLE001 -- a ported provider raises what it likes
                errors[route] = translated(error)

    by_key: dict[str, list[Route]] = {}
    for route in routes:
        by_key.setdefault(_key(route), []).append(route)
    async with asyncio.TaskGroup() as group:
        for alike in by_key.values():
            group.create_task(act_on(alike))
    return errors


def _neutral(route: interface.Route) -> Route:
    carried = tuple(Address(item.type, item.address) for item in route.target_node_addresses)
    return Route(
        name=route.name,
        destination=route.destination_cidr,
        target=NodeName(route.target_node) if route.target_node else None,
        addresses=carried if route.enable_node_addresses else None,
        blackhole=route.blackhole,
        origin=route,
    )


def _to_delete(route: Route) -> interface.Route:
    """Returns the route of the provider as it was listed."""
    if isinstance(route.origin, interface.Route):
        return route.origin
    return replace(_to_create(route), name=route.name, blackhole=route.blackhole)


def _to_create(route: Route) -> interface.Route:
    """As in Go, the route has no name: the provider makes one from the hint."""
    return interface.Route(
        destination_cidr=route.destination,
        target_node=route.target or "",
        target_node_addresses=tuple(
            NodeAddress(type=a.type, address=a.address) for a in route.addresses or ()
        ),
        blackhole=route.blackhole,
    )
