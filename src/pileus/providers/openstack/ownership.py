"""Whose an Octavia load balancer is, and what a Service may use of others. Pure.

A load balancer may serve several Services: it has one mark of the cluster, and for each Service a
mark with its UID and the tag of the Go program, which is the name of that Service's load balancer.
The author of a Service chooses its name and annotations, and another cluster may have the same
`--cluster-name`: names, the Go program's tags and annotations are never proof. Proof is one of:

- the mark of this cluster and Service;
- the Go program's name or tag for this Service together with an address that is published in the
  status of the Service, which its author cannot set;
- the Go program's name or tag for this Service together with the tag
  `pileus.dev/for=CLUSTER/NAMESPACE/SERVICE`, which an operator gave it;
- the Go program's tag for this Service together with the mark of this cluster, if the Service was
  created again and names it;
- the Go program's name or tag for this Service together with a status that has no address but host
  names, if the Service names it and its namespace is trusted (`--trusted-namespaces`).

Members prove nothing: nodes are replaced, and clusters may use the same addresses. While one with
the Go program's name or tag for this Service has no proof and no mark of another cluster, it is not
used, and no other one is created.

Another load balancer that a Service names is used only as `Use.GUEST`, and only if all Services on
it are of the same namespace and cluster, if an operator gave it the tag
`pileus.dev/for=CLUSTER/NAMESPACE/SERVICE`, or if the namespace is trusted (`--trusted-namespaces`).
A guest gets listeners on free ports and decides nothing else. Members of other listeners are
changed (`pileus.dev/manage: members`) only with one of the two permissions of an operator: that the
namespace is the same is none.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from ipaddress import ip_address

from pileus.cloud.balancer import Owner, Wish, foreign_refused
from pileus.cloud.errors import Misconfigured
from pileus.cloud.fingerprint import usual_address
from pileus.providers.openstack.annotations import LOAD_BALANCER_ID
from pileus.providers.openstack.desired import PREFIX, balancer_name, legacy_name
from pileus.providers.openstack.marks import CLUSTER, CREATED, SERVICE, for_tag, tags_of
from pileus.providers.openstack.octavia import Listener, LoadBalancer, Pool, Provisioning

SPEC = "pileus.dev/spec="
CHANGING = "changing"
"""Value of the `SPEC` tag while something is changed: the load balancer was complete before."""
LONGEST_NAME = 255
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
    """Returns all but the oldest of several that were created for a Service and serve it alone."""
    return tuple(
        one
        for one in ours[1:]
        if creator_of(one.tags) and len(services_of(one.tags)) == 1 and len(go_tags(one.tags)) <= 1
    )


def may_serve(part: Listener | Pool, balancer: LoadBalancer, owner: Owner) -> bool:
    """Whether a part has the mark of the Service, or of none that uses the load balancer.

    The latter is left from before a restore of the cluster.
    """
    services = services_of(part.tags)
    if not services or owner.uid in services:
        return True
    is_left = not services & services_of(balancer.tags)
    return is_left and cluster_of(part.tags) == owner.cluster


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


def creator_of(tags: Iterable[str]) -> str:
    """Returns the UID of the Service that the load balancer was created for; "": not by us."""
    return next((tag.removeprefix(CREATED) for tag in tags if tag.startswith(CREATED)), "")


def was_created(balancer: LoadBalancer, cluster: str) -> bool:
    """Whether it was created for a Service of this cluster. Others are never deleted."""
    return cluster_of(balancer.tags) == cluster and bool(creator_of(balancer.tags))


def is_primary(balancer: LoadBalancer, owner: Owner) -> bool:
    """Whether the Service decides about the load balancer.

    It was created for it, or the Service is the last one on it.
    """
    if not was_created(balancer, owner.cluster):
        return False
    others = services_of(balancer.tags) - {owner.uid}
    is_alone = not others and len(go_tags(balancer.tags)) <= 1
    return is_alone or creator_of(balancer.tags) == owner.uid


def service_in(name: str) -> tuple[str, str, str] | None:
    """Returns cluster name, namespace and Service in a name or tag of the Go program.

    None if it is none, or so long that it may be cut.
    """
    if not name.startswith(PREFIX) or len(name.encode()) >= LONGEST_NAME:
        return None
    match name.removeprefix(PREFIX).rsplit("_", 2):
        case [cluster, namespace, service]:
            return cluster, namespace, service
        case _:
            return None


class Use(StrEnum):
    """What a Service may do with a load balancer that does not have its mark."""

    OWN = "own"
    """It is proven to be this Service's: everything on it that has its tags is taken over."""
    GUEST = "guest"
    """It belongs to others: the Service gets listeners on free ports."""


def may_fill(wish: Wish, balancer: LoadBalancer, use: Use) -> bool:
    """Whether the Service may change members of ports that are not its own."""
    return use is Use.OWN or is_permitted(wish, balancer)


