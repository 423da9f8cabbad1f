"""Which networks the load balancer of a Service gets. Pure, over lists that are read once.

    topology = await read_topology(neutron, requests, config, classes)  # shared by all Services
    chosen = choose(request, topology, config, classes)               # for each Service
    chosen.vip_subnet_id, chosen.member_subnet_id, chosen.floating.network_id

What decides, first wins:

- VIP: network and subnet of the existing load balancer; the port of annotation `port-id`; class,
  annotation, `[LoadBalancer]` (internal Services: annotation, class, `[LoadBalancer]`); the subnet
  of the first member's port; the subnet of the router of `[Route]`, if it has exactly one of the
  IP family and a member is in it, or there is none.
- Members: `member-subnet-id` of annotation, class, `[LoadBalancer]`; `subnet-id` of
  `[LoadBalancer]`; the subnet of the VIP.
- Floating IP: class, annotation, `[LoadBalancer]`; the first external network with IPv4, by ID.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from ipaddress import ip_address, ip_network

from pileus.cloud.errors import Misconfigured, NeedsMembers
from pileus.cloud.fingerprint import usual_address
from pileus.cloud.model import AddressType, NodeRef
from pileus.dataclass import dataclass
from pileus.fix import one_line, quoted
from pileus.providers.openstack.config import LoadBalancer, LoadBalancerClass
from pileus.providers.openstack.name_pattern import name_pattern
from pileus.providers.openstack.neutron import Network, Neutron, Port, Subnet
from pileus.suggest import did_you_mean

PREFIX = "loadbalancer.openstack.org/"
LONGEST_TAGS = 1000
"""Characters of `floating-subnet-tags`."""
KEPT = 16
"""Sets of members whose addresses are remembered: Services share them."""


@dataclass(frozen=True, slots=True, order=True)
class Machine:
    """A member of a load balancer: its server, and the address that gets traffic."""

    name: str
    server_id: str
    """Empty: not known, for example before the node is initialized."""
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRequest:
    """What a Service says about its networks."""

    asked: LoadBalancerClass = field(default_factory=LoadBalancerClass)
    """Annotations, by the names of keys."""
    class_name: str = ""
    is_internal: bool = False
    port_id: str = ""
    """Port for the VIP that the user created."""
    machines: tuple[Machine, ...] = ()
    version: int = 4
    """Of the IP addresses of members."""
    router_id: str = ""
    """The router of the cluster; empty: not known."""
    existing_subnet_id: str = ""
    existing_network_id: str = ""
    """Of the VIP of the load balancer, if it exists: they cannot be changed."""


@dataclass(frozen=True, slots=True)
class Topology:
    """What Neutron has, as far as a choice depends on it."""

    subnets: tuple[Subnet, ...] = ()
    external: tuple[Network, ...] = ()
    """External networks."""
    ports: tuple[Port, ...] = ()
    """Ports of members, if they were needed."""
    interfaces: tuple[Port, ...] = ()
    """Ports of the router, if no port of a member tells the subnet."""

    def subnet(self, subnet_id: str) -> Subnet | None:
        return next((each for each in self.subnets if each.id == subnet_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingChoice:
    """Where a new floating IP is created."""

    network_id: str = ""
    """Empty: the cloud has no external network, and the load balancer stays internal."""
    subnet_ids: tuple[str, ...] = ()
    """Subnets to try, in order; empty: any."""
    problem: str = ""
    """Why none can be created: what is wrong, and the fix. An existing one is not affected."""
    notice: str = ""
    """What the user should know about the choice of the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    vip_network_id: str = ""
    vip_subnet_id: str = ""
    """Empty if only the network was given: Octavia selects a subnet of it."""
    vip_port_id: str = ""
    member_subnet_id: str = ""
    """Empty: the subnet of the VIP, as soon as Octavia has selected it."""
    member_cidr: str = ""
    """CIDR of the member subnet; empty if it is not known."""
    floating: FloatingChoice | None = None
    """None for an internal Service."""


def address_of(node: NodeRef, family: str) -> str:
    """Returns the address of a member: its first InternalIP of the family, else ExternalIP."""
    for kind in (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP):
        for each in node.addresses:
            if each.type == kind and is_of_family(each.address, family):
                return each.address
    return ""


@lru_cache(maxsize=KEPT)
def addressed(members: frozenset[NodeRef], family: str) -> tuple[tuple[NodeRef, str, bool], ...]:
    """Returns the members by name, each with its address ("": none) of the family.

    The last value is False for one whose address another one before it has, too.
    """
    found = sorted(((each, address_of(each, family)) for each in members), key=_by_name)
    first = {usual_address(address): node for node, address in reversed(found) if address}
    return tuple(
        (node, address, not address or first[usual_address(address)] is node)
        for node, address in found
    )


