"""The whole route controller in virtual time: an API server and a route table in memory."""

import asyncio
from collections.abc import AsyncGenerator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Self

from prometheus_client import CollectorRegistry

from pileus.apiserver.serving import api_in_memory
from pileus.cloud.errors import CloudError, Conflict
from pileus.cloud.model import Route
from pileus.controllers.route.controller import RouteController, RouteSettings, Surroundings
from pileus.kube.client import Client
from pileus.kube.errors import Unreachable
from pileus.kube.informer import Handler, Informer, InformerOptions
from pileus.kube.model.core_v1 import NODES, Node, ObjectReference
from pileus.kube.patch import MergePatch
from pileus.kube.store import NamespacedName
from pileus.kube.transport import Reply, Request
from pileus.objects.nodes import condition_of
from pileus.telemetry.metrics import Metrics
from pileus.testing.in_process import InProcessTransport
from tests.unit.controllers.route.objects import RULES

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = RouteSettings(ranges=RULES.ranges)


def loop_time() -> float:
    return asyncio.get_running_loop().time()


class LoopClock:
    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=loop_time())


@dataclass
class FakeRoutes:
    """A route table with one entry per destination; lists may lag, and anything may fail."""

    marks: bool = False
    """Whether its routes say for which cluster they were created."""
    table: dict[str, Route] = field(default_factory=dict[str, Route])
    calls: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    errors: dict[str, CloudError] = field(default_factory=dict[str, CloudError])
    """What a write to that destination ends with."""
    list_error: CloudError | None = None
    answers: list[Sequence[Route]] = field(default_factory=list[Sequence[Route]])
    """What the next lists say instead."""
    takes: float = 0.01
    created: list[str] = field(default_factory=list[str])

    async def list(self, cluster: str) -> Sequence[Route]:
        self.calls.append(("list", 0))
        await asyncio.sleep(self.takes)
        if self.list_error:
            raise self.list_error
        return self.answers.pop(0) if self.answers else tuple(self.table.values())

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        self.calls.append(("create", len(routes)))
        failed: dict[Route, CloudError] = {}
        for route in routes:
            await asyncio.sleep(self.takes)
            if error := self.errors.get(route.destination):
                failed[route] = error
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


@dataclass
class FakeEvents:
    told: list[tuple[str, str, str, str]] = field(default_factory=list[tuple[str, str, str, str]])

    def record(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        self.told.append((about.name, kind, reason, message))


class Counting:
    """A transport that keeps the requests, and may refuse some."""

    def __init__(self, inner: InProcessTransport) -> None:
        self._inner = inner
        self.requests: list[Request] = []
        self.refuse = ""
        """The end of paths to which no request but a watch gets through."""

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[Reply]:
        self.requests.append(request)
        if self.refuse and "watch" not in request.query and request.path.endswith(self.refuse):
            raise Unreachable(request.path, "in-process", "connection refused")
        async with self._inner.send(request) as reply:
            yield reply

    def writes(self, tail: str = "") -> list[Request]:
        return [each for each in self.requests if each.method != "GET" and each.path.endswith(tail)]


class Veiled:
    """An informer whose view can be lost, as by a list that lacks everything."""

    def __init__(self, informer: Informer[Node]) -> None:
        self._informer = informer
        self.is_blind = False

    @property
    def store(self) -> Self:
        return self

    async def wait_synced(self) -> None:
        await self._informer.wait_synced()

    def subscribe(self, handler: Handler[Node]) -> None:
        self._handler = handler
        self._informer.subscribe(handler)

    def lose(self) -> None:
        """Take everything for deleted."""
        lost, self.is_blind = self._informer.store.list(), True
        for each in lost:
            self._handler.deleted(each)

    def get(self, key: NamespacedName) -> Node | None:
        return None if self.is_blind else self._informer.store.get(key)

    def list(self) -> tuple[Node, ...]:
        return () if self.is_blind else self._informer.store.list()

    def by_index(self, index: str, value: Hashable) -> tuple[Node, ...]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.list())


class Site:
    def __init__(self, routes: FakeRoutes | None = None) -> None:
        api = InProcessTransport(api_in_memory(clock=LoopClock(), random=Random(0)))
        self.wire = Counting(api)
        self.metrics = Metrics(CollectorRegistry())
        self.kubectl = Client(api, user_agent="kubectl", metrics=Metrics(CollectorRegistry()))
        self.routes = routes or FakeRoutes()
        self.events = FakeEvents()
        self.controller: RouteController
        self.view: Veiled

    async def register(self, name: str, *ranges: str) -> None:
        spec = {"podCIDR": ranges[0], "podCIDRs": list(ranges)} if ranges else {}
        await self.kubectl.create(NODES, {"metadata": {"name": name}, "spec": spec})

    async def assign(self, name: str, *ranges: str) -> None:
        body = {"spec": {"podCIDR": ranges[0], "podCIDRs": list(ranges)}}
        await self.kubectl.patch(NODES, name, MergePatch(body))

    async def remove(self, *names: str) -> None:
        for name in names:
            await self.kubectl.delete(NODES, name)

    async def node(self, name: str) -> Node:
        return await self.kubectl.get(NODES, name)

    async def network(self, name: str) -> tuple[str, str | None] | None:
        found = condition_of(await self.node(name), "NetworkUnavailable")
        return (found.status, found.reason) if found else None

    def syncs(self, outcome: str, trigger: str = "node_change") -> float:
        labels = {"outcome": outcome, "trigger": trigger}
        name = "route_controller_route_sync_total"
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def _identify(self) -> str:
        await asyncio.sleep(0.01)
        return RULES.cluster

    @asynccontextmanager
    async def running(self, settings: RouteSettings = SETTINGS) -> AsyncGenerator[None]:
        chance = Random(1)
        client = Client(self.wire, user_agent="test", metrics=self.metrics)
        informer = Informer(client, NODES, random=chance, options=InformerOptions())
        self.view = Veiled(informer)
        around = Surroundings(
            client=client,
            informer=self.view,
            routes=self.routes,
            identify=self._identify,
            events=self.events,
            clock=LoopClock(),
            metrics=self.metrics,
            random=chance,
        )
        self.controller = RouteController(around, settings)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(informer.run()),
                group.create_task(self.controller.run()),
            ]
            yield
            for task in tasks:
                task.cancel()
