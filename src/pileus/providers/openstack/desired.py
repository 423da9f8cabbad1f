"""The load balancer that a Service asks for, in the terms of Octavia. Pure.

    desired = desire(wish, wish.spec, setup)
    desired.ports[0].listener_body()     what is sent to create the listener of the first port

Names, descriptions and the first tag are those of the Go cloud-controller-manager, so that a
cluster can be taken over from it and handed back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property

from pileus.cloud.balancer import (
    BalancerSpec,
    Listener,
    Notice,
    Owner,
    Transport,
    Wish,
    family_of,
    no_client_admitted,
)
from pileus.cloud.errors import Misconfigured, Unsupported
from pileus.cloud.fingerprint import digest, usual_network
from pileus.cloud.model import NodeRef
from pileus.cloud.options import Option, Values
from pileus.cloud.selectors import Selector, select
from pileus.dataclass import dataclass, replace
from pileus.fix import quoted
from pileus.providers.openstack import annotations
from pileus.providers.openstack.config import LoadBalancer, LoadBalancerClass, OpenStackConfig
from pileus.providers.openstack.config_checks import whole_seconds
from pileus.providers.openstack.features import OctaviaFeatures
from pileus.providers.openstack.marks import CREATED, cut, tags_of
from pileus.providers.openstack.networks import Chosen, NetworkRequest, addressed, machines_of
from pileus.providers.openstack.ports import Body, Member, Monitor, Port

PREFIX = "kube_service_"
"""Start of the names and tags that the Go program gives to load balancers."""
OPEN_RANGES = {"IPv4": "0.0.0.0/0", "IPv6": "::/0"}
MONITOR_TYPES = {Transport.TCP: "TCP", Transport.UDP: "UDP-CONNECT", Transport.SCTP: "SCTP"}
X_FORWARDED_FOR = "X-Forwarded-For"
TIMEOUTS = (
    ("timeout_client_data", annotations.TIMEOUT_CLIENT_DATA, 50000),
    ("timeout_member_connect", annotations.TIMEOUT_MEMBER_CONNECT, 5000),
    ("timeout_member_data", annotations.TIMEOUT_MEMBER_DATA, 50000),
    ("timeout_tcp_inspect", annotations.TIMEOUT_TCP_INSPECT, 0),
)
LEGACY_LENGTH = 32
NEWEST = OctaviaFeatures((2, 26))


@dataclass(frozen=True, slots=True)
class Setup:
    """What is the same for all Services: configuration, features, and the name of the cluster."""

    config: OpenStackConfig = field(default_factory=OpenStackConfig)
    features: OctaviaFeatures = NEWEST
    cluster_name: str = "kubernetes"

    @property
    def balancers(self) -> LoadBalancer:
        return self.config.load_balancer

    @property
    def selector(self) -> Selector:
        return annotations.node_selector(self.balancers.node_selector)

    def fingerprint(self, wish: Wish) -> str:
        """Returns a short hash of everything that decides what the load balancer looks like."""
        return digest(
            wish.owner.uid,
            wish.fingerprint,
            repr(self.balancers),
            repr(sorted(self.config.classes.items())),
            repr(self.features),
            self.cluster_name,
            *(("own",) if wish.selector.is_given and self.balancers.node_selector else ()),
        )


@dataclass(frozen=True, kw_only=True)
class Desired:
    owner: Owner
    name: str
    legacy_name: str
    service_name: str
    """`namespace/name`, for descriptions and messages."""
    cluster_name: str
    provider: str
    flavor_id: str
    availability_zone: str
    families: tuple[str, ...]
    is_internal: bool
    requested_address: str
    keeps_floating_ip: bool
    is_proxied: bool
    hostname: str
    source_ranges: tuple[str, ...]
    health_port: int | None
    tls_container_ref: str
    notices: tuple[Notice, ...] = ()
    context: "Context" = field(repr=False, compare=False)

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        """Computed when needed: most checks find that nothing has changed."""
        return tuple(self.context.ports())

    @cached_property
    def request(self) -> NetworkRequest:
        return self.context.request(is_internal=self.is_internal)

    @property
    def description(self) -> str:
        return cut(
            f"Kubernetes external service {self.service_name} from cluster {self.cluster_name}"
        )

    @property
    def tags(self) -> tuple[str, ...]:
        return self.name, *tags_of(self.owner)

    @property
    def created_tag(self) -> str:
        """Set by the request that creates the load balancer: only then is it deleted whole."""
        return f"{CREATED}{self.owner.uid}"

    @property
    def has_floating_ip(self) -> bool:
        """Floating IPs lead to IPv4 addresses only."""
        return not self.is_internal and self.families[0] == "IPv4"

    @cached_property
    def by_port(self) -> Mapping[tuple[int, str], Port]:
        return {(each.port, each.transport.value): each for each in self.ports}

    def body(self, chosen: Chosen, more_subnets: tuple[str, ...], *, whole: bool) -> Body:
        """The request that creates the load balancer, perhaps with all its parts.

        `more_subnets` are those of the other IP families.
        """
        optional = {
            "provider": self.provider,
            "flavor_id": self.flavor_id,
            "availability_zone": self.availability_zone,
            "vip_port_id": chosen.vip_port_id,
            "vip_subnet_id": chosen.vip_subnet_id,
            "vip_network_id": chosen.vip_network_id,
            "vip_address": self.vip_address,
        }
        tags = [*self.tags, self.created_tag]
        body: Body = {"name": self.name, "description": self.description, "tags": tags}
        body |= {name: value for name, value in optional.items() if value}
        if more_subnets:
            body["additional_vips"] = [{"subnet_id": one} for one in more_subnets]
        if whole:
            body["listeners"] = [one.whole_body(chosen.member_subnet_id) for one in self.ports]
        return body

    @property
    def vip_address(self) -> str:
        """`spec.loadBalancerIP` of an external Service with IPv4 is a floating IP."""
        return "" if self.has_floating_ip else self.requested_address


def balancer_name(wish: Wish, cluster_name: str) -> str:
    service = f"{wish.namespace}_{wish.service}" if wish.service else wish.name or wish.owner.uid
    return cut(f"{PREFIX}{cluster_name}_{service}")


def legacy_name(owner: Owner) -> str:
    return f"a{owner.uid.replace('-', '')}"[:LEGACY_LENGTH]


def desire(wish: Wish, spec: BalancerSpec, setup: Setup) -> Desired:
    """Raises `Misconfigured` or `Unsupported` for what cannot be provided."""
    service = f"{wish.namespace}/{wish.service}" if wish.service else wish.name
    values = annotations.read(wish.options, service)
    _check(spec, values, setup)
    config = setup.balancers
    is_internal = config.internal_lb or bool(values[annotations.INTERNAL])
    context = Context(wish, spec, values, setup)
    return Desired(
        owner=wish.owner,
        name=balancer_name(wish, setup.cluster_name),
        legacy_name=legacy_name(wish.owner),
        service_name=service,
        cluster_name=setup.cluster_name,
        provider=config.lb_provider,
        flavor_id=context.flavor_id,
        availability_zone=context.availability_zone,
        families=spec.families,
        is_internal=is_internal,
        requested_address=spec.requested_address,
        keeps_floating_ip=bool(values[annotations.KEEP_FLOATING_IP]),
        is_proxied=bool(values[annotations.PROXY_PROTOCOL]),
        hostname=values[annotations.HOSTNAME] or "",
        source_ranges=tuple(sorted(spec.source_ranges)),
        health_port=context.health_port,
        tls_container_ref=context.tls_container_ref,
        notices=(*annotations.ignored(wish.options, service), *context.notices()),
        context=context,
    )


def _check(spec: BalancerSpec, values: Values, setup: Setup) -> None:
    if not setup.features.has_tags:
        major, minor = setup.features.version
        raise Unsupported(
            f"Octavia API {major}.{minor} has no tags, so that load balancers cannot be marked. "
            "Fix: upgrade Octavia to 2.5 (Stein) or newer"
        )
    if len(spec.families) > 1 and not setup.features.has_additional_vips:
        raise Unsupported(
            "load balancers of this cloud have one IP family: a second one needs Octavia API 2.26 "
            "and a provider with additional VIPs"
        )
    if spec.admits_no_client:
        raise no_client_admitted(spec)
    bare = sorted((one.port, one.transport) for one in spec.listeners if not one.node_port)
    if bare:
        port, transport = bare[0]
        raise Misconfigured(
            f"port {port}/{transport} has no node port, to which Octavia sends traffic. The load "
            "balancer is not changed. Fix: set spec.allocateLoadBalancerNodePorts of the Service "
            "to true"
        )
    if _restricts_clients(spec) and not _can_restrict_clients(setup):
        raise Unsupported(_unrestricted(setup.features))
    method = values[annotations.LB_METHOD]
    is_ovn = setup.features.provider == "ovn"
    if method and (method == "SOURCE_IP_PORT") != is_ovn:
        allowed = "SOURCE_IP_PORT" if is_ovn else "ROUND_ROBIN, LEAST_CONNECTIONS or SOURCE_IP"
        raise Misconfigured(
            f"annotation {annotations.LB_METHOD.name}: provider {setup.features.provider} does not "
            f"support {method}. Use {allowed}"
        )


def _restricts_clients(spec: BalancerSpec) -> bool:
    """Whether a client of an IP family of the load balancer is not admitted."""
    admitted = {usual_network(one) for one in spec.source_ranges}
    return bool(admitted) and not {OPEN_RANGES[one] for one in spec.families} <= admitted


def _can_restrict_clients(setup: Setup) -> bool:
    """Connections through `ovn` keep the address of the client: security groups restrict them."""
    in_groups = setup.features.provider == "ovn" and setup.balancers.manage_security_groups
    return setup.features.has_allowed_cidrs or in_groups


def _unrestricted(features: OctaviaFeatures) -> str:
    why, fix = "provider ovn has no access lists", "set manage-security-groups in cloud.conf"
    if features.provider != "ovn":
        major, minor = features.version
        why = f"Octavia API {major}.{minor} has no access lists"
        fix = "upgrade Octavia to 2.12 (Ussuri) or newer"
    return (
        "load balancers of this cloud cannot restrict client addresses, and the Service has source "
        f"ranges: {why}. The load balancer is not changed. Fix: remove the ranges to allow every "
        f"client, or {fix}"
    )


@dataclass(frozen=True)
class Context:
    """One wish with everything that decides about it."""

    wish: Wish
    spec: BalancerSpec
    values: Values
    setup: Setup

    @property
    def config(self) -> LoadBalancer:
        return self.setup.balancers

    @property
    def tls_container_ref(self) -> str:
        given = self.values[annotations.TLS_CONTAINER_REF]
        return self.config.default_tls_container_ref if given is None else given

    @property
    def flavor_id(self) -> str:
        given = self.values[annotations.FLAVOR_ID]
        wanted = self.config.flavor_id if given is None else given
        return wanted if self.setup.features.has_flavors else ""

    @property
    def wanted_zone(self) -> str:
        given = self.values[annotations.AVAILABILITY_ZONE]
        return self.config.availability_zone if given is None else given

    @property
    def availability_zone(self) -> str:
        return self.wanted_zone if self.setup.features.has_availability_zones else ""

    @property
    def has_monitors(self) -> bool:
        given = self.values[annotations.ENABLE_HEALTH_MONITOR]
        return self.config.create_monitor if given is None else given

    @property
    def health_port(self) -> int | None:
        return self.spec.health.node_port if self.spec.health and self.has_monitors else None

    @property
    def algorithm(self) -> str:
        given = self.values[annotations.LB_METHOD]
        if given:
            return given
        return "SOURCE_IP_PORT" if self.setup.features.provider == "ovn" else self.config.lb_method

    def request(self, *, is_internal: bool) -> NetworkRequest:
        values = self.values
        return NetworkRequest(
            asked=LoadBalancerClass(
                floating_network_id=values[annotations.FLOATING_NETWORK_ID] or "",
                floating_subnet_id=values[annotations.FLOATING_SUBNET_ID] or "",
                floating_subnet=values[annotations.FLOATING_SUBNET] or "",
                floating_subnet_tags=values[annotations.FLOATING_SUBNET_TAGS] or "",
                network_id=values[annotations.NETWORK_ID] or "",
                subnet_id=values[annotations.SUBNET_ID] or "",
                member_subnet_id=values[annotations.MEMBER_SUBNET_ID] or "",
            ),
            class_name=values[annotations.CLASS] or "",
            is_internal=is_internal,
            port_id=values[annotations.PORT_ID] or "",
            machines=machines_of(self._nodes, self.spec.families[0], _server_id),
            version=4 if self.spec.families[0] == "IPv4" else 6,
            router_id=self.setup.config.route.router_id,
        )

    @cached_property
    def _nodes(self) -> frozenset[NodeRef]:
        """A selector of the Service replaces the one of the configuration, also an empty one."""
        if self.wish.selector.is_given:
            return self.spec.members
        return select(self.spec.members, self.setup.selector)

    def ports(self) -> Iterator[Port]:
        """Pools of one name would be one pool: each port has a number of its own."""
        in_order = sorted(self.spec.listeners, key=lambda one: (one.position, one.port))
        for rank, each in enumerate(in_order):
            yield self._port(replace(each, position=max(rank, each.position)))

    def _port(self, listener: Listener) -> Port:
        protocol, pool_protocol = self._protocols(listener.transport)
        name = self._tags[0]
        monitor = self._monitor(listener, name) if self.has_monitors else None
        uses_health_port = monitor is not None and monitor.type == "HTTP"
        found = self._members(listener, self.health_port if uses_health_port else None)
        return Port(
            port=listener.port,
            transport=listener.transport,
            position=listener.position,
            balancer=name,
            tags=self._tags,
            protocol=protocol,
            pool_protocol=pool_protocol,
            algorithm=self.algorithm,
            is_sticky=self.spec.sticky_seconds is not None,
            settings=self._listener_settings(listener.transport),
            is_open=not self.spec.source_ranges,
            members=tuple(one for one in found if one.address),
            unaddressed=tuple(one for one in found if not one.address),
            monitor=monitor,
        )

    @cached_property
    def _tags(self) -> tuple[str, ...]:
        return balancer_name(self.wish, self.setup.cluster_name), *tags_of(self.wish.owner)

    def _protocols(self, transport: Transport) -> tuple[str, str]:
        """Returns the protocols of the listener and of its pool."""
        if transport is not Transport.TCP:
            return transport.value, transport.value
        is_http = bool(self.values[annotations.X_FORWARDED_FOR])
        listener = "HTTP" if is_http else "TCP"
        if self.tls_container_ref:
            listener, is_http = "TERMINATED_HTTPS", True
        return listener, self.values[annotations.PROXY_PROTOCOL] or ("HTTP" if is_http else "TCP")

    def _listener_settings(self, transport: Transport) -> Body:
        limit = self.values[annotations.CONNECTION_LIMIT]
        settings: Body = {"connection_limit": -1 if limit is None else limit}
        if self.setup.features.has_timeouts:
            for name, option, default in TIMEOUTS:
                given = self.values[option]
                settings[name] = default if given is None else given
        if self.setup.features.has_allowed_cidrs:
            settings["allowed_cidrs"] = self.allowed_cidrs
        if transport is Transport.TCP and self.values[annotations.X_FORWARDED_FOR]:
            settings["insert_headers"] = {X_FORWARDED_FOR: "true"}
        if transport is Transport.TCP and self.tls_container_ref:
            settings["default_tls_container_ref"] = self.tls_container_ref
        return settings

    @cached_property
    def allowed_cidrs(self) -> list[str]:
        """The same list for all ports: a Service may have many ports and many ranges.

        Octavia refuses ranges of a family that the load balancer does not have.
        """
        ranges = {usual_network(one) for one in self.spec.source_ranges}
        if not ranges:
            return [OPEN_RANGES[family] for family in sorted(self.spec.families)]
        return sorted(one for one in ranges if family_of(one) in self.spec.families)

    def _members(self, listener: Listener, monitor_port: int | None) -> tuple[Member, ...]:
        """Octavia refuses two members with one address: the first node by name stands for both."""
        node_port = listener.node_port
        if not node_port:
            return ()
        return tuple(
            Member(node.name, address, node_port, monitor_port)
            for node, address, is_first in addressed(self._nodes, self.spec.families[0])
            if is_first
        )

    def _monitor(self, listener: Listener, balancer: str) -> Monitor:
        features, is_udp = self.setup.features, listener.transport is Transport.UDP
        can_use_http = features.has_http_monitors_on_udp if is_udp else features.has_http_monitors
        uses_http = self.health_port is not None and can_use_http
        path = self.spec.health.path if self.spec.health else ""
        return Monitor(
            name=cut(f"monitor_{listener.position}_{balancer}"),
            type="HTTP" if uses_http else MONITOR_TYPES[listener.transport],
            delay=self._number(
                annotations.HEALTH_MONITOR_DELAY, whole_seconds(self.config.monitor_delay)
            ),
            timeout=self._number(
                annotations.HEALTH_MONITOR_TIMEOUT, whole_seconds(self.config.monitor_timeout)
            ),
            max_retries=self._number(
                annotations.HEALTH_MONITOR_MAX_RETRIES, self.config.monitor_max_retries
            ),
            max_retries_down=self._number(
                annotations.HEALTH_MONITOR_MAX_RETRIES_DOWN, self.config.monitor_max_retries_down
            ),
            http={"url_path": path, "http_method": "GET", "expected_codes": "200"}
            if uses_http
            else {},
        )

    def _number(self, option: Option[int | None], default: int) -> int:
        given = self.values[option]
        return default if given is None else given

    def notices(self) -> Iterator[Notice]:
        """Yields what the Service asks for and this Octavia ignores."""
        features, provider = self.setup.features, self.setup.features.provider
        if self.wanted_zone and not features.has_availability_zones:
            yield _warning(
                "LoadBalancerAvailabilityZonesIgnored",
                f"availability zone {quoted(self.wanted_zone)} has no effect: it needs Octavia API "
                f"2.14 and a provider with zones (provider {provider})",
            )
        if self.spec.families[0] == "IPv6" and not self.values[annotations.INTERNAL]:
            yield Notice(
                "LoadBalancerFloatingIPSkipped",
                "IPv6 addresses have no floating IP: the address of the load balancer is published",
            )


def _server_id(node: NodeRef) -> str:
    """Returns the ID of the node's server, whatever the form of the provider ID."""
    return node.provider_id.rpartition("/")[2]


def _warning(reason: str, message: str) -> Notice:
    return Notice(reason, message, is_warning=True)