def _by_name(found: tuple[NodeRef, str]) -> tuple[str, str]:
    node, address = found
    return node.name, address


def machines_of(
    members: frozenset[NodeRef], family: str, server_id: Callable[[NodeRef], str]
) -> tuple[Machine, ...]:
    """Returns the members with an address of the family, by name."""
    return tuple(
        sorted(
            Machine(node.name, server_id(node), address)
            for node, address, _ in addressed(members, family)
            if address
        )
    )


async def read_topology(
    neutron: Neutron,
    requests: Sequence[NetworkRequest],
    config: LoadBalancer,
    classes: Mapping[str, LoadBalancerClass],
    external: tuple[Network, ...] | None = None,
) -> Topology:
    """Read each list at most once for all requests, and only if one of them needs it.

    `external`: the external networks, if they were read already.
    """
    if not requests:
        return Topology()
    detected = [
        each for each in requests if _is_detected(each, _vip_sources(each, config, classes))
    ]
    needs_ports = requests if config.manage_security_groups else detected
    ports = await neutron.ports_of(one.server_id for each in needs_ports for one in each.machines)
    unknown = (
        one for one in detected if not one.existing_subnet_id and not _of_members(one, ports)
    )
    if external is None and not all(each.is_internal for each in requests):
        external = await neutron.networks([("router:external", "true")])
    return Topology(
        await neutron.subnets(),
        external or (),
        ports,
        await neutron.ports_of({one.router_id for one in unknown} - {""}),
    )


