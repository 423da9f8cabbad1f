"""Clouds in memory with providers in the classic shape, and their harnesses."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec

from pileus.classic.interface import InstanceMetadata, Route
from pileus.classic.service_records import NOTE
from pileus.cloud.abilities import Abilities
from pileus.cloud.balancer import Balancers, BalancerSpec, Owner, Wish
from pileus.cloud.model import NodeName, NodeRef
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import (
    ClientIpConfig,
    LoadBalancerStatus,
    Node,
    Service,
    ServicePort,
    ServiceSpec,
    SessionAffinityConfig,
)
from pileus.kube.model.meta import ObjectMeta
from pileus.kube.transport import Request
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.conformance.harness import CRASH, BalancersHarness, Built, RoutesHarness
from pileus.testing.scripted import Answer, ScriptedTransport
from tests.unit.classic.fakes import Access, Keeping, Provider, View, adapted, kube_node


class Quiet(Provider):
    """A provider whose capabilities a harness sets."""

    def __init__(self, v1=None, v2=None, balancer=None, routes=None) -> None:
        super().__init__()
        self.parts = (v2, balancer, routes)
        self.v1 = v1

    def instances(self):
        return self.v1

    def instances_v2(self):
        return self.parts[0]

    def load_balancer(self):
        return self.parts[1]

    def routes(self):
        return self.parts[2]


@dataclass
class ClassicMachines:
    """Plain methods, which run in threads."""

    machines: dict[str, bool] = field(default_factory=dict)
    is_broken: bool = False

    def instance_exists(self, node: Node) -> bool:
        self.check()
        return node.metadata.name in self.machines

    def instance_shutdown(self, node: Node) -> bool:
        self.check()
        return not self.machines[node.metadata.name]

    def instance_metadata(self, node: Node) -> InstanceMetadata | None:
        self.check()
        if node.metadata.name not in self.machines:
            return None
        return InstanceMetadata(provider_id=f"fake://{node.metadata.name}")

    def check(self) -> None:
        if self.is_broken:
            raise ConnectionError("the cloud is down")


@dataclass
class ClassicInstancesHarness:
    cloud: ClassicMachines = field(default_factory=ClassicMachines)
    view: View = field(default_factory=View)

    @asynccontextmanager
    async def connect(self):
        cloud = adapted(Quiet(v2=self.cloud))
        assert cloud.leading
        assert cloud.instances
        async with cloud.leading(Access(self.view)):
            yield cloud.instances

    def add(self, name: str) -> NodeRef:
        self.cloud.machines[name] = True
        self.view.known_nodes[name] = kube_node(name)
        return NodeRef(name=NodeName(name))

    def remove(self, name: str) -> None:
        del self.cloud.machines[name]

    def stop(self, name: str) -> None:
        self.cloud.machines[name] = False

    @contextmanager
    def broken(self):
        self.cloud.is_broken = True
        yield
        self.cloud.is_broken = False


@dataclass
class ClassicBalancerCloud:
    """Async methods; one balancer per Service, named by its UID."""

    built: dict[str, Built] = field(default_factory=dict)
    chance: Callable[[], bool] = lambda: False
    error: BaseException = CRASH

    async def get_load_balancer(
        self, cluster_name: str, service: Service
    ) -> LoadBalancerStatus | None:
        self.step()
        return LoadBalancerStatus() if service.metadata.uid in self.built else None

    async def get_load_balancer_name(self, cluster_name: str, service: Service) -> str:
        return service.metadata.uid

    async def ensure_load_balancer(
        self, cluster_name: str, service: Service, nodes: Sequence[Node]
    ) -> LoadBalancerStatus:
        self.step()
        assert service.spec
        ports = frozenset(port.port for port in service.spec.ports or ())
        members = frozenset(node.metadata.name for node in nodes)
        affinity = service.spec.session_affinity_config
        sticky = affinity and affinity.client_ip and affinity.client_ip.timeout_seconds
        sources = frozenset(service.spec.load_balancer_source_ranges or ())
        self.built[service.metadata.uid] = Built(ports, members, sticky, sources)
        self.step()
        return LoadBalancerStatus()

    async def update_load_balancer(
        self, cluster_name: str, service: Service, nodes: Sequence[Node]
    ) -> None:
        self.step()
        old = self.built[service.metadata.uid]
        members = frozenset(node.metadata.name for node in nodes)
        self.built[service.metadata.uid] = replace(old, members=members)
        self.step()

    async def ensure_load_balancer_deleted(self, cluster_name: str, service: Service) -> None:
        self.step()
        self.built.pop(service.metadata.uid, None)
        self.step()

    def step(self) -> None:
        if self.chance():
            raise self.error


@dataclass
class ClassicBalancersHarness(BalancersHarness):
    cloud: ClassicBalancerCloud = field(default_factory=ClassicBalancerCloud)
    view: View = field(default_factory=lambda: View({name: kube_node(name) for name in "abcd"}))
    finds_leftovers: bool = False
    keeps_fingerprints: bool = False
    abilities: Abilities = field(default_factory=lambda: Abilities(requests=None))

    @asynccontextmanager
    async def connect(self):
        cloud = adapted(Quiet(balancer=self.cloud))
        assert cloud.leading
        assert cloud.balancers
        leading = cloud.leading(self.access())
        await leading.__aenter__()
        try:
            yield cast("Balancers[Any, Any]", Keeping(cloud.balancers, self.keep))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None  # a crash, wrapped by a task group
        finally:
            await leading.__aexit__(None, None, None)

    def access(self) -> Access:
        return Access(self.view)

    def keep(self, owner: Owner, record: str) -> None:
        pass  # this cluster lets no notes be written

    def annotations(self, uid: str) -> dict[str, str]:
        return {}

    def wish(self, owner: Owner, spec: BalancerSpec | None) -> Wish:
        uid = f"{owner.cluster}/{owner.uid}"
        ports = sorted(listener.port for listener in spec.listeners) if spec else ()
        self.view.known_services[owner.uid] = Service(
            metadata=ObjectMeta(
                name=owner.uid, namespace="x", uid=uid, annotations=self.annotations(uid)
            ),
            spec=ServiceSpec(
                type="LoadBalancer",
                ports=tuple(ServicePort(port=p) for p in ports),
                load_balancer_source_ranges=tuple(sorted(spec.source_ranges)) if spec else None,
                session_affinity_config=_affinity(spec.sticky_seconds if spec else None),
            ),
        )
        return Wish(owner=owner, spec=spec)

    def crash_when(self, chance: Callable[[], bool], error: BaseException = CRASH) -> None:
        self.cloud.chance, self.cloud.error = chance, error

    def tamper(self, owner: Owner) -> bool:
        return False  # a ported provider says only whether there is one

    def furnish(self, name: str, mark: Owner | None) -> str | None:
        return None  # what is whose, a ported provider decides by itself

    def vandalise(self, owner: Owner) -> None:
        self.cloud.built.pop(f"{owner.cluster}/{owner.uid}", None)

    def built(self) -> Mapping[Owner, Built]:
        return {Owner(*uid.split("/")): built for uid, built in self.cloud.built.items()}

    def strays(self) -> int:
        return 0


def _affinity(seconds: int | None) -> SessionAffinityConfig | None:
    return SessionAffinityConfig(client_ip=ClientIpConfig(seconds)) if seconds else None


@dataclass
class NotedBalancersHarness(ClassicBalancersHarness):
    """The same in a cluster that lets notes be written: a new process knows what was ensured."""

    keeps_fingerprints: bool = True
    notes: dict[str, str | None] = field(default_factory=dict)

    def access(self) -> Access:
        metrics = Metrics(MetricRegistry())
        return Access(
            self.view, Client(ScriptedTransport(self.patched), user_agent="t", metrics=metrics)
        )

    def annotations(self, uid: str) -> dict[str, str]:
        note = self.notes.get(uid)
        return {NOTE: note} if note else {}

    def patched(self, request: Request) -> Answer:
        self.cloud.step()
        asked: Any = msgspec.json.decode(request.body or b"")["metadata"]
        assert asked["annotations"] == {NOTE: None}
        after = self.note(asked["uid"], None)
        self.cloud.step()
        return Answer(200, after)

    def keep(self, owner: Owner, record: str) -> None:
        self.note(f"{owner.cluster}/{owner.uid}", record)

    def note(self, uid: str, text: str | None) -> Service:
        self.notes[uid] = text
        name = uid.partition("/")[2]
        service = self.view.known_services[name]
        metadata = msgspec.structs.replace(service.metadata, annotations=self.annotations(uid))
        after = msgspec.structs.replace(service, metadata=metadata)
        self.view.known_services[name] = after
        return after


@dataclass
class ClassicRouteTable:
    routes: dict[str, Route] = field(default_factory=dict)
    rejected: set[str] = field(default_factory=set)

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        return list(self.routes.values())

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        self.check(route)
        self.routes[route.destination_cidr] = route

    async def delete_route(self, cluster_name: str, route: Route) -> None:
        self.check(route)
        await asyncio.sleep(0)
        self.routes.pop(route.destination_cidr, None)

    def check(self, route: Route) -> None:
        if route.destination_cidr in self.rejected:
            raise PermissionError("quota")


@dataclass
class ClassicRoutesHarness(RoutesHarness):
    table: ClassicRouteTable = field(default_factory=ClassicRouteTable)

    @asynccontextmanager
    async def connect(self):
        cloud = adapted(Quiet(routes=self.table))
        assert cloud.leading
        assert cloud.routes
        async with cloud.leading(Access(View())):
            yield cloud.routes

    def add_foreign(self, destination: str) -> None:
        self.table.routes[destination] = Route(destination_cidr=destination)

    def reject(self, destination: str) -> None:
        self.table.rejected.add(destination)
