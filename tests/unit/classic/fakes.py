"""A ported provider that writes down each call, and answers or raises what a test says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pileus.classic.adapter import IDENTITY, as_cloud
from pileus.classic.calls import Calls
from pileus.classic.interface import InstanceMetadata, Route, Zone
from pileus.cloud.balancer import BalancerSpec, Listener, Owner, Wish, record_of
from pileus.cloud.interface import Cloud
from pileus.cloud.model import NodeName, NodeRef
from pileus.kube.model.core_v1 import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeAddress,
    NodeSpec,
    Service,
    ServicePort,
    ServiceSpec,
)
from pileus.kube.model.meta import ObjectMeta

STATUS = LoadBalancerStatus(ingress=(LoadBalancerIngress(ip="203.0.113.7"),))
OWNER = Owner("blue-uid", "s1")
ADDRESSES = [NodeAddress(type="InternalIP", address="10.0.0.1")]


def kube_node(name: str, provider_id: str | None = None) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}"), spec=NodeSpec(provider_id=provider_id)
    )


def kube_service(uid: str = "s1", port: int = 80, **spec: Any) -> Service:
    return Service(
        metadata=ObjectMeta(name="web", namespace="shop", uid=uid),
        spec=ServiceSpec(type="LoadBalancer", ports=(ServicePort(port=port),), **spec),
    )


def wish(*members: str, provider_id: str = "") -> Wish:
    refs = frozenset(NodeRef(name=NodeName(m), provider_id=provider_id) for m in members)
    listeners = frozenset({Listener(port=80, node_port=30080)})
    return Wish(owner=OWNER, spec=BalancerSpec(listeners=listeners, members=refs))


GONE = Wish(owner=OWNER, spec=None)


@dataclass
class View:
    known_nodes: dict[str, Node] = field(default_factory=dict)
    known_services: dict[str, Service] = field(default_factory=dict)

    def node(self, name: str) -> Node | None:
        return self.known_nodes.get(name)

    def nodes(self) -> Sequence[Node]:
        return list(self.known_nodes.values())

    def service(self, uid: str) -> Service | None:
        return self.known_services.get(uid)

    def services(self) -> Sequence[Service]:
        return list(self.known_services.values())


@dataclass
class Access:
    cluster: Any
    kube: object = None
    """The client of every identity; None: notes get none, others a text."""

    def client(self, identity: str) -> object:
        return self.kube or (None if identity == IDENTITY else f"client of {identity}")

    def config(self, identity: str) -> object:
        raise LookupError("no such identity")

    def view(self) -> object:
        return self.cluster

    def informers(self) -> object:
        return "informers"


@dataclass
class Recorder:
    """Answers by method name; an exception is raised. Unless told otherwise: all is well."""

    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    nodes: Sequence[Node] = ()
    """The members that were last passed."""
    is_deleted: bool = False
    """Whether the load balancer was deleted and not ensured since."""

    def __call__(self, method: str, default: Any, *args: Any) -> Any:
        self.calls.append((method, *args))
        answer = self.answers.get(method, default)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


@dataclass
class V1:
    record: Recorder

    def node_addresses(self, name: str) -> Sequence[NodeAddress]:
        return self.record("node_addresses", ADDRESSES, name)

    def node_addresses_by_provider_id(self, provider_id: str) -> Sequence[NodeAddress]:
        return self.record("node_addresses_by_provider_id", ADDRESSES, provider_id)

    def instance_id(self, node_name: str) -> str:
        return self.record("instance_id", f"i-{node_name}", node_name)

    def instance_type(self, name: str) -> str:
        return self.record("instance_type", "small", name)

    def instance_type_by_provider_id(self, provider_id: str) -> str:
        return self.record("instance_type_by_provider_id", "small", provider_id)

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        self.record("add_ssh_key_to_all_instances", None, user, key_data)

    def current_node_name(self, hostname: str) -> str:
        return self.record("current_node_name", hostname, hostname)

    def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        return self.record("instance_exists_by_provider_id", True, provider_id)

    def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        return self.record("instance_shutdown_by_provider_id", False, provider_id)


@dataclass
class V2:
    record: Recorder

    async def instance_exists(self, node: Node) -> bool:
        return self.record("instance_exists", True, node.metadata.name)

    async def instance_shutdown(self, node: Node) -> bool:
        return self.record("instance_shutdown", False, node.metadata.name)

    async def instance_metadata(self, node: Node) -> InstanceMetadata | None:
        metadata = InstanceMetadata(
            provider_id="fake://r/i-1",
            instance_type="big",
            node_addresses=ADDRESSES,
            zone="r-a",
            region="r",
            additional_labels={"fake.example/rack": "7"},
        )
        return self.record("instance_metadata", metadata, node.metadata.name)


@dataclass
class ZonesFake:
    record: Recorder

    def get_zone(self) -> Zone:
        return self.record("get_zone", Zone(failure_domain="r-a", region="r"))

    def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        zone = Zone(failure_domain="r-a", region="r")
        return self.record("get_zone_by_provider_id", zone, provider_id)

    def get_zone_by_node_name(self, node_name: str) -> Zone:
        zone = Zone(failure_domain="r-b", region="r")
        return self.record("get_zone_by_node_name", zone, node_name)


@dataclass
class LoadBalancerFake:
    record: Recorder

    def get_load_balancer(self, cluster_name: str, service: Service) -> LoadBalancerStatus | None:
        return self.record("get", None if self.record.is_deleted else STATUS, cluster_name, service)

    def get_load_balancer_name(self, cluster_name: str, service: Service) -> str:
        return self.record("name", "a", cluster_name, service)

    def ensure_load_balancer(
        self, cluster_name: str, service: Service, nodes: Sequence[Node]
    ) -> LoadBalancerStatus:
        self.record.nodes = nodes
        names = [node.metadata.name for node in nodes]
        status = self.record("ensure", STATUS, cluster_name, service, names)
        self.record.is_deleted = False
        return status

    async def update_load_balancer(
        self, cluster_name: str, service: Service, nodes: Sequence[Node]
    ) -> None:
        self.record.nodes = nodes
        self.record("update", None, cluster_name, service, [node.metadata.name for node in nodes])

    def ensure_load_balancer_deleted(self, cluster_name: str, service: Service) -> None:
        self.record("delete", None, cluster_name, service)
        self.record.is_deleted = True


@dataclass
class RoutesFake:
    record: Recorder

    def list_routes(self, cluster_name: str) -> Sequence[Route]:
        return self.record("list_routes", [], cluster_name)

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        self.record("create_route", None, cluster_name, name_hint, route)

    def delete_route(self, cluster_name: str, route: Route) -> None:
        self.record("delete_route", None, cluster_name, route)


@dataclass
class Provider:
    record: Recorder = field(default_factory=Recorder)
    offers: frozenset[str] = frozenset({"v2", "balancer", "routes"})
    stop: Any = None

    def initialize(self, client_builder: Any, stop: Any) -> None:
        self.stop = stop
        self.record("initialize", None, client_builder)

    def load_balancer(self) -> LoadBalancerFake | None:
        return LoadBalancerFake(self.record) if "balancer" in self.offers else None

    def instances(self) -> V1 | None:
        return V1(self.record) if "v1" in self.offers else None

    def instances_v2(self) -> V2 | None:
        return V2(self.record) if "v2" in self.offers else None

    def zones(self) -> ZonesFake | None:
        return ZonesFake(self.record) if "zones" in self.offers else None

    def clusters(self) -> None:
        return None

    def routes(self) -> RoutesFake | None:
        return RoutesFake(self.record) if "routes" in self.offers else None

    def provider_name(self) -> str:
        return "fake"

    def has_cluster_id(self) -> bool:
        return True


class InformedProvider(Provider):
    def set_informers(self, informers: object) -> None:
        self.record("set_informers", None, informers)


@dataclass
class Keeping:
    """Balancers with what the core does for them: keep the record once nothing is left to do."""

    inner: Any
    keep: Callable[[Owner, str], None]

    def changes(self, wish: Wish, seen: Any) -> tuple[Any, ...]:
        left = self.inner.changes(wish, seen)
        record = record_of(seen)
        if not left and record is not None:
            self.keep(wish.owner, record)
        return left

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def adapted(provider: Provider) -> Cloud:
    return as_cloud(provider, Calls(), cluster_name="blue")