def choose(
    request: NetworkRequest,
    topology: Topology,
    config: LoadBalancer,
    classes: Mapping[str, LoadBalancerClass],
) -> Chosen:
    """Raises `Misconfigured` if a network is unknown, or if no subnet can be detected.

    Raises `NeedsMembers` if the first member with an address decides about the subnet.
    """
    if request.class_name and request.class_name not in classes:
        raise Misconfigured(_unknown_class(request.class_name, classes))
    sources = _vip_sources(request, config, classes)
    detected = _detected_subnet(request, topology) if _is_detected(request, sources) else ""
    network, subnet = _vip(request, sources, detected, topology)
    member = _member_subnet(request, config, classes, topology) or (
        config.subnet_id or detected or request.existing_subnet_id or subnet
    )
    known = topology.subnet(member)
    return Chosen(
        vip_network_id=network,
        vip_subnet_id=subnet,
        vip_port_id=request.port_id,
        member_subnet_id=member,
        member_cidr=known.cidr if known else "",
        floating=None
        if request.is_internal
        else _floating(_class_first(request, config, classes), topology),
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """Keys of one place of the configuration, and how errors name the place."""

    values: LoadBalancerClass
    form: str

    def name(self, key: str) -> str:
        return self.form.format(key)


def _annotations(request: NetworkRequest) -> _Source:
    return _Source(request.asked, f"annotation {PREFIX}{{}}")


def _class(request: NetworkRequest, classes: Mapping[str, LoadBalancerClass]) -> _Source:
    values = classes.get(request.class_name, LoadBalancerClass())
    return _Source(values, f'{{}} of [LoadBalancerClass "{request.class_name}"]')


def _class_first(
    request: NetworkRequest, config: LoadBalancer, classes: Mapping[str, LoadBalancerClass]
) -> tuple[_Source, ...]:
    default = _Source(config, "{} of [LoadBalancer]")
    return _class(request, classes), _annotations(request), default


def _annotation_first(
    request: NetworkRequest, config: LoadBalancer, classes: Mapping[str, LoadBalancerClass]
) -> tuple[_Source, ...]:
    of_class, annotation, default = _class_first(request, config, classes)
    return annotation, of_class, default


def _vip_sources(
    request: NetworkRequest, config: LoadBalancer, classes: Mapping[str, LoadBalancerClass]
) -> tuple[_Source, ...]:
    in_order = _annotation_first if request.is_internal else _class_first
    return in_order(request, config, classes)


def _first(sources: Iterable[_Source], key: str) -> tuple[str, str]:
    """Returns the first value of a key that is set, and where; empty if it is not set."""
    field_name = key.replace("-", "_")
    for each in sources:
        value = str(getattr(each.values, field_name))
        if value:
            return value, each.name(key)
    return "", ""


def _is_detected(request: NetworkRequest, sources: Iterable[_Source]) -> bool:
    """Whether nothing but the members' ports says which subnet to use."""
    if request.existing_subnet_id and not request.port_id:
        return False
    places = tuple(sources)
    return not _first(places, "subnet-id")[0] and not _first(places, "network-id")[0]


def _detected_subnet(request: NetworkRequest, topology: Topology) -> str:
    """Returns the subnet of members, or the only one where they can be.

    Raises `NeedsMembers` if there are none yet, and `Misconfigured` if they tell no subnet.
    """
    found = _of_members(request, topology.ports)
    if found or request.existing_subnet_id:
        return found
    on_router = _on_router(request, topology)
    if len(on_router) == 1 and _may_have(on_router[0], request.machines):
        return on_router[0].id
    fix = f"Fix: set subnet-id in [LoadBalancer] of cloud.conf, or annotation {PREFIX}subnet-id"
    if not any(each.server_id for each in request.machines):
        several = f", and the router has {len(on_router)} subnets" if len(on_router) > 1 else ""
        raise NeedsMembers(
            "no subnet for the load balancer yet: subnet-id is not set, and no node has both a "
            f"server and an address{several}. It is created as soon as a node has. {fix}"
        )
    names = ", ".join(each.name for each in request.machines[:3])
    raise Misconfigured(
        "no subnet for the load balancer: subnet-id is not set, and no member has a port with its "
        f"address (members: {names}). {fix}"
    )


def _of_members(request: NetworkRequest, ports: Iterable[Port]) -> str:
    """Returns the subnet of the first member, by name, whose address is on a port of its server."""
    subnets = {
        (port.device_id, usual_address(one.ip_address)): one.subnet_id
        for port in ports
        for one in port.fixed_ips
    }
    for each in request.machines:
        found = subnets.get((each.server_id, usual_address(each.address)))
        if found and each.server_id:
            return found
    return ""


INTERFACES = frozenset({
    "network:router_interface",
    "network:router_interface_distributed",
    "network:ha_router_replicated_interface",
})
"""What ports of a router in the subnets behind it are owned by; its gateway is not among them."""


def _on_router(request: NetworkRequest, topology: Topology) -> tuple[Subnet, ...]:
    """Returns the subnets behind the router that have the IP family of the members."""
    ids = {
        one.subnet_id
        for port in topology.interfaces
        if port.device_owner in INTERFACES and port.device_id == request.router_id
        for one in port.fixed_ips
    }
    subnets = (each for each in topology.subnets if each.id in ids)
    return tuple(each for each in subnets if each.ip_version == request.version)


def _may_have(subnet: Subnet, machines: Sequence[Machine]) -> bool:
    """Whether a member is in it, or there are none."""
    network = ip_network(subnet.cidr)
    return not machines or any(ip_address(each.address) in network for each in machines)


def _vip(
    request: NetworkRequest, sources: tuple[_Source, ...], detected: str, topology: Topology
) -> tuple[str, str]:
    """Returns network and subnet of the VIP; both are empty if the user gave a port."""
    if request.existing_subnet_id:
        return request.existing_network_id, request.existing_subnet_id
    if request.port_id:
        return "", ""
    network, network_place = _first(sources, "network-id")
    subnet, place = _first(sources, "subnet-id")
    _check_subnet(subnet, place, topology)
    known = topology.subnet(subnet)
    if network and known and known.network_id != network:
        raise Misconfigured(
            f"{place}: subnet {one_line(subnet)} is not in the network of {network_place}. Fix: "
            "remove one of them, or make them match"
        )
    if network and all(each.network_id != network for each in topology.subnets):
        raise Misconfigured(
            f"{network_place}: no network {one_line(network)} with a subnet is visible. Networks: "
            "openstack network list"
        )
    return network, subnet or detected


def _member_subnet(
    request: NetworkRequest,
    config: LoadBalancer,
    classes: Mapping[str, LoadBalancerClass],
    topology: Topology,
) -> str:
    value, place = _first(_annotation_first(request, config, classes), "member-subnet-id")
    _check_subnet(value, place, topology)
    return value


def _check_subnet(subnet_id: str, place: str, topology: Topology) -> None:
    if not subnet_id or topology.subnet(subnet_id):
        return
    raise Misconfigured(
        f"{place}: no subnet {one_line(subnet_id)} is visible. Subnets: openstack subnet list"
    )


def _floating(sources: tuple[_Source, ...], topology: Topology) -> FloatingChoice:
    external = {each.id: each for each in topology.external}
    network, place = _first(sources, "floating-network-id")
    if network and network not in external:
        return FloatingChoice(
            problem=f"{place}: {one_line(network)} is not an external network. External networks: "
            "openstack network list --external"
        )
    notice = ""
    if not network:
        usable = sorted(each.id for each in topology.external if _has_ipv4(each, topology))
        network = next(iter(usable), "")
        if len(usable) > 1:
            notice = (
                f"{len(usable)} external networks, and floating-network-id is not set: floating "
                "IPs are created in that with the first ID. Fix: set floating-network-id in "
                f"[LoadBalancer] of cloud.conf, or annotation {PREFIX}floating-network-id. "
                "Networks: openstack network list --external --sort-column ID"
            )
    try:
        subnets = _floating_subnets(sources, network, topology)
    except Misconfigured as error:
        return FloatingChoice(network_id=network, problem=str(error), notice=notice)
    return FloatingChoice(network_id=network, subnet_ids=subnets, notice=notice)


def _has_ipv4(network: Network, topology: Topology) -> bool:
    """Subnets that are not visible may be of IPv4."""
    found = (topology.subnet(each) for each in network.subnets)
    return any(each is None or each.ip_version == 4 for each in found)  # noqa: PLR2004 -- IPv4


def _floating_subnets(
    sources: tuple[_Source, ...], network: str, topology: Topology
) -> tuple[str, ...]:
    """Returns the subnets that the first source with any of the three keys allows."""
    keys = ("floating-subnet-id", "floating-subnet", "floating-subnet-tags")
    for each in sources:
        subnet_id, pattern, tags = (_first([each], key)[0] for key in keys)
        if subnet_id:
            return (_checked_floating_subnet(subnet_id, each.name(keys[0]), network, topology),)
        if pattern or tags:
            place = each.name(keys[1] if pattern else keys[2])
            return _matching(pattern, tags, place, network, topology)
    return ()


def is_allowed(
    values: LoadBalancerClass, network: str, address: str, subnets: tuple[Subnet, ...]
) -> bool:
    """Whether a floating IP of an external network is in a subnet that the keys allow.

    It counts as allowed if its subnet is not visible.
    """
    inside = [
        each.id
        for each in subnets
        if each.network_id == network and ip_address(address) in ip_network(each.cidr)
    ]
    try:
        allowed = _floating_subnets((_Source(values, "{}"),), network, Topology(subnets))
    except Misconfigured:
        allowed = ()
    return not inside or not frozenset(inside).isdisjoint(allowed)


def _checked_floating_subnet(subnet_id: str, place: str, network: str, topology: Topology) -> str:
    """Subnets of external networks are not visible in every cloud: an unknown ID is passed on."""
    known = topology.subnet(subnet_id)
    if known and network and known.network_id != network:
        raise Misconfigured(
            f"{place}: subnet {one_line(subnet_id)} is not in the network of floating IPs"
        )
    return subnet_id


def _matching(
    pattern: str, tags: str, place: str, network: str, topology: Topology
) -> tuple[str, ...]:
    try:
        has_name, has_tags = name_pattern(pattern or "*"), tag_filter(tags)
    except ValueError as error:
        raise Misconfigured(f"{place}: invalid pattern: {error}") from error
    inside = [each for each in topology.subnets if each.network_id == network]
    found = [each for each in inside if has_name(each.name) and (not tags or has_tags(each))]
    if not found:
        what = " and ".join(quoted(each) for each in (pattern, tags) if each)
        raise Misconfigured(
            f"{place}: no subnet of the network of floating IPs matches {what}. Subnets: openstack "
            "subnet list --network NETWORK"
        )
    return tuple(each.id for each in sorted(found, key=lambda each: (each.name, each.id)))


def tag_filter(spec: str) -> Callable[[Subnet], bool]:
    """Returns whether a subnet has one of the tags; all after `&`. A leading `!` negates.

    Raises ValueError if it is too long.
    """
    if len(spec) > LONGEST_TAGS:
        raise ValueError(f"{len(spec)} characters, more than {LONGEST_TAGS}")
    negated = spec.startswith("!")
    rest = spec.removeprefix("!")
    asked = {each.strip() for each in rest.removeprefix("&").split(",")} - {""}
    needs_all = rest.startswith("&")

    def matches(subnet: Subnet) -> bool:
        has = asked & set(subnet.tags)
        return (has == asked if needs_all else bool(has)) != negated

    return matches


def _unknown_class(name: str, classes: Iterable[str]) -> str:
    known = ", ".join(sorted(classes)) or "none"
    return (
        f"annotation {PREFIX}class: unknown class {quoted(name)}{did_you_mean(name, classes)}. "
        'Fix: add a section [LoadBalancerClass "NAME"] to cloud.conf, or use one of its classes: '
        f"{known}"
    )


def is_of_family(address: str, family: str) -> bool:
    try:
        return ip_address(address).version == (6 if family == "IPv6" else 4)
    except ValueError:
        return False
