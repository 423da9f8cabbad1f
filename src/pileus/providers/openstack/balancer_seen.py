"""What was observed of one Service's load balancer, and what the manager shows of it. Pure.

| provisioning_status | state | what is done |
|---|---|---|
| ACTIVE | READY | changed as needed; operating states are about members, see `Notice` |
| PENDING_* | PENDING | nothing; checked again by the manager, less and less often |
| ERROR, was never complete | FAILED | deleted and created again |
| ERROR, was complete before | FAILED | nothing: only a failover keeps its address |
| DELETED | none | as if it did not exist |
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TypeAlias

import msgspec

from pileus.cloud.balancer import Balancer, BalancerState, Ingress, Notice, Owner, Wish
from pileus.cloud.fingerprint import digest, usual_address
from pileus.cloud.model import no_labels
from pileus.dataclass import dataclass
from pileus.providers.openstack.annotations import LOAD_BALANCER_ADDRESS, LOAD_BALANCER_ID
from pileus.providers.openstack.balancer_steps import Change
from pileus.providers.openstack.desired import Desired, Setup
from pileus.providers.openstack.draining import DEAD, Draining, is_draining
from pileus.providers.openstack.floating_ip import FloatingIps
from pileus.providers.openstack.networks import Topology
from pileus.providers.openstack.neutron import VipPort
from pileus.providers.openstack.octavia import (
    HealthMonitor,
    Listener,
    LoadBalancer,
    Member,
    Pool,
    Provisioning,
)
from pileus.providers.openstack.ownership import (
    CHANGING,
    SPEC,
    Use,
    addresses_of,
    go_tags,
    is_mine,
    is_primary,
    services_of,
    shown_owner,
)
from pileus.providers.openstack.security_group import SecurityGroups

PENDING_UPDATE = "PENDING_UPDATE"
NEVER = Draining()
NAMED = 5
"""Members that a message names."""
Members: TypeAlias = Mapping[str, tuple[Member, ...]]
Monitors: TypeAlias = Mapping[str, HealthMonitor]


@dataclass(frozen=True)
class Parts:
    """Everything that a load balancer consists of."""

    listeners: tuple[Listener, ...] = ()
    pools: tuple[Pool, ...] = ()
    members: Members = field(default_factory=dict[str, tuple[Member, ...]])
    """By ID of their pool."""
    monitors: Monitors = field(default_factory=dict[str, HealthMonitor])
    """By ID."""

    def pool_of(self, listener: Listener) -> Pool | None:
        return self._pools.get(listener.default_pool_id or "")

    @cached_property
    def _pools(self) -> Mapping[str, Pool]:
        return {one.id: one for one in self.pools}

    def of(self, balancer: LoadBalancer, name: str, owner: Owner) -> "Parts":
        """Returns the listeners of one Service and their pools, without those of others.

        `name` is the Go program's tag of the Service.
        """
        mine = tuple(one for one in self.listeners if is_mine(one, balancer, name, owner))
        used = {one.default_pool_id for one in mine}
        pools = (one for one in self.pools if one.id in used or owner.uid in services_of(one.tags))
        return replace(self, listeners=mine, pools=tuple(pools))

    def members_of(self, pools: Iterable[Pool]) -> Iterator[Member]:
        return (member for one in pools for member in self.members.get(one.id, ()))

    @property
    def names(self) -> frozenset[str]:
        """Names of all members."""
        return frozenset(one.name or "" for each in self.members.values() for one in each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """How the load balancer is shown, as far as the Service and the configuration decide it."""

    hostname: str = ""
    suffix: str = ""
    """Published after the address instead of the address alone; empty: the address."""
    is_proxied: bool = False
    uses_floating_ip: bool = True
    notices: tuple[Notice, ...] = ()
    options: Mapping[str, str] = field(default_factory=no_labels)
    """Values in effect of annotations that are only used at creation."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """All that one decision needs."""

    owner: Owner
    found: LoadBalancer | None = None
    """With the owner's mark."""
    named: LoadBalancer | None = None
    """Without it, but to be marked: proven to be the Service's, or one that it may use."""
    use: Use = Use.OWN
    """What the Service may do with the one that is to be marked."""
    duplicates: tuple[LoadBalancer, ...] = ()
    """Others with the owner's mark alone, created by two processes at once."""
    ambiguous: tuple[LoadBalancer, ...] = ()
    """Unmarked ones with the name of the Service's, which may or may not be its own."""
    pools: tuple[Pool, ...] = ()
    parts: Parts | None = None
    """None: not read, because nothing has to be changed or they are not needed."""
    floating_ips: FloatingIps = field(default_factory=FloatingIps)
    groups: SecurityGroups | None = None
    """Security groups of the owner; None: not read."""
    topology: Topology | None = None
    """None: not read."""
    leftover_ports: tuple[VipPort, ...] = ()
    """Ports of load balancers that Octavia refused to create for this owner."""
    is_full: bool = False
    """Whether this was a full check."""
    face: Face = field(default_factory=Face)
    draining: Draining = NEVER
    """How members that leave are treated at the time of the observation."""
    problem: str = ""
    """Why a reference of the Service cannot be used, such as that of a certificate."""
    published: frozenset[str] = frozenset()
    """Addresses in the Service's status."""
    desired: Desired | None = field(default=None, repr=False, compare=False)
    """For which it was observed: `changes` for the same wish need not derive it again."""

    @cached_property
    def planned(self) -> list[tuple[Wish, Setup, tuple[Change, ...]]]:
        """The last answer of `changes`; a `Seen` that replaces this one has none."""
        return []

    @property
    def subject(self) -> LoadBalancer | None:
        return self.found or self.named

    @property
    def is_busy(self) -> bool:
        return self.subject is not None and is_pending(self.subject)

    @property
    def has_failed(self) -> bool:
        """Whether nothing can be changed until a failover: changes that are needed are unknown."""
        return self.found is not None and self.found.provisioning_status == Provisioning.ERROR

    @property
    def structure(self) -> str:
        """Returns a hash of what the load balancer consists of, by ID.

        It changes with every part that is added or removed. Members keep their ID while address and
        port stay the same, so that another set of members has another hash.
        """
        parts = sorted(
            (
                one.id,
                one.healthmonitor_id or "",
                sorted(each.id for each in one.listeners),
                sorted(each.id for each in one.members),
            )
            for one in self.pools
        )
        listeners = sorted(one.id for one in self.found.listeners) if self.found else []
        return digest(parts, listeners)

    def stamp(self, fingerprint: str) -> str:
        """Returns the tag that a load balancer has if it is as this fingerprint says."""
        return f"{stamp_prefix(self.owner)}{digest(fingerprint, self.structure)}"

    @property
    def stamps(self) -> tuple[str, ...]:
        """Tags of earlier stamps of this owner, also of one that was removed for a change."""
        prefix = stamp_prefix(self.owner)
        tags = self.found.tags if self.found else ()
        return tuple(tag for tag in tags if tag.startswith(prefix))

    def has_stamp(self, fingerprint: str) -> bool:
        """Whether the load balancer was complete, and no part was added or removed since."""
        return self.found is not None and self.stamp(fingerprint) in self.found.tags

    def pending(self) -> "Seen":
        """Returns the state after a write that Octavia accepted."""
        found, named = _pending(self.found), _pending(self.named)
        return replace(self, found=found, named=named, parts=None)

    @cached_property
    def balancer(self) -> Balancer | None:
        one = self.subject
        if one is None:
            return None
        state, problem = state_of(one, was_complete=self.was_complete)
        address = self._address(one)
        return Balancer(
            id=one.id,
            state=state,
            ingress=tuple(self._ingress(one, address)),
            check_again_in=self.drains_for,
            problem=problem,
            members=self._member_count,
            options=self.face.options,
            owner=shown_owner(one, self.owner),
            is_shareable=True,
            notices=self.face.notices,
            annotations={
                LOAD_BALANCER_ID.name: one.id,
                **({LOAD_BALANCER_ADDRESS.name: address} if address else {}),
            },
        )

    @property
    def was_complete(self) -> bool:
        """Whether the load balancer reached a desired state once, or may have been taken over.

        One that has no stamp yet was complete if it got a floating IP, or if its address is
        published: both happen after its creation has succeeded.
        """
        one = self.subject
        if one is None:
            return False
        is_stamped = any(tag.startswith(SPEC) for tag in one.tags)
        is_other = len(go_tags(one.tags)) != 1 or len(services_of(one.tags)) != 1
        floating = self.floating_ips.on(one.vip_port_id or "")
        published = frozenset(map(usual_address, self.published))
        return is_stamped or is_other or bool(floating) or bool(published & addresses_of(one))

    @property
    def drains_for(self) -> float | None:
        """Seconds until a draining member is removed; None: no member drains."""
        members = self.parts.members.values() if self.parts else ()
        soonest = self.draining.soonest(one for each in members for one in each)
        return soonest if soonest is not None else self.draining.grace or None

    @property
    def _member_count(self) -> int | None:
        """Returns how many members the largest pool of the Service has; None: not known.

        Pools without any mark may be of others, unless the load balancer was created for it.
        """
        pools = self.parts.pools if self.parts else self.pools
        if not pools and self.found is None:
            return None
        mine = [one for one in pools if self.owner.uid in services_of(one.tags)]
        if pools and not mine and self.found and not is_primary(self.found, self.owner):
            return None
        return max((len(pool.members) for pool in mine or pools), default=0)

    def _address(self, one: LoadBalancer) -> str:
        floating = self.floating_ips.on(one.vip_port_id or "")
        if floating is not None and self.face.uses_floating_ip:
            return floating.floating_ip_address
        return one.vip_address or ""

    def _ingress(self, one: LoadBalancer, address: str) -> tuple[Ingress, ...]:
        face = self.face
        if face.hostname:
            return (Ingress(hostname=face.hostname),)
        others = (each.ip_address for each in one.additional_vips)
        addresses = tuple(each for each in (address, *others) if each)
        if face.suffix:
            return tuple(Ingress(hostname=f"{each}.{face.suffix}") for each in addresses)
        return tuple(Ingress(ip=each, proxied=face.is_proxied) for each in addresses)


