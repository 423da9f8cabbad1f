"""A cloud whose answers a test writes down, and which remembers what it was asked."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pileus.cloud.balancer import Effect, Owner, Part, Wish
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.stack import Equipment, composed
from pileus.cloud.model import Found, Instance, InstanceId, NodeName, NodeRef, Route
from pileus.fence import Fence, Open
from pileus.telemetry.metrics import Metrics

OWNER = Owner("blue", "u1")
WISH = Wish(owner=OWNER, spec=None)
ROUTE = Route(destination="10.0.0.0/24", target=NodeName("n1"))


def node(name: str, **more: Any) -> NodeRef:
    return NodeRef(name=NodeName(name), **more)


def instance(name: str) -> Instance:
    return Instance(id=InstanceId(name), provider_id=f"fake://{name}")


@dataclass(frozen=True)
class Seen:
    balancer: None = None


@dataclass(frozen=True)
class Change:
    effect: Effect = Effect.CREATE
    summary: str = "balancer"
    part: Part = Part.WHOLE


def everything(nodes: Sequence[NodeRef]) -> object:
    return {n.name: instance(n.name) for n in nodes}


@dataclass
class FakeInstances:
    answer: Callable[[Sequence[NodeRef]], object] = everything
    latency: float = 0.0
    asked: list[tuple[tuple[str, ...], bool]] = field(default_factory=list)

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        self.asked.append((tuple(n.name for n in nodes), fresh))
        await asyncio.sleep(self.latency)
        return cast("Mapping[NodeName, Found]", self.answer(nodes))


@dataclass
class FakeBalancers:
    answer: Callable[[], object] = lambda: {OWNER: Seen()}
    applied: list[object] = field(default_factory=list)

    async def owners(self, cluster: str) -> frozenset[Owner]:
        return cast("frozenset[Owner]", self.answer())

    async def observe(self, wishes: Sequence[Wish], *, deep: bool) -> Mapping[Owner, Seen]:
        return cast("Mapping[Owner, Seen]", self.answer())

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        return cast("tuple[Change, ...]", self.answer())

    async def apply(self, change: Change, seen: Seen) -> Seen:
        self.applied.append(change)
        return cast("Seen", self.answer())

    def lock_key(self, wish: Wish) -> str:
        return cast("str", self.answer())


@dataclass
class FakeRoutes:
    answer: Callable[[], object] = dict[Route, CloudError]
    written: list[Route] = field(default_factory=list)

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        return cast("Sequence[Route]", self.answer())

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        self.written.extend(routes)
        return cast("Mapping[Route, CloudError]", self.answer())

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        self.written.extend(routes)
        return cast("Mapping[Route, CloudError]", self.answer())


def cloud_of(
    instances: FakeInstances | None = None,
    balancers: FakeBalancers | None = None,
    routes: FakeRoutes | None = None,
) -> Cloud:
    return Cloud(name="fake", instances=instances, balancers=balancers, routes=routes)


def equipped(cloud: Cloud, metrics: Metrics, *, fence: Fence | None = None, **parts: Any) -> Cloud:
    """The cloud with the middleware around it, batching excepted."""
    return composed(cloud, metrics=metrics, fence=fence or Open(), equipment=Equipment(**parts))
