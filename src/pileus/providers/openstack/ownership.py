"""Whose an Octavia load balancer is, and which ones of the Go program may be taken over. Pure.

A load balancer may serve several Services: it has one mark of the cluster, and for each Service a
mark with its UID and the tag of the Go program, which is the name of that Service's load balancer.
Names and the Go program's tags are never proof: another cluster may have the same `--cluster-name`.
Proof is one of:

- the mark of this cluster and Service;
- the annotation `load-balancer-id` of the Service, which the Go program writes (`Wish.adopts`);
- an address that is published in the status of the Service.

For the last two, a load balancer of the Go program must also have a member of this cluster, or
none at all: annotations and names survive in copies of Services, and addresses in restored ones.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from pileus.cloud.balancer import Owner, Wish
from pileus.cloud.fingerprint import usual_address
from pileus.dataclass import dataclass
from pileus.providers.openstack.desired import PREFIX, balancer_name, legacy_name
from pileus.providers.openstack.marks import CLUSTER, SERVICE, tags_of
from pileus.providers.openstack.octavia import Listener, LoadBalancer, Pool, Provisioning

SPEC = "pileus.dev/spec="
CHANGING = "changing"
"""Value of the `SPEC` tag while something is changed: the load balancer was complete before."""
TRANSPORTS = {"UDP": "UDP", "SCTP": "SCTP"}
"""Protocols that do not use TCP: on one port, each transport can have one listener."""


def cluster_of(tags: Iterable[str]) -> str:
    """Returns the cluster in the mark; empty if there is none."""
    return next((tag.removeprefix(CLUSTER) for tag in tags if tag.startswith(CLUSTER)), "")


def services_of(tags: Iterable[str]) -> frozenset[str]:
    """Returns the UIDs of the Services in the marks."""
    return frozenset(tag.removeprefix(SERVICE) for tag in tags if tag.startswith(SERVICE))


def go_tags(tags: Iterable[str]) -> frozenset[str]:
    """Returns the tags of the Go program: one for each Service that uses the load balancer."""
    return frozenset(tag for tag in tags if tag.startswith(PREFIX))


def belongs_to(tags: Iterable[str], owner: Owner) -> bool:
    known = frozenset(tags)
    return known >= frozenset(tags_of(owner))


def marked_for(owner: Owner, balancers: Iterable[LoadBalancer]) -> list[LoadBalancer]:
    """Returns the load balancers with the owner's mark, the oldest first."""
    ours = (one for one in balancers if belongs_to(one.tags, owner))
    return sorted(ours, key=lambda one: (one.created_at or "", one.id))


def twins_of(ours: Sequence[LoadBalancer]) -> tuple[LoadBalancer, ...]:
    """Returns all but the oldest of several load balancers that serve this Service alone."""
    return tuple(one for one in ours[1:] if len(services_of(one.tags)) == 1)


def may_serve(part: Listener | Pool, owner: Owner) -> bool:
    """Whether a part has the mark of the Service, or none."""
    services = services_of(part.tags)
    return not services or owner.uid in services


def shown_owner(balancer: LoadBalancer, owner: Owner) -> Owner | None:
    """Returns the asking owner if the load balancer has its mark, else the first other one."""
    if belongs_to(balancer.tags, owner):
        return owner
    cluster, services = cluster_of(balancer.tags), sorted(services_of(balancer.tags))
    return Owner(cluster, services[0]) if cluster and services else None


def is_gone(balancer: LoadBalancer) -> bool:
    return balancer.provisioning_status == Provisioning.DELETED


def transport_of(protocol: str) -> str:
    """Returns the transport of a listener's protocol: HTTP and TERMINATED_HTTPS use TCP, too."""
    return TRANSPORTS.get(protocol, "TCP")


def was_created_for_services(balancer: LoadBalancer) -> bool:
    """Whether this program or the Go program created it. Others are never deleted."""
    name = balancer.name or ""
    return name.startswith(PREFIX) or _is_legacy(name)


def _is_legacy(name: str) -> bool:
    digits = name.removeprefix("a")
    return len(name) == len("a") + 31 and all(one in "0123456789abcdef" for one in digits)


def is_primary(balancer: LoadBalancer, name: str, owner: Owner) -> bool:
    """Whether the load balancer was created for this Service, and not for another one."""
    return balancer.name in {name, legacy_name(owner)}


class Claim(StrEnum):
    """Whether an unmarked load balancer of the Go program is this Service's."""

    PROVEN = "proven"
    AMBIGUOUS = "ambiguous"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An unmarked load balancer with the name or the tag of this Service's."""

    balancer: LoadBalancer
    addresses: frozenset[str]
    """Its VIPs and floating IPs."""
    members: frozenset[str]
    """Addresses of all its members."""

    def claim(self, wish: Wish) -> Claim:
        ours = frozenset(
            usual_address(one.address)
            for node in (wish.spec.members if wish.spec else ())
            for one in node.addresses
        )
        if self.members and not self.members & ours:
            return Claim.FOREIGN
        published = frozenset(map(usual_address, wish.published))
        if self.balancer.id == wish.adopts or published & self.addresses:
            return Claim.PROVEN
        return Claim.AMBIGUOUS


def candidates_of(
    wish: Wish, balancers: Sequence[LoadBalancer], cluster_name: str
) -> tuple[LoadBalancer, ...]:
    """Returns the unmarked load balancers that may be this Service's by name or tag."""
    if not wish.service:
        return ()
    name = balancer_name(wish, cluster_name)
    names = {name, legacy_name(wish.owner)}
    return tuple(
        one
        for one in balancers
        if (one.name in names or name in one.tags) and not cluster_of(one.tags) and not is_gone(one)
    )


def addresses_of(balancer: LoadBalancer, floating: Iterable[str] = ()) -> frozenset[str]:
    vips = (balancer.vip_address, *(one.ip_address for one in balancer.additional_vips))
    return frozenset(usual_address(one) for one in (*vips, *floating) if one)


def is_mine(listener: Listener, balancer: LoadBalancer, name: str, owner: Owner) -> bool:
    """Whether the listener serves this Service.

    One without tags of the Go program was created by an old one, for the Service of the load
    balancer. One with the mark of a Service that no longer uses the load balancer is left from
    before a restore.
    """
    if belongs_to(listener.tags, owner):
        return True
    marked = services_of(listener.tags)
    if marked:
        is_stale = not marked & services_of(balancer.tags)
        return is_stale and cluster_of(listener.tags) == owner.cluster
    if name in listener.tags:
        return True
    return not go_tags(listener.tags) and is_primary(balancer, name, owner)
