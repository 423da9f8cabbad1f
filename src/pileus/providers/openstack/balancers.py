"""Load balancers of Services in Octavia: the requests of each change.

What is read is in `balancer_observation`, what is decided in `balancer_plan`. Every change can be
repeated after a crash at any point: objects are found again by the mark that they got in the
request that created them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import assert_never

import msgspec

from pileus.clock import Clock, SystemClock
from pileus.cloud.abilities import (
    Abilities,
    Affinity,
    Batches,
    Deadlines,
    Limits,
    PagedList,
    Requests,
)
from pileus.cloud.balancer import Owner, Wish
from pileus.cloud.errors import (
    Conflict,
    NotFound,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
)
from pileus.cloud.model import Failure
from pileus.dataclass import dataclass
from pileus.providers.openstack import balancer_plan, floating_ip, security_group
from pileus.providers.openstack.annotations import node_selector
from pileus.providers.openstack.api import Client
from pileus.providers.openstack.balancer_observation import Observer
from pileus.providers.openstack.balancer_seen import Seen, changing_tag
from pileus.providers.openstack.balancer_steps import (
    Change,
    CreateBalancer,
    CreateMember,
    CreatePart,
    DeleteBalancer,
    DeleteMember,
    DeletePart,
    DeletePort,
    Foreseen,
    SetMembers,
    Step,
    TagBalancer,
    UpdatePart,
)
from pileus.providers.openstack.config import OpenStackConfig
from pileus.providers.openstack.desired import Setup
from pileus.providers.openstack.failed_creations import balancer_of, is_missing
from pileus.providers.openstack.features import Features
from pileus.providers.openstack.floating_ip import FloatingIpChange, FloatingIps
from pileus.providers.openstack.marks import cluster_tag, tags_of
from pileus.providers.openstack.neutron import PAGE as NEUTRON_PAGE
from pileus.providers.openstack.neutron import Neutron, VipPort
from pileus.providers.openstack.octavia import LoadBalancer, Octavia
from pileus.providers.openstack.ownership import belongs_to, creator_of, go_tags, services_of
from pileus.providers.openstack.port_writes import PortWrites
from pileus.providers.openstack.security_group import SecurityGroupChange, SecurityGroups
from pileus.providers.openstack.server_lookup import FEW

PENDING_DELETE = "PENDING_DELETE"
PAGE = 100
"""Load balancers on one page of a list, at least; Octavia's default is 1000."""
MOST_POOLS = 5
"""Ports of one Service that the bounds of requests allow for."""
NETWORK_LISTS = 5
"""External networks, subnets, ports of nodes, security groups, and the ports that have them."""
ABILITIES = Abilities(
    affinity=Affinity.ON_OFF,
    requests=Requests(
        lists=(
            PagedList(page_size=PAGE, per_balancer=1),
            PagedList(page_size=PAGE, per_balancer=MOST_POOLS),  # pools
            PagedList(page_size=PAGE, per_balancer=MOST_POOLS),  # listeners, after a start
            PagedList(page_size=PAGE, per_balancer=1),  # floating IPs
            PagedList(),  # the version, once
            PagedList(per_route=1),  # the router, with all of its routes
            PagedList(per_route=1),  # its interfaces
            PagedList(per_route=1),  # Neutron's extensions, once
            PagedList(page_size=NEUTRON_PAGE, per_route=1, per_machine=2),  # ports
        ),
        per_balancer=NETWORK_LISTS + 2 * MOST_POOLS,
        single_nodes=FEW,
        per_unknown_node=2,
        per_change=2,
    ),
    members_by_address=True,
    notes_at_full_check=True,
    limits=Limits(per_second=20, burst=40, at_once=10, growth=4),
    deadlines=Deadlines(per_item=1.0),
    batches=Batches(window=0.1, size=100),
)
"""Requests of a quick check: load balancers, pools and floating IPs, and after a start listeners
and the version. Of the parts of one load balancer: members and monitor of each pool, and what the
network has if something may have to be created in it. Of a node without a provider ID: its name,
and the UUID that its firmware reports. A list of routes reads the router, its interfaces and the
ports of its networks. A change is one write, and one more request if it reads the tags that others
set, or marks a new floating IP. Each further subnet that is tried for a floating IP costs one more:
`floating-subnet-tags` may name several."""


