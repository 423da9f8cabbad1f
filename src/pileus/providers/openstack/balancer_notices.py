"""What the manager tells users about a load balancer besides its state. Pure."""

from collections.abc import Iterator, Mapping

from pileus.cloud.balancer import Notice, Wish
from pileus.providers.openstack import annotations, floating_ip
from pileus.providers.openstack.balancer_plan import floating_spec
from pileus.providers.openstack.balancer_seen import Seen, members_down
from pileus.providers.openstack.desired import Desired
from pileus.providers.openstack.networks import FloatingChoice
from pileus.providers.openstack.octavia import LoadBalancer

IN_EFFECT = (
    (annotations.SUBNET_ID, "vip_subnet_id"),
    (annotations.NETWORK_ID, "vip_network_id"),
    (annotations.PORT_ID, "vip_port_id"),
    (annotations.FLAVOR_ID, "flavor_id"),
    (annotations.AVAILABILITY_ZONE, "availability_zone"),
)
"""Annotations that are only used at creation, and where the value in effect is seen."""


def name_taken() -> Notice:
    """It does not say which one: it is not the Service's."""
    return Notice(
        "LoadBalancerNameTaken",
        "a load balancer has the same name, but none of its members is a node of this cluster. It "
        "is not used, and this Service gets one of its own",
        is_warning=True,
    )


def notices_of(wish: Wish, desired: Desired, seen: Seen) -> Iterator[Notice]:
    found = seen.found
    if found is None:
        return
    yield from members_down(wish, seen)
    spec = floating_spec(desired, FloatingChoice(), may_attach=True)
    ignored = floating_ip.ignored_address(spec, found.vip_port_id or "", seen.floating_ips)
    if ignored:
        yield Notice("LoadBalancerIPIgnored", ignored, is_warning=True)
    if wish.adopts and wish.adopts != found.id:
        yield Notice(
            "LoadBalancerIDIgnored",
            f"annotation {annotations.LOAD_BALANCER_ID.name}={wish.adopts} has no effect: the "
            f"Service already has load balancer {found.id}. To move it, delete the Service and "
            "create it again",
            is_warning=True,
        )


def in_effect(wish: Wish, balancer: LoadBalancer | None) -> Mapping[str, str]:
    """Returns the values of annotations at creation, where the Service still asks for some."""
    if balancer is None or wish.options.get(annotations.CLASS.name):
        return {}
    return {
        option.name: str(getattr(balancer, attribute) or "")
        for option, attribute in IN_EFFECT
        if wish.options.get(option.name)
    }
