"""The floating IP of a load balancer: found, attached, created, marked, released.

    found = FloatingIps(await neutron.floating_ips())                 # one list for all Services
    own = found.of(spec, vip_port_id)
    for change in plan(spec, vip_port_id, own):                       # pure
        own = await apply(neutron, change, own)                       # one or two requests
    published = own.on(vip_port_id)

The mark of an owner (`marks`) on a floating IP means: delete it together with the Service. It is
missing on floating IPs that the user created, named in `spec.loadBalancerIP`, or keeps (annotation
`keep-floatingip`, tag `pileus.dev/keep=true`): these are attached and detached, and never deleted.
One that is named and looks as if it was created for the Service gets that tag. One that is kept is
reserved for the Service by the tag `pileus.dev/for`: its description has the name of the cluster,
which other clusters may have, too.

Neutron cannot create a floating IP with tags. So it is created on the VIP port, with the
description of the Go cloud-controller-manager, and marked by a second request. If the process dies
in between, the floating IP is on the VIP port of the Service's own load balancer and has its
description: that is the proof by which it is marked later. The same proof marks the floating IPs of
a cluster that is taken over.
"""

import shlex
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field
from functools import cached_property

from pileus.cloud.balancer import Effect, Owner, Part
from pileus.cloud.errors import (
    CloudError,
    Conflict,
    Misconfigured,
    NotFound,
    QuotaExceeded,
    Rejected,
    Unauthorized,
)
from pileus.cloud.fingerprint import usual_address
from pileus.dataclass import dataclass
from pileus.fix import one_line
from pileus.providers.openstack.marks import (
    FOR,
    KEPT,
    cut,
    is_marked,
    owner_of,
    tags_of,
    without_mark,
)
from pileus.providers.openstack.networks import FloatingChoice
from pileus.providers.openstack.neutron import FloatingIp, Neutron