def abilities_of(config: OpenStackConfig) -> Abilities:
    """Returns what load balancers with this configuration can do, and cost.

    Members carry the labels that the node selector reads. Changes of security groups cost a request
    for each port and rule, which no bound for load balancers covers.
    """
    settings, requests = config.load_balancer, ABILITIES.requests
    if requests and settings.manage_security_groups:
        requests = replace(requests, per_change=None)
    keys = frozenset(one.key for one in node_selector(settings.node_selector).requirements)
    return replace(ABILITIES, member_labels=keys, requests=requests)


@dataclass(slots=True)
class OpenStackBalancers:
    client: Client
    config: OpenStackConfig
    cluster_name: str = "kubernetes"
    clock: Clock = field(default_factory=SystemClock)
    writes: PortWrites = field(default_factory=PortWrites)
    _observer: Observer | None = field(default=None, init=False)

    async def owners(self, cluster: str) -> frozenset[Owner]:
        balancers = await self._octavia.balancers(tags=(cluster_tag(cluster),))
        neutron = Neutron(self.client)
        floating = FloatingIps(await neutron.floating_ips()).owners(cluster)
        groups = (await security_group.read_groups(neutron)).owners(cluster)
        uids = (uid for one in balancers for uid in services_of(one.tags))
        return frozenset(Owner(cluster, uid) for uid in uids) | floating | groups

    async def observe(
        self, wishes: Sequence[Wish], *, deep: bool
    ) -> Mapping[Owner, Seen | Failure]:
        if self._observer is None:
            self._observer = Observer(self.client, await self._setup(), self.clock)
        return await self._observer.observe(wishes, is_full=deep)

    async def _setup(self) -> Setup:
        features = Features(self.client, self.config.load_balancer.lb_provider)
        return Setup(self.config, await features.octavia(), self.cluster_name)

    @property
    def _octavia(self) -> Octavia:
        return Octavia(self.client)

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        if self._observer is None:
            raise Unavailable("nothing was observed yet")
        return balancer_plan.changes(wish, seen, self._observer.setup)

    def lock_key(self, wish: Wish) -> str:
        """Services that share a load balancer share one key, as soon as it is known."""
        known = self._observer.balancer_of(wish.owner) if self._observer else ""
        return known or wish.adopts or wish.owner.uid

    async def apply(self, change: Change, seen: Seen) -> Seen:
        if change.invalidates and _is_stamped(seen):
            return await self._invalidated(seen)
        is_new = isinstance(change.step, CreateBalancer)
        there = await self._octavia.balancers(tags=tags_of(seen.owner)) if is_new else ()
        if there:  # another process created it since it was observed
            return replace(seen, found=there[0], parts=None, topology=None).pending()
        try:
            after = await self._apply(change.step, seen)
        except NotFound as error:
            raise Conflict(f"{error}: it was deleted meanwhile; observe again") from error
        if self._observer is not None:
            self._observer.changed(change, after)
        return after

    async def _invalidated(self, seen: Seen) -> Seen:
        """Remove the stamp first, and make the change when Octavia is no longer busy."""
        if seen.found is None:
            raise Conflict("the load balancer was deleted meanwhile; observe again")
        step = TagBalancer(seen.found.id, (changing_tag(seen.owner),), seen.stamps)
        return (await self._tag(step, seen)).pending()

    async def _apply(self, step: Step, seen: Seen) -> Seen:
        match step:
            case CreateBalancer():
                return await self._create(step, seen)
            case TagBalancer():
                return await self._tag(step, seen)
            case DeleteBalancer():
                return await self._delete(step, seen)
            case CreatePart() | UpdatePart() | DeletePart():
                await self._part(step)
            case SetMembers(pool, members):
                await self._octavia.set_members(pool, members)
            case CreateMember(pool, body):
                await self._octavia.create_member(pool, body)
            case DeleteMember(pool, member):
                await self._octavia.delete_member(pool, member)
            case Foreseen():
                raise Conflict("the part that it belongs to was just created; observe again")
            case DeletePort(port):
                return await self._delete_port(port, seen)
            case _:
                return await self._apply_beside(step, seen)
        return seen.pending()

    async def _delete_port(self, port: VipPort, seen: Seen) -> Seen:
        if await is_missing(self._octavia, balancer_of(port)):
            await Neutron(self.client).delete("ports", port)
        others = tuple(one for one in seen.leftover_ports if one.id != port.id)
        return replace(seen, leftover_ports=others)

    async def _apply_beside(self, step: FloatingIpChange | SecurityGroupChange, seen: Seen) -> Seen:
        """Make a change of a floating IP or security group: Octavia is not busy after it."""
        neutron = Neutron(self.client)
        if isinstance(step, SecurityGroupChange):
            groups = seen.groups or SecurityGroups()
            groups = await security_group.apply(neutron, step, groups, self.writes)
            if self._observer is not None:
                self._observer.groups.changed(seen.owner, groups.groups)
            return replace(seen, groups=groups)
        floating = await floating_ip.apply(neutron, step, seen.floating_ips)
        if self._observer is not None:
            self._observer.floating_ips.changed(seen.owner, floating.found)
        return replace(seen, floating_ips=floating)

    async def _create(self, step: CreateBalancer, seen: Seen) -> Seen:
        began = self.clock.now()
        try:
            made = await self._octavia.create_balancer(step.body)
        except (Throttled, Unauthorized):
            raise
        except BaseException as error:
            if self._observer is not None:
                self._observer.failed.add(seen.owner, began)
            if isinstance(error, Conflict):  # nothing exists yet that Octavia could be busy with
                raise Rejected(f"Octavia refuses to create the load balancer: {error}") from error
            raise
        if self._observer is not None:
            self._observer.created(seen.owner, made)
        return replace(seen, found=made, parts=None, topology=None).pending()

    async def _tag(self, step: TagBalancer, seen: Seen) -> Seen:
        """Change tags of the load balancer as it is now: other Services have tags on it, too.

        Raises `Conflict` if one that is deleted with its last Service would be left without any.
        """
        current = await self._octavia.balancer(step.balancer)
        kept = [tag for tag in current.tags if tag not in {*step.drop, *step.add}]
        tags = [*kept, *step.add]
        if step.drop and creator_of(tags) and not services_of(tags) and not go_tags(tags):
            raise Conflict("another Service left the load balancer meanwhile; observe again")
        if set(tags) == set(current.tags):
            return _with(seen, current)
        return _with(seen, await self._octavia.update_balancer(current.id, {"tags": tags}))

    async def _delete(self, step: DeleteBalancer, seen: Seen) -> Seen:
        try:
            await self._octavia.delete_balancer(step.balancer, cascade=step.with_parts)
        except Conflict:
            if not await self._is_being_deleted(step.balancer):
                raise
        if self._observer is not None:
            self._observer.deleted(seen.owner, step.balancer)
        others = tuple(one for one in seen.duplicates if one.id != step.balancer)
        if len(others) < len(seen.duplicates) or seen.found is None:
            return replace(seen, duplicates=others)
        found = msgspec.structs.replace(seen.found, provisioning_status=PENDING_DELETE)
        return replace(seen, found=found, parts=None)

    async def _is_being_deleted(self, balancer: str) -> bool:
        try:
            status = (await self._octavia.balancer(balancer)).provisioning_status
        except NotFound:
            return True
        return status == PENDING_DELETE

    async def _part(self, step: CreatePart | UpdatePart | DeletePart) -> None:
        match step:
            case CreatePart(kind, body):
                await self._octavia.create_part(kind, body)
            case UpdatePart(kind, id_, body):
                await self._octavia.update_part(kind, id_, body)
            case DeletePart(kind, id_):
                await self._octavia.delete_part(kind, id_)
            case _:
                assert_never(step)


def _is_stamped(seen: Seen) -> bool:
    """Whether tags say that the load balancer is up to date."""
    return any(tag != changing_tag(seen.owner) for tag in seen.stamps)


def _with(seen: Seen, balancer: LoadBalancer) -> Seen:
    """Returns the state with the load balancer after its tags were changed."""
    if belongs_to(balancer.tags, seen.owner):
        return replace(seen, found=balancer, named=None, parts=None)
    if seen.found is not None:
        return replace(seen, found=None, named=None, parts=None, pools=())
    return replace(seen, named=balancer, parts=None)
