"""What a ported provider implements: the interfaces of the Go framework, method by method.

Names are Go's with Python spelling. A pair (object, supported) is `object | None`; there is no
context parameter. Methods of capabilities, and `initialize`, are `async` or plain; plain ones run
in a thread. Methods of `Interface` that return a capability or a fact must be plain. Kubernetes
objects are read-only, with the fields of `pileus.kube.model.core_v1`.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TextIO, TypeVar, runtime_checkable

from pileus.classic.stop import Stop
from pileus.dataclass import dataclass
from pileus.kube.access import Access
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import LoadBalancerStatus, Node, NodeAddress, Service
from pileus.runtime.informers import Informers

T = TypeVar("T")
Maybe = T | Awaitable[T]
"""What a plain method returns, or an async one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceMetadata:
    provider_id: str = ""
    instance_type: str = ""
    node_addresses: Sequence[NodeAddress] = ()
    zone: str = ""
    region: str = ""
    additional_labels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    failure_domain: str = ""
    region: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    name: str = ""
    target_node: str = ""
    """The name of the node; empty if it is not known."""
    enable_node_addresses: bool = False
    """Whether the route has the addresses of the node, which are then kept up to date."""
    target_node_addresses: Sequence[NodeAddress] = ()
    destination_cidr: str = ""
    blackhole: bool = False


class LoadBalancer(Protocol):
    def get_load_balancer(
        self, cluster_name: str, service: Service
    ) -> Maybe[LoadBalancerStatus | None]:
        """Returns the status of the load balancer; None if it does not exist."""
        ...

    def get_load_balancer_name(self, cluster_name: str, service: Service) -> Maybe[str]: ...

    def ensure_load_balancer(
        self, cluster_name: str, service: Service, nodes: Sequence[Node]
    ) -> Maybe[LoadBalancerStatus]: ...

    def update_load_balancer(
        self, cluster_name: str, service: Service, nodes: Sequence[Node]
    ) -> Maybe[None]: ...

    def ensure_load_balancer_deleted(self, cluster_name: str, service: Service) -> Maybe[None]:
        """Deletes the load balancer and all its parts. Succeeds if nothing exists."""
        ...


class Instances(Protocol):
    def node_addresses(self, name: str) -> Maybe[Sequence[NodeAddress]]: ...
    def node_addresses_by_provider_id(self, provider_id: str) -> Maybe[Sequence[NodeAddress]]: ...
    def instance_id(self, node_name: str) -> Maybe[str]: ...
    def instance_type(self, name: str) -> Maybe[str]: ...
    def instance_type_by_provider_id(self, provider_id: str) -> Maybe[str]: ...
    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> Maybe[None]: ...
    def current_node_name(self, hostname: str) -> Maybe[str]: ...
    def instance_exists_by_provider_id(self, provider_id: str) -> Maybe[bool]: ...
    def instance_shutdown_by_provider_id(self, provider_id: str) -> Maybe[bool]: ...


class InstancesV2(Protocol):
    def instance_exists(self, node: Node) -> Maybe[bool]:
        """True also for a stopped instance."""
        ...

    def instance_shutdown(self, node: Node) -> Maybe[bool]: ...
    def instance_metadata(self, node: Node) -> Maybe[InstanceMetadata | None]: ...


class Zones(Protocol):
    def get_zone(self) -> Maybe[Zone]: ...
    def get_zone_by_provider_id(self, provider_id: str) -> Maybe[Zone]: ...
    def get_zone_by_node_name(self, node_name: str) -> Maybe[Zone]: ...


class Clusters(Protocol):
    def list_clusters(self) -> Maybe[Sequence[str]]: ...
    def master(self, cluster_name: str) -> Maybe[str]: ...


class Routes(Protocol):
    def list_routes(self, cluster_name: str) -> Maybe[Sequence[Route]]: ...
    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> Maybe[None]: ...
    def delete_route(self, cluster_name: str, route: Route) -> Maybe[None]: ...


class ClientBuilder(Protocol):
    """The provider's access to the cluster. `name` is the identity to use."""

    def config(self, name: str) -> Access: ...
    def config_or_die(self, name: str) -> Access: ...
    def client(self, name: str) -> Client: ...
    def client_or_die(self, name: str) -> Client: ...


class Interface(Protocol):
    """The provider. A capability that it does not support is None."""

    def initialize(self, client_builder: ClientBuilder, stop: Stop) -> Maybe[None]:
        """Called when this process becomes the leader, before controllers start.

        Background work ends when `stop` is set.
        """
        ...

    def load_balancer(self) -> LoadBalancer | None: ...
    def instances(self) -> Instances | None: ...
    def instances_v2(self) -> InstancesV2 | None: ...
    def zones(self) -> Zones | None: ...
    def clusters(self) -> Clusters | None: ...
    def routes(self) -> Routes | None: ...
    def provider_name(self) -> str: ...
    def has_cluster_id(self) -> bool: ...


@runtime_checkable
class InformerUser(Protocol):
    def set_informers(self, informers: Informers) -> Maybe[None]:
        """Called after `initialize`, before the informers start."""
        ...


@runtime_checkable
class SchemeOwner(Protocol):
    def provider_id_schemes(self) -> Sequence[str]:
        """Returns the schemes of all provider IDs that belong to this provider.

        For a provider with machines of several kinds, such as `["hcloud", "hrobot"]`. The
        provider's name is always one of its schemes. Nodes of other schemes are not managed.
        """
        ...


@runtime_checkable
class PVLabeler(Protocol):
    def get_labels_for_volume(self, volume: object) -> Maybe[Mapping[str, str]]: ...


@runtime_checkable
class ScrubDNS(Protocol):
    def scrub_dns(
        self, nameservers: Sequence[str], searches: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]: ...


class Factory(Protocol):
    def __call__(self, config: TextIO | None, /) -> Interface:
        """Returns the provider. `config` is the file of `--cloud-config`; None without the flag."""
        ...
