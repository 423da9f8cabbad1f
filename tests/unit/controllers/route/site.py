"""The whole route controller in virtual time: an API server and a route table in memory."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from pileus.clock import Clock
from pileus.cloud.errors import CloudError, Conflict
from pileus.cloud.interface import Cloud
from pileus.cloud.model import Route
from pileus.controllers.route.controller import RouteController
from pileus.controllers.route.descriptor import ROUTE
from pileus.controllers.route.settings import RouteSettings
from pileus.objects.cloud_scope import only_scope
from pileus.objects.nodes import condition_of
from pileus.objects.settings import ClusterSettings
from pileus.testing.virtual_time import LoopClock
from tests.unit.controllers.cluster import Cluster, Veiled
from tests.unit.controllers.route.objects import RULES

SETTINGS = RouteSettings(cluster=ClusterSettings(cidr=",".join(str(each) for each in RULES.ranges)))


@dataclass
class FakeRoutes:
    """A route table with one entry per destination; lists may lag, and anything may fail."""

    marks: bool = False
    """Whether its routes say for which cluster they were created."""
    table: dict[str, Route] = field(default_factory=dict[str, Route])
    calls: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    errors: dict[str, CloudError] = field(default_factory=dict[str, CloudError])
    """What a write to that destination ends with."""
    late: dict[str, CloudError] = field(default_factory=dict[str, CloudError])
    """What one creation of that destination ends with, although it takes effect."""
    refuses: CloudError | None = None
    """What every creation ends with, as a whole."""
    list_error: CloudError | None = None
    answers: list[Sequence[Route]] = field(default_factory=list[Sequence[Route]])
    """What the next lists say instead."""
    takes: float = 0.01
    created: list[str] = field(default_factory=list[str])

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        self.calls.append(("list", 0))
        await asyncio.sleep(self.takes)
        if self.list_error:
            raise self.list_error
        return self.answers.pop(0) if self.answers else tuple(self.table.values())

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        self.calls.append(("create", len(routes)))
        if self.refuses:
            raise self.refuses
        failed: dict[Route, CloudError] = {}
        for route in routes:
            await asyncio.sleep(self.takes)
            if error := self.errors.get(route.destination):
                failed[route] = error
            elif late := self.late.pop(route.destination, None):
                self.table[route.destination] = replace(route, addresses=None)
                failed[route] = late
            elif route.destination in self.table:
                failed[route] = Conflict(f"{route.destination} is there already")
            else:
                mark = cluster if self.marks else None
                self.table[route.destination] = replace(route, addresses=None, cluster=mark)
                self.created.append(route.destination)
        return failed

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        self.calls.append(("delete", len(routes)))
        failed: dict[Route, CloudError] = {}
        for route in routes:
            await asyncio.sleep(self.takes)
            if error := self.errors.get(route.destination):
                failed[route] = error
            else:
                self.table.pop(route.destination, None)
        return failed

    def add(self, *routes: Route) -> None:
        self.table |= {route.destination: route for route in routes}

    def count(self, method: str) -> int:
        return sum(name == method for name, _ in self.calls)

    @property
    def places(self) -> dict[str, str | None]:
        return {route.destination: route.target for route in self.table.values()}


class Site(Cluster):
    def __init__(self, routes: FakeRoutes | None = None, *, is_only: bool = True) -> None:
        super().__init__()
        self.is_only = is_only
        """Whether this is the only cloud of the manager."""
        self.routes = routes or FakeRoutes()
        self.clock: Clock = LoopClock()
        """The clock of the manager."""
        self.controller: RouteController
        self.view: Veiled

    async def network(self, name: str) -> tuple[str, str | None] | None:
        found = condition_of(await self.node(name), "NetworkUnavailable")
        return (found.status, found.reason) if found else None

    def syncs(self, outcome: str, trigger: str = "node_change") -> float:
        labels = {"outcome": outcome, "trigger": trigger}
        name = "route_controller_route_sync_total"
        return self.metrics.registry.value(name, labels) or 0.0

    async def _identify(self) -> str:
        await asyncio.sleep(0.01)
        return RULES.cluster

    @asynccontextmanager
    async def running(self, settings: RouteSettings = SETTINGS) -> AsyncGenerator[None]:
        scope = replace(only_scope(Cloud(name="fake", routes=self.routes)), is_only=self.is_only)
        context, informer, self.view = self.context(ROUTE, scope, self._identify)
        context = replace(context, clock=self.clock)
        self.controller = RouteController(context, self.routes, settings)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(informer.run()),
                group.create_task(self.controller.run()),
            ]
            yield
            for task in tasks:
                task.cancel()
