"""Functions that providers of the Go framework import from it, in Python names. Pure.

| Go | here |
|---|---|
| `DefaultLoadBalancerName` | `default_load_balancer_name` |
| `GetLoadBalancerSourceRanges`, `IsAllowAll` | `load_balancer_source_ranges`, `allows_all` |
| `NeedsHealthCheck` | `needs_health_check` |
| `GetServiceHealthCheckPathPort` | `health_check_path_port` |
| `AddToNodeAddresses` | `add_to_node_addresses` |
| `PreferNodeIP`, `GetNodeAddressesFromNodeIP` | `prefer_node_ip` |
| `GetInstanceProviderID` | `classic.instances.get_instance_provider_id` |
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network

from pileus.kube.model.core_v1 import NodeAddress, Service, ServiceSpec
from pileus.objects.node_ips import prefer_node_ips
from pileus.objects.ranges import Range, parse_range, source_range_texts, wrong_with_range

EVERYONE = IPv4Network("0.0.0.0/0")
LONGEST_NAME = 32
HEALTH_CHECK_PATH = "/healthz"


def default_load_balancer_name(service: Service) -> str:
    """Returns the name by which most Go providers know the load balancer of a Service.

    It is `a` and the Service's UID without hyphens, cut to 32 characters.
    """
    return f"a{service.metadata.uid}".replace("-", "")[:LONGEST_NAME]


def load_balancer_source_ranges(service: Service) -> frozenset[Range]:
    """Returns who may connect: from the spec, else from the annotation, else 0.0.0.0/0.

    Raises `ValueError` for a range that does not parse or has no prefix length; the message says
    where it is and how to fix it.
    """
    where, texts = source_range_texts(service)
    found: set[Range] = set()
    for text in texts:
        try:
            found.add(parse_range(text))
        except ValueError:
            raise ValueError(f"{where}: {wrong_with_range(text)}") from None
    return frozenset(found or {EVERYONE})


def allows_all(ranges: Iterable[Range]) -> bool:
    """Whether every IPv4 address may connect."""
    return EVERYONE in ranges


def needs_health_check(service: Service) -> bool:
    """Whether the Service asks for traffic to nodes with local endpoints only."""
    spec = service.spec or ServiceSpec()
    return (spec.type, spec.external_traffic_policy) == ("LoadBalancer", "Local")


def health_check_path_port(service: Service) -> tuple[str, int] | None:
    """Returns path and node port of the check for local endpoints; None if none is needed."""
    if service.spec is None or not needs_health_check(service):
        return None
    return HEALTH_CHECK_PATH, service.spec.health_check_node_port


def add_to_node_addresses(
    addresses: Sequence[NodeAddress], *more: NodeAddress
) -> tuple[NodeAddress, ...]:
    """Returns the addresses and those of `more` that are not among them, in this order."""
    return tuple(dict.fromkeys((*addresses, *more)))


def prefer_node_ip(node_ip: str, addresses: Sequence[NodeAddress]) -> tuple[NodeAddress, ...]:
    """Returns the addresses with `node_ip` in front, without others of its type.

    `node_ip` is what the kubelet got as `--node-ip`: one address, or an IPv4 and an IPv6 address
    with a comma between them; an empty text asks for nothing. The manager does the same for nodes
    with the annotation `alpha.kubernetes.io/provided-node-ip`; a provider rarely needs to.

    Raises `pileus.objects.node_ips.NodeIpRefused` if it is not among the addresses.
    """
    return prefer_node_ips(node_ip, addresses) if node_ip else tuple(addresses)