def members_down(wish: Wish, seen: Seen, name: str) -> Iterator[Notice]:
    """Yields a warning about members that fail their health check, if all parts were read.

    With `externalTrafficPolicy: Local` members without a pod fail it, as they should. Members of
    other Services on the load balancer are not named. `name` is the Go program's tag.
    """
    if seen.found is None or seen.parts is None:
        return
    parts = seen.parts.of(seen.found, name, seen.owner)
    members = [one for one in parts.members_of(parts.pools) if not is_draining(one)]
    down = {one.name or one.address for one in members if one.operating_status == DEAD}
    is_local = wish.spec is not None and wish.spec.health is not None
    if not down or (is_local and any(one.operating_status != DEAD for one in members)):
        return
    names = sorted(down)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    yield Notice(
        "LoadBalancerMembersDown",
        f"members fail the health check of the load balancer: {', '.join(names[:NAMED])}{more}. "
        "Check that the node ports answer, and that security groups allow the load balancer to "
        "reach them",
        is_warning=True,
    )


def stamp_prefix(owner: Owner) -> str:
    """Services that share a load balancer have a stamp each."""
    return f"{SPEC}{owner.uid[:8]}-"


def changing_tag(owner: Owner) -> str:
    """Returns the tag in place of a stamp while a part is changed in place."""
    return f"{stamp_prefix(owner)}{CHANGING}"


def state_of(balancer: LoadBalancer, *, was_complete: bool) -> tuple[BalancerState, str]:
    """Returns the state, and what is wrong; see the table at the top."""
    status = balancer.provisioning_status
    if status == Provisioning.ACTIVE:
        return BalancerState.READY, ""
    if status != Provisioning.ERROR:
        return BalancerState.PENDING, (
            f"load balancer {balancer.id} is {status}. If it stays so, ask the administrator: "
            f"openstack loadbalancer status show {balancer.id}"
        )
    what = f"Octavia reports provisioning_status ERROR for load balancer {balancer.id}"
    if was_complete:
        return BalancerState.FAILED, (
            f"{what}. Fix: openstack loadbalancer failover {balancer.id} (as administrator)"
        )
    return BalancerState.FAILED, f"{what} after its creation. It is deleted and created again"


def is_pending(balancer: LoadBalancer) -> bool:
    return balancer.provisioning_status not in {Provisioning.ACTIVE, Provisioning.ERROR}


def _pending(balancer: LoadBalancer | None) -> LoadBalancer | None:
    if balancer is None:
        return None
    return msgspec.structs.replace(balancer, provisioning_status=PENDING_UPDATE)