def is_proven(wish: Wish, balancer: LoadBalancer, addresses: frozenset[str]) -> bool:
    """Whether a candidate is this Service's own; see the proofs at the top.

    `addresses`: its VIPs and floating IPs, and the host names that are published instead of them.
    An annotation may be a copy: it counts only with what no copy has, the mark of this cluster or
    a status. A host name that the author chose is published instead of any address.
    """
    published = frozenset(map(usual_address, wish.published))
    is_named = balancer.id == wish.adopts
    if published & addresses or _has_permit(wish, balancer):
        return True
    if is_named and cluster_of(balancer.tags) == wish.owner.cluster:
        return True
    has_host_name = bool(published) and not any(map(_is_address, published))
    return is_named and wish.may_use_foreign and has_host_name


def candidates_of(
    wish: Wish, balancers: Sequence[LoadBalancer], cluster_name: str
) -> tuple[LoadBalancer, ...]:
    """Returns the load balancers that may be this Service's by name or tag.

    Of those with the mark of this cluster only one that the Service names or has the address of
    counts: the former Service of this name may be about to be deleted with its own.
    """
    if not wish.service:
        return ()
    name = balancer_name(wish, cluster_name)
    names = {name, legacy_name(wish.owner)}

    def is_candidate(one: LoadBalancer) -> bool:
        match cluster_of(one.tags):
            case "":
                # One without the tag that has the record of its creation was left to others.
                return name in one.tags or (one.name in names and not creator_of(one.tags))
            case wish.owner.cluster:
                return name in one.tags and bool(one.id == wish.adopts or wish.published)
            case _:
                return False

    return tuple(one for one in balancers if is_candidate(one) and not is_gone(one))


def is_permitted(wish: Wish, balancer: LoadBalancer) -> bool:
    """Whether an operator lets the Service use a load balancer of others."""
    return wish.may_use_foreign or _has_permit(wish, balancer)


def refused(wish: Wish) -> Misconfigured:
    """Returns the refusal of a load balancer that the Service names and may not use.

    It is the same whether the load balancer exists or not, and names all that may be needed.
    """
    tag = for_tag(wish.owner.cluster, wish.namespace, wish.service)
    more = (
        ". If it was created for a Service of this name, that is not enough, and the operator has "
        f"to run: openstack loadbalancer set --tag {tag} ID"
    )
    return foreign_refused(wish, LOAD_BALANCER_ID.name, more if tag else "")


def _has_permit(wish: Wish, balancer: LoadBalancer) -> bool:
    """Whether an operator gave the load balancer the tag for this Service of this cluster."""
    permit = for_tag(wish.owner.cluster, wish.namespace, wish.service)
    return bool(permit) and permit in balancer.tags


def _is_address(text: str) -> bool:
    try:
        return bool(ip_address(text))
    except ValueError:
        return False


def may_be_guest(wish: Wish, balancer: LoadBalancer) -> bool:
    """Whether the Service may use a load balancer that it names and that is not proven its own."""
    cluster = cluster_of(balancer.tags)
    if cluster not in {"", wish.owner.cluster}:
        return False
    if is_permitted(wish, balancer):
        return True
    # One that is not the cluster's may have guests of one namespace by a permission for these.
    is_ours = was_created(balancer, wish.owner.cluster)
    users = [service_in(tag) for tag in go_tags(balancer.tags)]
    is_known = len(services_of(balancer.tags)) <= len(users)
    neighbours = all(one is not None and one[1] == wish.namespace for one in users)
    return bool(is_ours and users and wish.namespace) and is_known and neighbours


def addresses_of(balancer: LoadBalancer, floating: Iterable[str] = ()) -> frozenset[str]:
    vips = (balancer.vip_address, *(one.ip_address for one in balancer.additional_vips))
    return frozenset(usual_address(one) for one in (*vips, *floating) if one)


def is_mine(listener: Listener, balancer: LoadBalancer, name: str, owner: Owner) -> bool:
    """Whether the listener serves this Service.

    One with the mark of a Service that no longer uses the load balancer, and the tag of this
    Service, is left from before a restore. One without tags of the Go program was created by an old
    one, for the Service that the load balancer was created for.
    """
    if belongs_to(listener.tags, owner):
        return True
    marked, mine = services_of(listener.tags), service_in(name)
    if marked:
        is_stale = not marked & services_of(balancer.tags)
        names = {service_in(tag) for tag in go_tags(listener.tags)}
        is_same = mine is not None and mine[1:] in {one[1:] for one in names if one}
        is_named = is_same or name in listener.tags
        return is_stale and is_named and cluster_of(listener.tags) == owner.cluster
    if name in listener.tags:
        return len(name.encode()) < LONGEST_NAME  # one that is cut may be that of another Service
    return not go_tags(listener.tags) and creator_of(balancer.tags) == owner.uid
