"""What the manager tells users about a load balancer besides its state. Pure."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from pileus.cloud.balancer import Notice, Wish
from pileus.fix import one_line
from pileus.providers.openstack import annotations, floating_ip, networks
from pileus.providers.openstack.balancer_plan import floating_spec
from pileus.providers.openstack.balancer_seen import Seen, is_pending, members_down
from pileus.providers.openstack.config import LoadBalancerClass
from pileus.providers.openstack.desired import Desired
from pileus.providers.openstack.marks import for_tag
from pileus.providers.openstack.networks import FloatingChoice
from pileus.providers.openstack.neutron import FloatingIp, Subnet
from pileus.providers.openstack.octavia import LoadBalancer
from pileus.providers.openstack.ownership import may_fill
from pileus.providers.openstack.port_plan import families_of, key_of

Classes: TypeAlias = Mapping[str, LoadBalancerClass]
OTHERWISE = ""
"""Stands for a value that is not the one that the Service asks for, and not known."""
IN_EFFECT = (
    (annotations.SUBNET_ID, "vip_subnet_id"),
    (annotations.NETWORK_ID, "vip_network_id"),
    (annotations.PORT_ID, "vip_port_id"),
    (annotations.FLAVOR_ID, "flavor_id"),
    (annotations.AVAILABILITY_ZONE, "availability_zone"),
)
"""Annotations that are only used at creation, and where the value in effect is seen."""


def notices_of(wish: Wish, desired: Desired, seen: Seen) -> Iterator[Notice]:
    found = seen.found
    if found is None:
        yield from _members_of_others(wish, desired, seen)
        return
    yield from members_down(wish, seen, desired.name)
    spec = floating_spec(desired, FloatingChoice(), may_attach=True)
    ignored = floating_ip.ignored_address(spec, found.vip_port_id or "", seen.floating_ips)
    if ignored:
        yield Notice("LoadBalancerIPIgnored", ignored, is_warning=True)
    if not is_pending(found) and (notice := _missing_families(desired, found)):
        yield notice
    if wish.adopts and wish.adopts != found.id:
        yield Notice(
            "LoadBalancerIDIgnored",
            f"annotation {annotations.LOAD_BALANCER_ID.name}={one_line(wish.adopts)} has no "
            f"effect: the Service already has load balancer {found.id}. To move it, delete the "
            "Service and create it again",
            is_warning=True,
        )


def _missing_families(desired: Desired, found: LoadBalancer) -> Notice | None:
    """Returns a warning if the Service asks for an IP family that the load balancer lacks.

    Octavia takes VIPs only in the request that creates a load balancer.
    """
    present = families_of(found)
    missing = [one for one in desired.families if one not in present]
    if not missing or not present:
        return None
    return Notice(
        "LoadBalancerIPFamilyIgnored",
        f"the Service asks for {' and '.join(missing)}, but load balancer {found.id} was created "
        f"with {' and '.join(sorted(present))} only and keeps its address: Octavia cannot add "
        "another one. To get all families, delete the Service and create it again",
        is_warning=True,
    )


def _members_of_others(wish: Wish, desired: Desired, seen: Seen) -> Iterator[Notice]:
    """Yields which ports of a load balancer of others keep their members.

    No warning: `pileus.dev/manage: observe` asks for nothing else.
    """
    named, parts = seen.named, seen.parts
    if named is None or parts is None or not wish.only_members or may_fill(wish, named, seen.use):
        return
    own = parts.of(named, desired.name, wish.owner).listeners
    kept = {key_of(one) for one in parts.listeners} - {key_of(one) for one in own}
    labels = [one.label for one in desired.ports if (one.port, one.transport.value) in kept]
    if labels:
        yield Notice(
            "LoadBalancerMembersOfOthers",
            f"members of port {', '.join(labels)} are not changed: the port belongs to something "
            "else, such as another Service. To let this Service change them, an operator can add "
            f"the namespace to --trusted-namespaces, or run: openstack loadbalancer set --tag "
            f"{for_tag(wish.owner.cluster, wish.namespace, wish.service)} {named.id}",
        )


def in_effect(
    wish: Wish, desired: Desired, seen: Seen, classes: Classes, subnets: tuple[Subnet, ...]
) -> Mapping[str, str]:
    """Returns the values of annotations at creation, where the Service still asks for some.

    `subnets`: those of external networks; empty: not read, so that they tell nothing.
    """
    balancer, class_name = seen.subject, desired.request.class_name
    if balancer is None:
        return {}
    found: dict[str, str] = {}
    if not class_name:
        found = {
            option.name: str(getattr(balancer, attribute) or "")
            for option, attribute in IN_EFFECT
            if wish.options.get(option.name)
        }
    of_class = classes.get(class_name, LoadBalancerClass())
    floating = seen.floating_ips.on(balancer.vip_port_id or "")
    facts = list(_vip_facts(desired, balancer, of_class))
    if floating is not None and desired.has_floating_ip and not desired.requested_address:
        facts += _floating_facts(desired, floating, of_class, subnets)
    for name, is_so in facts:
        asked = wish.options.get(name, "")
        found[name] = asked if is_so and found.get(name, asked) == asked else OTHERWISE
    return found


def _vip_facts(
    desired: Desired, balancer: LoadBalancer, of_class: LoadBalancerClass
) -> Iterator[tuple[str, bool]]:
    """Yields whether the VIP is where the class says, unless an annotation decides."""
    asked = desired.request.asked if desired.is_internal else LoadBalancerClass()
    if desired.request.port_id or asked.subnet_id or asked.network_id:
        return
    for wanted, current in (
        (of_class.subnet_id, balancer.vip_subnet_id),
        (of_class.network_id, balancer.vip_network_id),
    ):
        if wanted:
            yield annotations.CLASS.name, wanted == current


def _floating_facts(
    desired: Desired,
    floating: FloatingIp,
    of_class: LoadBalancerClass,
    subnets: tuple[Subnet, ...],
) -> Iterator[tuple[str, bool]]:
    """Yields annotations that decide about the floating IP, and whether it is as they say.

    The class wins over the other annotations.
    """
    sources = ((annotations.CLASS.name, of_class), ("", desired.request.asked))
    network, address = floating.floating_network_id, floating.floating_ip_address
    by_network = [(place, one) for place, one in sources if one.floating_network_id]
    for place, one in by_network[:1]:
        name = place or annotations.FLOATING_NETWORK_ID.name
        yield name, one.floating_network_id == network
    by_subnet = [(place, one, names) for place, one in sources if (names := _subnet_names(one))]
    for place, one, names in by_subnet[:1]:
        is_so = networks.is_allowed(one, network, address, subnets)
        yield from ((place or name, is_so) for name in names)


def _subnet_names(values: LoadBalancerClass) -> tuple[str, ...]:
    """Returns the annotations of the keys about subnets that count: the ID wins."""
    if values.floating_subnet_id:
        return (annotations.FLOATING_SUBNET_ID.name,)
    pairs = (
        (annotations.FLOATING_SUBNET.name, values.floating_subnet),
        (annotations.FLOATING_SUBNET_TAGS.name, values.floating_subnet_tags),
    )
    return tuple(name for name, value in pairs if value)


def asks_for_subnets(wish: Wish, classes: Classes) -> bool:
    """Whether an annotation of the Service decides about the subnet of its floating IP."""
    options = (
        annotations.FLOATING_SUBNET_ID,
        annotations.FLOATING_SUBNET,
        annotations.FLOATING_SUBNET_TAGS,
    )
    of_class = classes.get(wish.options.get(annotations.CLASS.name, ""), LoadBalancerClass())
    return bool(_subnet_names(of_class)) or any(wish.options.get(one.name) for one in options)
