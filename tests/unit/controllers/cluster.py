"""An API server in memory, what is asked of it, and a view that can be lost; in virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Self, cast

from pileus.fence import Open
from pileus.kube.client import Client
from pileus.kube.errors import Unreachable
from pileus.kube.informer import Handler, Informer, InformerOptions
from pileus.kube.model.core_v1 import NODES, Node
from pileus.kube.model.meta import Resource
from pileus.kube.patch import MergePatch
from pileus.kube.store import Index, NamespacedName
from pileus.kube.transport import Reply, Request
from pileus.objects.cloud_scope import CloudScope
from pileus.objects.descriptor import ControllerContext, ControllerNames
from pileus.runtime.informers import Informers
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import LoopClock
from pileus_lab.apiserver.in_process import InProcessTransport
from pileus_lab.apiserver.server import api_in_memory
from tests.unit.controllers.events import FakeEvents


class Counting:
    """A transport that keeps the requests, and may refuse some."""

    def __init__(self, inner: InProcessTransport) -> None:
        self._inner = inner
        self.requests: list[Request] = []
        self.refuse = ""
        """The end of paths to which no request but a watch gets through."""
        self.before_write: Callable[[], Awaitable[None]] | None = None
        """What happens just before the next patch."""
        self.slow_reads = 0.0
        """Seconds until the answer about one node comes."""
        self.lose_answers = 0
        """So many patches take effect without an answer."""

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[Reply]:
        self.requests.append(request)
        if request.method == "PATCH" and self.before_write:
            hook, self.before_write = self.before_write, None
            await hook()
        if self.refuse and "watch" not in request.query and request.path.endswith(self.refuse):
            raise Unreachable(request.path, "in-process", "connection refused")
        async with self._inner.send(request) as reply:
            if request.path.startswith("/api/v1/nodes/") and request.method == "GET":
                await asyncio.sleep(self.slow_reads)
            if request.method == "PATCH" and self.lose_answers:
                self.lose_answers -= 1
                raise Unreachable(request.path, "in-process", "cut off", may_have_acted=True)
            yield reply

    def writes(self, tail: str = "") -> list[Request]:
        return [each for each in self.requests if each.method != "GET" and each.path.endswith(tail)]


class Veiled:
    """An informer whose view can lose nodes, as by a list that lacks some of them or all."""

    def __init__(self, informer: Informer[Node]) -> None:
        self._informer = informer
        self.is_blind = False
        self._hidden = frozenset[str]()
        self._frozen: tuple[Node, ...] | None = None

    @property
    def store(self) -> Self:
        return self

    async def wait_synced(self) -> None:
        await self._informer.wait_synced()

    def subscribe(self, handler: Handler[Node]) -> None:
        self._handler = handler
        self._informer.subscribe(handler)

    def lose(self, *names: str) -> None:
        """Report the nodes of these names as deleted, or all nodes if there are no names."""
        before = self.list()
        self.is_blind, self._hidden = not names, frozenset(names)
        for each in before:
            if self._hides(each.metadata.name):
                self._handler.deleted(each)

    def freeze(self) -> None:
        """Show the nodes as they are now, whatever the watch brings later."""
        self._frozen = self._informer.store.list()

    def get(self, key: NamespacedName) -> Node | None:
        return next((each for each in self.list() if each.metadata.name == key.name), None)

    def list(self) -> tuple[Node, ...]:
        found = self._informer.store.list() if self._frozen is None else self._frozen
        return tuple(each for each in found if not self._hides(each.metadata.name))

    def _hides(self, name: str) -> bool:
        return self.is_blind or name in self._hidden

    def by_index(self, index: str, value: Hashable) -> tuple[Node, ...]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.list())


class NodesOnly:
    """Has one informer, of nodes."""

    def __init__(self, informer: Veiled | Informer[Node]) -> None:
        self._informer = informer

    def of(
        self, resource: Resource[Node], indexes: Mapping[str, Index[Node]] | None = None
    ) -> Veiled | Informer[Node]:
        assert resource is NODES
        if isinstance(self._informer, Informer):
            self._informer.add_indexes(indexes or {})
        return self._informer


async def identify() -> str:
    return "cluster-uid"


@dataclass(frozen=True, kw_only=True)
class Controlled:
    """What a test gives to a controller; the rest of its context is the same everywhere."""

    client: Client
    metrics: Metrics
    events: FakeEvents
    random: Random

    def context(
        self,
        names: ControllerNames,
        scope: CloudScope,
        informers: Informers | NodesOnly,
        cluster_id: Callable[[], Awaitable[str]] = identify,
    ) -> ControllerContext:
        return ControllerContext(
            names=names,
            scope=scope,
            client=self.client,
            events=self.events,
            informers=cast("Informers", informers),
            fence=Open(),
            metrics=self.metrics,
            clock=LoopClock(),
            random=self.random,
            cluster_id=cluster_id,
        )


class Cluster:
    """The API server, kubectl, and the wire by which a controller reaches it."""

    def __init__(self) -> None:
        api = InProcessTransport(api_in_memory(clock=LoopClock(), random=Random(0)))
        self.wire = Counting(api)
        self.metrics = Metrics(MetricRegistry())
        self.kubectl = Client(api, user_agent="kubectl", metrics=Metrics(MetricRegistry()))
        self.events = FakeEvents()

    def context(
        self, names: ControllerNames, scope: CloudScope, cluster_id: Callable[[], Awaitable[str]]
    ) -> tuple[ControllerContext, Informer[Node], Veiled]:
        """The context of a controller, its informer (to be run), and the view that it gets."""
        chance = Random(1)
        client = Client(self.wire, user_agent="test", metrics=self.metrics)
        informer = Informer(client, NODES, random=chance, options=InformerOptions())
        view = Veiled(informer)
        given = Controlled(client=client, metrics=self.metrics, events=self.events, random=chance)
        return given.context(names, scope, NodesOnly(view), cluster_id), informer, view

    async def register(self, name: str, *ranges: str, taint: str = "") -> None:
        spec: dict[str, object] = {"podCIDR": ranges[0], "podCIDRs": ranges} if ranges else {}
        if taint:
            spec["taints"] = [{"key": taint, "effect": "NoSchedule"}]
        await self.kubectl.create(NODES, {"metadata": {"name": name}, "spec": spec})

    async def assign(self, name: str, *ranges: str) -> None:
        body = {"spec": {"podCIDR": ranges[0], "podCIDRs": list(ranges)}}
        await self.kubectl.patch(NODES, name, MergePatch(body))

    async def remove(self, *names: str) -> None:
        for name in names:
            await self.kubectl.delete(NODES, name)

    async def node(self, name: str) -> Node:
        return await self.kubectl.get(NODES, name)

    async def nodes(self) -> tuple[Node, ...]:
        return (await self.kubectl.list(NODES)).items