def description_of(namespace: str, service: str, cluster_name: str) -> str:
    """Returns the description that the Go cloud-controller-manager gives to a floating IP."""
    return cut(
        f"Floating IP for Kubernetes external service {namespace}/{service} "
        f"from cluster {cluster_name}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIpSpec:
    """The desired state of a Service's floating IP."""

    owner: Owner
    description: str = ""
    """See `description_of`. Empty if the Service is not known: only the mark is a proof then."""
    former: str = ""
    """The description that one has which was created together with the load balancer, for a Service
    that may be deleted by now; empty: not known."""
    users: frozenset[str] = frozenset()
    """UIDs of the Services on the load balancer; empty: not known."""
    permits: tuple[str, ...] = ()
    """Tags of floating IPs that an operator reserved for the Service; see `marks.for_tags`."""
    may_use_foreign: bool = False
    """Whether the Service may use any free floating IP (`--trusted-namespaces`)."""
    is_wanted: bool = True
    """False: the Service is internal, or it is being deleted."""
    is_kept: bool = False
    """Annotation `keep-floatingip`: it is never deleted."""
    address: str = ""
    """`spec.loadBalancerIP`; empty: any."""
    choice: FloatingChoice = field(default_factory=FloatingChoice)
    may_attach: bool = True
    """False: the load balancer belongs to another Service, which alone decides about it."""
    detaches: bool = True
    """False: the load balancer is deleted next, which detaches what is not deleted."""
    heir: Owner | None = None
    """Another Service that keeps the load balancer, and gets the floating IP with it."""
    is_left_to_others: bool = False
    """Whether others keep the load balancer with what is on it, who are not of this cluster."""

    @property
    def reservation(self) -> str:
        """The tag that reserves a floating IP for this Service alone; empty: it is not known."""
        return self.permits[0] if self.permits else ""


@dataclass(frozen=True, slots=True)
class CreateFloatingIp:
    """Create one on the VIP port."""

    description: str
    network_id: str
    subnet_ids: tuple[str, ...]
    """Tried in order; empty: any subnet."""
    address: str
    port_id: str
    owner: Owner | None
    """None: the user keeps it, it gets no mark."""
    reserved_for: str = ""
    """The tag that reserves one for the Service, which one without a mark gets."""

    part = Part.WHOLE
    effect = Effect.CREATE

    @property
    def summary(self) -> str:
        return f"floating IP {one_line(self.address or f'from network {self.network_id}')}"


@dataclass(frozen=True, slots=True)
class AttachFloatingIp:
    floating_ip: FloatingIp
    port_id: str

    part = Part.WHOLE
    effect = Effect.UPDATE

    @property
    def summary(self) -> str:
        return f"attach floating IP {self.floating_ip.floating_ip_address}"


@dataclass(frozen=True, slots=True)
class DetachFloatingIp:
    floating_ip: FloatingIp

    part = Part.WHOLE
    effect = Effect.UPDATE

    @property
    def summary(self) -> str:
        return f"detach floating IP {self.floating_ip.floating_ip_address}"


@dataclass(frozen=True, slots=True)
class MarkFloatingIp:
    """Record whether it is deleted together with the Service."""

    floating_ip: FloatingIp
    owner: Owner | None
    """None: remove the mark."""
    reserved_for: str = ""
    """The tag that one gets whose mark is removed."""

    part = Part.WHOLE
    effect = Effect.UPDATE

    @property
    def summary(self) -> str:
        address = self.floating_ip.floating_ip_address
        return f"tags of floating IP {address}" if self.owner else f"keep floating IP {address}"


@dataclass(frozen=True, slots=True)
class KeepFloatingIp:
    """Record that it is never deleted: the user named it in `spec.loadBalancerIP`."""

    floating_ip: FloatingIp

    part = Part.WHOLE
    effect = Effect.UPDATE

    @property
    def summary(self) -> str:
        return f"tags of floating IP {self.floating_ip.floating_ip_address}: keep it"


@dataclass(frozen=True, slots=True)
class DeleteFloatingIp:
    floating_ip: FloatingIp

    part = Part.WHOLE
    effect = Effect.DELETE

    @property
    def summary(self) -> str:
        return f"floating IP {self.floating_ip.floating_ip_address}"


FloatingIpChange = (
    CreateFloatingIp
    | AttachFloatingIp
    | DetachFloatingIp
    | MarkFloatingIp
    | KeepFloatingIp
    | DeleteFloatingIp
)


@dataclass(frozen=True)
class FloatingIps:
    """Floating IPs: all that are visible, or those that concern one Service."""

    found: tuple[FloatingIp, ...] = ()

    def of(self, spec: FloatingIpSpec, port_id: str) -> "FloatingIps":
        """Returns those on the VIP port, with the owner's mark, or with the requested address."""
        keys = (f"port {port_id}" if port_id else "", spec.owner, _address(spec.address))
        concerned = {one.id: one for key in keys if key for one in self._by_key[key]}
        return FloatingIps(tuple(concerned.values()))

    def on(self, port_id: str) -> FloatingIp | None:
        """Returns the floating IP of the VIP port."""
        there = (one for one in self.found if port_id and one.port_id == port_id)
        return min(there, key=lambda one: one.floating_ip_address, default=None)

    def owners(self, cluster: str) -> frozenset[Owner]:
        """Returns the owners in the cluster that any floating IP is marked with."""
        marks = (owner_of(one.tags) for one in self.found)
        return frozenset(each for each in marks if each and each.cluster == cluster)

    @cached_property
    def _by_key(self) -> "defaultdict[object, list[FloatingIp]]":
        index: defaultdict[object, list[FloatingIp]] = defaultdict(list)
        for one in self.found:
            index[f"port {one.port_id}"].append(one)
            index[owner_of(one.tags)].append(one)
            index[_address(one.floating_ip_address)].append(one)
        return index


def plan(spec: FloatingIpSpec, port_id: str, observed: FloatingIps) -> tuple[FloatingIpChange, ...]:
    """Returns the changes in order; empty if the floating IP matches the desired state.

    `port_id` is the VIP port; empty if there is no load balancer. Raises `Misconfigured` if the
    requested address is used by something else, or if no network is known for a new floating IP.
    """
    if not spec.is_wanted:
        return tuple(change for one in observed.found for change in _given_up(spec, one, port_id))
    current = observed.on(port_id)
    needed = None if current else _needed(spec, port_id, observed)
    used = needed.floating_ip if isinstance(needed, AttachFloatingIp) else current
    leftovers = [one for one in observed.found if one != used and one.port_id != port_id]
    return (
        *(_marking(spec, current) if current else ()),
        *((needed,) if needed and port_id else ()),
        *(change for one in leftovers for change in _given_up(spec, one, port_id)),
    )


def ignored_address(spec: FloatingIpSpec, port_id: str, observed: FloatingIps) -> str:
    """Returns why `spec.loadBalancerIP` has no effect; empty if it is in effect."""
    current = observed.on(port_id)
    if not spec.is_wanted or not spec.address or current is None or _has_address(spec, current):
        return ""
    return (
        f"loadBalancerIP {one_line(spec.address)} is ignored: the load balancer has floating IP "
        f"{current.floating_ip_address}. To change it, detach that one: openstack floating ip "
        f"unset --port {current.id}"
    )


async def apply(neutron: Neutron, change: FloatingIpChange, observed: FloatingIps) -> FloatingIps:
    """Make one change. Returns the floating IPs after it.

    Raises `Conflict` if the floating IP was changed since it was observed.
    """
    match change:
        case CreateFloatingIp():
            return FloatingIps((*observed.found, await _create(neutron, change)))
        case AttachFloatingIp(one, port_id):
            return _replaced(observed, one, await _set_port(neutron, one, port_id))
        case DetachFloatingIp(one):
            return _replaced(observed, one, await _set_port(neutron, one, None))
        case MarkFloatingIp(one, owner, reserved_for):
            kept = (tag for tag in without_mark(one.tags) if tag != reserved_for)
            tags = (*kept, *(tags_of(owner) if owner else filter(None, (reserved_for,))))
            return _replaced(observed, one, await neutron.tag("floatingips", one, tags))
        case KeepFloatingIp(one):
            return _replaced(
                observed, one, await neutron.tag("floatingips", one, (*one.tags, KEPT))
            )
        case DeleteFloatingIp(one):
            await neutron.delete("floatingips", one)
            return _replaced(observed, one, None)


def _marking(spec: FloatingIpSpec, current: FloatingIp) -> Iterator[FloatingIpChange]:
    is_ours = owner_of(current.tags) == spec.owner
    if is_ours and _is_kept(spec, current):
        yield MarkFloatingIp(current, None, spec.reservation)
    elif is_ours or not spec.may_attach or not _is_provable(spec, current):
        return
    elif _has_address(spec, current):
        yield KeepFloatingIp(current)
    elif not spec.is_kept:
        yield MarkFloatingIp(current, spec.owner)


def _is_kept(spec: FloatingIpSpec, one: FloatingIp) -> bool:
    return spec.is_kept or KEPT in one.tags


def _is_provable(spec: FloatingIpSpec, on_our_port: FloatingIp) -> bool:
    """Whether a floating IP on the Service's own VIP port was created for it.

    It has no mark, or that of a Service from before a restore, which is not on the load balancer.
    """
    owner = owner_of(on_our_port.tags)
    is_stale = (
        owner is not None
        and owner.cluster == spec.owner.cluster
        and bool(spec.users)
        and owner.uid not in spec.users
    )
    return (
        bool(on_our_port.description)
        and on_our_port.description in {spec.description, spec.former}
        and (is_stale or not is_marked(on_our_port.tags))
        and KEPT not in on_our_port.tags
    )


def _needed(
    spec: FloatingIpSpec, port_id: str, observed: FloatingIps
) -> AttachFloatingIp | CreateFloatingIp | None:
    """Returns how the VIP port gets a floating IP; None: the cloud has no external network."""
    existing = _reusable(spec, observed)
    if not existing and not spec.choice.network_id and not spec.choice.problem:
        return None
    if not spec.may_attach:
        raise Misconfigured(
            "the load balancer has no floating IP and belongs to another Service, which alone can "
            "get one. Fix: make that Service external, or this one internal"
        )
    if existing:
        return AttachFloatingIp(existing, port_id)
    if spec.choice.problem:
        raise Misconfigured(spec.choice.problem)
    return CreateFloatingIp(
        spec.description,
        spec.choice.network_id,
        () if spec.address else spec.choice.subnet_ids,
        spec.address,
        port_id,
        None if spec.is_kept else spec.owner,
        spec.reservation,
    )


def _reusable(spec: FloatingIpSpec, observed: FloatingIps) -> FloatingIp | None:
    """Returns the free floating IP with the requested address, else one that is marked as ours."""
    if spec.address:
        named = next((one for one in observed.found if _has_address(spec, one)), None)
        if not _is_available(spec, named):
            raise Misconfigured(_not_available(spec.address, spec.reservation))
        return named
    ours = (one for one in observed.found if owner_of(one.tags) == spec.owner and not one.port_id)
    return min(ours, key=lambda one: one.id, default=None)


def _is_available(spec: FloatingIpSpec, named: FloatingIp | None) -> bool:
    """Whether the Service may have the floating IP, or create one with the address if it is None.

    One without a mark is for it if it is reserved for it by a tag, or was created for a Service of
    this name in a cluster of this name and is reserved for none, as the Go program leaves it. One
    that does not exist is refused like one in use: whether it can be created is only known when the
    load balancer exists, by which the author of the Service would learn that no one has it.
    """
    if named is None:
        return spec.may_use_foreign
    is_ours = owner_of(named.tags) == spec.owner
    is_reserved = not frozenset(spec.permits).isdisjoint(named.tags)
    is_for_others = not is_reserved and any(tag.startswith(FOR) for tag in named.tags)
    is_former = bool(spec.description) and named.description == spec.description
    is_for_us = spec.may_use_foreign or is_reserved or (is_former and not is_for_others)
    return not named.port_id and (is_ours or (is_for_us and not is_marked(named.tags)))


def _not_available(address: str, reservation: str) -> str:
    """Returns why the Service does not get an address.

    The text is the same for all reasons: the author of the Service may be anyone, and learns
    neither that an address is in use nor by whom.
    """
    tag = reservation or f"{FOR}CLUSTER/NAMESPACE/SERVICE"
    shown = shlex.quote(one_line(address))
    return (
        f"loadBalancerIP {shown}: the floating IP does not exist, is in use, or not reserved for "
        "this Service. Fix: request another address, or ask an operator to free it or to create it "
        "(openstack floating ip create --floating-ip-address ADDRESS NETWORK), and to run: "
        f"openstack floating ip set --tag {tag} {shown} (or to add the namespace to "
        "--trusted-namespaces)"
    )


def _given_up(spec: FloatingIpSpec, one: FloatingIp, port_id: str) -> Iterator[FloatingIpChange]:
    """Returns how a floating IP that is not needed is given up.

    One with our mark on the port of something else was moved there by the user, who keeps it. A
    mark is removed before the floating IP is detached, so that nothing deletes it in between. One
    on a load balancer that other Services keep is deleted with one of these.
    """
    is_here = bool(port_id) and one.port_id == port_id
    is_ours = owner_of(one.tags) == spec.owner
    is_proven = is_here and spec.may_attach and _is_provable(spec, one)
    if spec.heir is not None and is_here and KEPT not in one.tags and (is_ours or is_proven):
        yield KeepFloatingIp(one) if spec.is_kept else MarkFloatingIp(one, spec.heir)
    elif is_ours and is_here and spec.is_left_to_others:
        yield MarkFloatingIp(one, None)
    elif is_ours and is_here and not spec.may_attach and not spec.is_kept:
        return  # the load balancer stays with others who use it, too
    elif is_ours and _is_kept(spec, one):
        yield MarkFloatingIp(one, None, spec.reservation)
    elif is_ours and one.port_id and not is_here:
        yield MarkFloatingIp(one, None)
    elif is_ours or (is_proven and not spec.is_kept and not _has_address(spec, one)):
        yield DeleteFloatingIp(one)
    elif is_here and spec.detaches and spec.may_attach:
        yield DetachFloatingIp(one)


def _has_address(spec: FloatingIpSpec, one: FloatingIp) -> bool:
    return bool(spec.address) and _address(spec.address) == _address(one.floating_ip_address)


def _address(text: str) -> str:
    return usual_address(text) if text else ""


def _replaced(observed: FloatingIps, old: FloatingIp, new: FloatingIp | None) -> FloatingIps:
    others = (one for one in observed.found if one.id != old.id)
    return FloatingIps((*others, *((new,) if new else ())))


async def _create(neutron: Neutron, change: CreateFloatingIp) -> FloatingIp:
    body = {
        "floating_network_id": change.network_id,
        "port_id": change.port_id,
        "description": change.description,
        **({"floating_ip_address": change.address} if change.address else {}),
    }
    created = await _create_in_any(neutron, change, body)
    tags = tags_of(change.owner) if change.owner else tuple(filter(None, (change.reserved_for,)))
    return await neutron.tag("floatingips", created, tags) if tags else created


async def _create_in_any(
    neutron: Neutron, change: CreateFloatingIp, body: dict[str, str]
) -> FloatingIp:
    """Try the subnets in order: some of them may have no free address."""
    *first, last = [{**body, "subnet_id": each} for each in change.subnet_ids] or [body]
    for each in first:
        try:
            return await neutron.create("floatingips", "floatingip", each, FloatingIp)
        except Rejected:
            continue
    try:
        return await neutron.create("floatingips", "floatingip", last, FloatingIp)
    except CloudError as error:
        raise _explained(change, error) from error


def _explained(change: CreateFloatingIp, error: CloudError) -> CloudError:
    """Returns the error with its object and the next step."""
    if isinstance(error, QuotaExceeded):
        return QuotaExceeded(
            f"floating IP: {error}. Fix: delete floating IPs that are not used (openstack floating "
            "ip list), use another floating-subnet, or raise the quota (openstack quota set "
            "--floating-ips N PROJECT)"
        )
    may_not_choose = isinstance(error, Unauthorized)
    if change.address and (may_not_choose or "already allocated" in str(error)):
        return Misconfigured(_not_available(change.address, change.reserved_for))
    return _associated("floating IP", error)


def _associated(what: str, error: CloudError) -> CloudError:
    """Returns the error of a request that attaches a floating IP.

    Neutron's text names networks, subnets and ports.
    """
    if not isinstance(error, NotFound):
        return error
    if "not reachable" in str(error):
        return Misconfigured(
            f"{what}: the external network is not reachable. Fix: connect the VIP subnet to a "
            "router with a gateway in the external network (openstack router add subnet ROUTER "
            "SUBNET), or set floating-network-id"
        )
    return Conflict(f"{what}: it, its network or the port of the load balancer was deleted since")


async def _set_port(neutron: Neutron, one: FloatingIp, port_id: str | None) -> FloatingIp:
    try:
        return await neutron.update(
            "floatingips", "floatingip", one, {"port_id": port_id}, FloatingIp
        )
    except NotFound as error:
        raise _associated(f"floating IP {one.floating_ip_address}", error) from error
