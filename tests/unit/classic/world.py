"""The service controller over a ported provider, on the embedded API server, in virtual time."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pileus.app.provider_access import View
from pileus.classic.adapter import as_cloud
from pileus.classic.calls import Calls
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.controllers.service.controller import ServiceController
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import LoadBalancerIngress, LoadBalancerStatus, Node, Service
from pileus.runtime.informers import Informers
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from tests.unit.classic.fakes import Provider
from tests.unit.controllers.service import world
from tests.unit.controllers.service.world import running

ADDRESS = LoadBalancerStatus(ingress=(LoadBalancerIngress(ip="203.0.113.7", ip_mode="VIP"),))


@dataclass
class Account:
    """What a ported provider has built, and the calls that it got."""

    built: dict[str, Service] = field(default_factory=dict)
    """By UID."""
    status: LoadBalancerStatus = ADDRESS
    calls: list[str] = field(default_factory=list)
    passed: list[Service] = field(default_factory=list)
    """The Services with which `ensure_load_balancer` was called."""
    nodes: list[str] = field(default_factory=list)
    """The names of the nodes that were last passed."""
    errors: dict[str, BaseException] = field(default_factory=dict)
    """What a method raises, by its name."""
    misses: int = 0
    """How many deletions find no load balancer, although it exists."""

    def called(self, method: str) -> None:
        self.calls.append(method)
        if method in self.errors:
            raise self.errors[method]

    async def get_load_balancer(
        self, cluster_name: str, service: Service
    ) -> LoadBalancerStatus | None:
        self.called("get")
        return self.status if service.metadata.uid in self.built else None

    async def get_load_balancer_name(self, cluster_name: str, service: Service) -> str:
        return service.metadata.uid

    async def ensure_load_balancer(
        self, cluster_name: str, service: Service, nodes: Sequence[Node]
    ) -> LoadBalancerStatus:
        self.passed.append(service)
        self.nodes = sorted(node.metadata.name for node in nodes)
        self.called("ensure")
        self.built[service.metadata.uid] = service
        return self.status

    async def update_load_balancer(
        self, cluster_name: str, service: Service, nodes: Sequence[Node]
    ) -> None:
        self.nodes = sorted(node.metadata.name for node in nodes)
        self.called("update")

    async def ensure_load_balancer_deleted(self, cluster_name: str, service: Service) -> None:
        self.called("delete")
        if self.misses:
            self.misses -= 1
            return
        self.built.pop(service.metadata.uid, None)


class Balancing(Provider):
    def __init__(self, account: Account) -> None:
        super().__init__()
        self.account = account

    def load_balancer(self) -> Any:
        return self.account

    def provider_name(self) -> str:
        return "local"  # the scheme of the nodes in this world


@dataclass(frozen=True, slots=True)
class Access:
    kube: Client
    shared: Informers

    def client(self, identity: str) -> Client:
        return self.kube

    def config(self, identity: str) -> object:
        raise LookupError(identity)

    def view(self) -> View:
        return View(self.shared)

    def informers(self) -> Informers:
        return self.shared


class World(world.World):
    """A cluster and a ported provider; managers start and stop."""

    def __init__(self) -> None:
        super().__init__()
        self.account = Account()

    @asynccontextmanager
    async def looked_at(self, **settings: Any) -> AsyncGenerator[ServiceController]:
        self.metrics = Metrics(MetricRegistry())
        settings.setdefault("classes", self.classes())
        client = Client(self.wire, user_agent="manager", metrics=self.metrics, fence=self.fence)
        self.informers = Informers(client, Random(2), 0.0)
        cloud = as_cloud(Balancing(self.account), Calls(), cluster_name="blue")
        assert cloud.leading
        async with (
            stacked(
                cloud, metrics=self.metrics, fence=self.fence, equipment=Equipment()
            ) as equipped,
            cloud.leading(Access(client, self.informers)),
        ):
            controller = self._controller(client, self.informers, equipped, settings)
            async with running(self.informers.run()):
                yield controller
