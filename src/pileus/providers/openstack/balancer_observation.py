"""What is read of load balancers, in as few requests as possible.

One Service: its load balancer by its mark, its pools, and the floating IPs. Many Services: one list
of each in the project. Listeners, members and monitors are read only if the load balancer has no
valid stamp, or in a full check; networks only if something is to be created.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from pileus.clock import Clock
from pileus.cloud.balancer import Owner, Wish
from pileus.cloud.errors import CloudError, Conflict, NotFound
from pileus.cloud.fingerprint import usual_address
from pileus.cloud.model import Failure
from pileus.dataclass import dataclass
from pileus.fix import quoted
from pileus.providers.openstack import annotations, networks, security_group
from pileus.providers.openstack.api import Client, Service, each_of
from pileus.providers.openstack.balancer_notices import (
    asks_for_subnets,
    in_effect,
    notices_of,
)
from pileus.providers.openstack.balancer_plan import (
    changes,
    existing_request,
    floating_spec,
    is_deleted_whole,
    network_notices,
)
from pileus.providers.openstack.balancer_seen import Face, Parts, Seen, is_pending
from pileus.providers.openstack.balancer_steps import Change, Outcome
from pileus.providers.openstack.desired import Desired, Setup, balancer_name, desire, legacy_name
from pileus.providers.openstack.draining import Draining, Leaving
from pileus.providers.openstack.failed_creations import WAIT, FailedCreations
from pileus.providers.openstack.floating_ip import FloatingIps, FloatingIpSpec
from pileus.providers.openstack.marks import for_tag, tags_of
from pileus.providers.openstack.networks import FloatingChoice, NetworkRequest, Topology
from pileus.providers.openstack.neutron import Neutron, Subnet, VipPort
from pileus.providers.openstack.octavia import (
    Listeners,
    LoadBalancer,
    Octavia,
    Pool,
    Provisioning,
    by_balancer,
)
from pileus.providers.openstack.ownership import (
    Use,
    addresses_of,
    belongs_to,
    candidates_of,
    cluster_of,
    is_gone,
    is_proven,
    marked_for,
    may_be_guest,
    may_serve,
    refused,
    twins_of,
)
from pileus.providers.openstack.port_plan import has_other_listeners
from pileus.providers.openstack.recent import Known, Recent
from pileus.providers.openstack.security_group import SecurityGroups
from pileus.telemetry.log import Log

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Lists:
    """What is read once for all wishes of an observation."""

    balancers: tuple[LoadBalancer, ...]
    listeners: Listeners
    """Read when the parts of a load balancer are."""
    pools: Mapping[str, tuple[Pool, ...]] = field(default_factory=dict[str, tuple[Pool, ...]])
    """By load balancer."""
    floating_ips: FloatingIps = field(default_factory=FloatingIps)
    subnets: tuple[Subnet, ...] = ()
    """Read if an annotation decides about the subnet of a floating IP; of many Services only in a
    full check."""


@dataclass(slots=True)
class Observer:
    """Reads load balancers, and remembers which of them it found up to date."""

    client: Client
    setup: Setup
    clock: Clock
    _complete: dict[Owner, tuple[object, ...]] = field(
        default_factory=dict[Owner, tuple[object, ...]]
    )
    """What a load balancer looked like when all its parts were read and up to date."""
    _expected: dict[Owner, tuple[str, Outcome]] = field(
        default_factory=dict[Owner, tuple[str, Outcome]]
    )
    """Load balancers for which Octavia accepted the last change that was needed, and what they are
    when it is made."""
    _ids: dict[Owner, str] = field(default_factory=dict[Owner, str])
    """IDs of the load balancers that were last observed or created."""
    _created: Recent = field(default_factory=Recent)
    """Of whom load balancers were created that may not be listed yet."""
    floating_ips: Known = field(init=False)
    groups: Known = field(init=False)
    failed: FailedCreations = field(init=False)
    _leaving: Leaving = field(default_factory=Leaving)
    _without_group: set[Owner] = field(default_factory=set[Owner])
    """Owners that had no security group when they were last read. They are read once in a process,
    also if they are not managed any more: the configuration may have changed at its start."""
    _logged: set[str] = field(default_factory=set[str])
    """What was logged about networks: once in a process, not for each Service."""
    _marked: set[Owner] = field(default_factory=set[Owner])
    """Owners whose load balancer had their mark when it was last observed."""

    def __post_init__(self) -> None:
        self.floating_ips = Known("floating IP", self.clock)
        self.groups = Known("security group", self.clock)
        self.failed = FailedCreations(self.clock)

    def changed(self, change: Change, after: Seen) -> None:
        """Remember what a change that Octavia accepted leads to: it is not read again."""
        if not after.is_busy:
            return
        self._complete.pop(after.owner, None)
        self._expected.pop(after.owner, None)
        if change.completes is not None and after.found is not None:
            self._expected[after.owner] = after.found.id, change.completes

    def balancer_of(self, owner: Owner) -> str:
        """Returns the ID of the load balancer that was last observed; empty if there was none."""
        return self._ids.get(owner, "")

    def created(self, owner: Owner, balancer: LoadBalancer) -> None:
        """Remember what was just created: a list may not have it yet."""
        self._ids[owner] = balancer.id
        self._created.add(owner, self.clock.now())

    def deleted(self, owner: Owner, balancer: str) -> None:
        """Forget a load balancer whose deletion Octavia accepted: lists may lack it from now on."""
        if self._ids.get(owner) == balancer:
            del self._ids[owner]
            self._created.forget(owner)

    async def observe(
        self, wishes: Sequence[Wish], *, is_full: bool
    ) -> Mapping[Owner, Seen | Failure]:
        lists = await self._lists(wishes, is_full=is_full)
        found = await each_of(wishes, lambda wish: self._seen(wish, lists, is_full=is_full))
        pairs = zip(wishes, found, strict=True)
        seen = {wish.owner: one if isinstance(one, Seen) else Failure(one) for wish, one in pairs}
        return await self._with_networks(wishes, seen)

    async def _lists(self, wishes: Sequence[Wish], *, is_full: bool) -> Lists:
        """While Octavia is busy with all of the load balancers, nothing else is read."""
        octavia, alone = Octavia(self.client), wishes[0] if len(wishes) == 1 else None
        balancers = await (self._balancers_for(alone) if alone else octavia.balancers())
        present = tuple(one for one in balancers if not is_gone(one))
        listeners = Listeners(octavia, of_many=alone is None)
        if all(_is_awaited(wish, present, is_full=is_full) for wish in wishes):
            return Lists(present, listeners)
        pools: Sequence[Pool] = ()
        if alone is None:
            pools = await octavia.pools()
        elif mine := marked_for(alone.owner, present):
            pools = await octavia.pools(mine[0].id) if self._needs_pools(alone, mine[0]) else ()
        neutron, classes = Neutron(self.client), self.setup.config.classes
        floating = FloatingIps(await neutron.floating_ips())
        needs_subnets = (is_full or alone is not None) and any(
            wish.spec is not None and asks_for_subnets(wish, classes) for wish in wishes
        )
        subnets = await neutron.subnets() if needs_subnets else ()
        return Lists(present, listeners, by_balancer(pools), floating, subnets)

    def _needs_pools(self, wish: Wish, balancer: LoadBalancer) -> bool:
        """A load balancer that is deleted with all its parts is not read."""
        is_cascade = self.setup.balancers.cascade_delete and is_deleted_whole(balancer, wish)
        return wish.spec is not None or not is_cascade

    async def _unlisted(self, owner: Owner) -> LoadBalancer | None:
        """Returns the owner's load balancer by its ID, if that is known; None if it is gone.

        Raises `Conflict` if it was created a moment ago and is not found yet: another one would be
        created otherwise.
        """
        id_ = self._ids.get(owner, "")
        if not id_:
            return None
        try:
            found = await Octavia(self.client).balancer(id_)
        except NotFound:
            if self._created.has(owner, self.clock.now()):
                raise Conflict(f"load balancer {id_} was just created and is not found") from None
            return None
        return found if belongs_to(found.tags, owner) and not is_gone(found) else None

    async def _balancers_for(self, wish: Wish) -> tuple[LoadBalancer, ...]:
        """Returns those with the mark; if there are none, those that may be taken over.

        After the deletion of one with the mark there is nothing to be taken over.
        """
        octavia = Octavia(self.client)
        found = await octavia.balancers(tags=tags_of(wish.owner))
        if found or (wish.spec is None and wish.owner in self._marked):
            return found
        if wish.adopts:
            return await octavia.balancers(id_=wish.adopts)
        if not wish.service or (wish.spec is None and not wish.published):
            return ()
        named = await octavia.balancers(name=balancer_name(wish, self.setup.cluster_name))
        return named or await octavia.balancers(name=legacy_name(wish.owner))

    async def _seen(self, wish: Wish, lists: Lists, *, is_full: bool) -> Seen:
        ours = marked_for(wish.owner, lists.balancers)
        if ours:
            self._created.forget(wish.owner)
        found = next(iter(ours), None) or await self._unlisted(wish.owner)
        seen = Seen(
            owner=wish.owner,
            found=found,
            is_full=is_full,
            duplicates=twins_of(ours),
            draining=Draining(self.setup.balancers.member_drain_time, self.clock.now()),
            published=wish.published,
        )
        if found is None and wish.spec is not None:
            seen = self._candidates(wish, seen, lists)
        elif found is None:
            seen = replace(seen, ambiguous=self._left_unmarked(wish, lists))
        self._remember(seen)
        pools = lists.pools.get(seen.subject.id, ()) if seen.subject else ()
        if found is not None and not ours:
            pools = await Octavia(self.client).pools(found.id)
        subject = seen.subject
        mine = tuple(one for one in pools if subject and may_serve(one, subject, wish.owner))
        seen = replace(seen, pools=mine)
        seen = await self._with_parts(wish, seen, lists.listeners)
        seen = await self._finished(wish, seen, lists)
        return replace(seen, leftover_ports=await self._leftover_ports(wish, lists))

    async def _leftover_ports(self, wish: Wish, lists: Lists) -> tuple[VipPort, ...]:
        """Raises `Conflict` if the Service is deleted, and ports of it may be left over later."""
        known = {one.id for one in lists.balancers}
        neutron, octavia = Neutron(self.client), Octavia(self.client)
        found = await self.failed.leftovers(wish.owner, neutron, octavia, known)
        if wish.spec is None and not found and self.failed.are_open(wish.owner):
            raise Conflict(
                "Octavia refused to create a load balancer a moment ago, and may have left a port. "
                f"Ports are checked {WAIT:.0f} s after that"
            )
        return found

    def _remember(self, seen: Seen) -> None:
        if seen.subject is None:
            self._ids.pop(seen.owner, None)
            self._complete.pop(seen.owner, None)
            self._expected.pop(seen.owner, None)
            self._leaving.forget(seen.owner)
            self._without_group.discard(seen.owner)
        else:
            self._ids[seen.owner] = seen.subject.id
        if seen.found is not None:
            self._marked.add(seen.owner)
        else:
            self._marked.discard(seen.owner)

    def _candidates(self, wish: Wish, seen: Seen, lists: Lists) -> Seen:
        """Returns which load balancer without our mark is to be adopted, or may be ours."""
        named = next((one for one in lists.balancers if one.id == wish.adopts), None)
        candidates = candidates_of(wish, lists.balancers, self.setup.cluster_name)
        known = {one.id: _addresses(one, lists) for one in candidates}
        proven = [
            one
            for one in candidates
            if is_proven(wish, one, known[one.id] | self._host_names(wish, known[one.id]))
        ]
        return _sorted_out(wish, seen, candidates, proven, named)

    def _host_names(self, wish: Wish, addresses: frozenset[str]) -> frozenset[str]:
        """Returns what the Go program publishes instead of addresses, with PROXY protocol.

        None if the Service has an annotation for it: its author chose what is published.
        """
        suffix = self.setup.balancers.ingress_hostname_suffix
        if not suffix or wish.options.get(annotations.HOSTNAME.name):
            return frozenset()
        return frozenset(f"{one}.{suffix}" for one in addresses)

    def _left_unmarked(self, wish: Wish, lists: Lists) -> tuple[LoadBalancer, ...]:
        """Returns what the Go program left of a Service that is deleted before it was taken over.

        It has the name of the Service's load balancer and an address in the status of the Service.
        """
        published = frozenset(map(usual_address, wish.published))
        candidates = candidates_of(wish, lists.balancers, self.setup.cluster_name)
        unmarked = (one for one in candidates if not cluster_of(one.tags))
        return tuple(one for one in unmarked if published & _addresses(one, lists))

    async def _parts_of(
        self,
        balancer: LoadBalancer,
        listeners: Listeners,
        pools: Sequence[Pool] = (),
        owner: Owner | None = None,
    ) -> Parts:
        """Returns all parts; if an owner is given, pools of other Services may be left out."""
        octavia, found = Octavia(self.client), await listeners.of(balancer)
        known = tuple(pools) or await octavia.pools(balancer.id)
        served = [one for one in found if owner is None or may_serve(one, balancer, owner)]
        known = await octavia.with_default_pools(known, served)
        monitors = [
            await octavia.health_monitor(one.healthmonitor_id)
            for one in known
            if one.healthmonitor_id
        ]
        return Parts(
            listeners=found,
            pools=known,
            members={one.id: await octavia.members(one.id) for one in known},
            monitors={one.id: one for one in monitors},
        )

    async def _with_parts(self, wish: Wish, seen: Seen, listeners: Listeners) -> Seen:
        """Returns the state with all parts, unless nothing has to be changed or can be."""
        subject = seen.subject
        if subject is None or seen.is_busy or not await self._needs_parts(wish, seen, listeners):
            return seen
        pools, owner = (seen.pools, seen.owner) if seen.found is not None else ((), None)
        return replace(seen, parts=await self._parts_of(subject, listeners, pools, owner))

    async def _needs_parts(self, wish: Wish, seen: Seen, listeners: Listeners) -> bool:
        """The stamp tells nothing about settings of parts that another program changed.

        After a start, or any change of the load balancer, listeners are compared as well: they have
        the source ranges, which the Go program narrows to one IP family.
        """
        found, expected = seen.found, self._expected.pop(seen.owner, None)
        if found is not None and wish.spec is None:
            return self._needs_pools(wish, found)
        if found is None or seen.is_full:
            return True
        fingerprint = self.setup.fingerprint(wish)
        looks = _looks(fingerprint, seen)
        if found.provisioning_status == Provisioning.ACTIVE and expected == (
            found.id,
            Outcome(fingerprint, tuple(sorted(len(one.members) for one in seen.pools))),
        ):
            self._complete[seen.owner] = looks
        if self._complete.get(seen.owner) == looks:
            return False
        if not seen.has_stamp(fingerprint) or await self._listeners_differ(wish, found, listeners):
            return True
        self._complete[seen.owner] = looks
        return False

    async def _listeners_differ(self, wish: Wish, found: LoadBalancer, known: Listeners) -> bool:
        desired = self._desired(wish)
        return bool(desired and has_other_listeners(desired, found, await known.of(found)))

    async def _finished(self, wish: Wish, seen: Seen, lists: Lists) -> Seen:
        desired = self._desired(wish)
        spec = FloatingIpSpec(owner=wish.owner, is_wanted=False)
        if desired is not None:
            spec = floating_spec(desired, FloatingChoice(), may_attach=True)
        seen = replace(seen, floating_ips=await self._floating_ips(spec, seen, lists))
        if desired is None:
            return seen
        if seen.parts is not None:
            grace = self._leaving.grace(desired, seen.parts.names, self.clock.now())
            seen = replace(seen, draining=replace(seen.draining, grace=grace))
        face = self._face(wish, desired, seen, lists.subnets)
        return replace(seen, face=face, desired=desired)

    async def _floating_ips(self, spec: FloatingIpSpec, seen: Seen, lists: Lists) -> FloatingIps:
        """Returns those of the Service. They may not have been read if Octavia is busy."""
        port = (seen.subject.vip_port_id or "") if seen.subject else ""
        listed, owner = lists.floating_ips, spec.owner
        own = listed.of(spec, port)
        if seen.is_busy:
            return own
        read = Neutron(self.client).floating_ip
        more = await self.floating_ips.unlisted(owner, own.found, listed.found, read)
        own = FloatingIps((*own.found, *more)).of(spec, port) if more else own
        self.floating_ips.observed(owner, own.found)
        return own

    def _desired(self, wish: Wish) -> Desired | None:
        """Returns the desired state; None if there is none, or `changes` refuses it."""
        if wish.spec is None:
            return None
        try:
            return desire(wish, wish.spec, self.setup)
        except CloudError:
            return None

    def _face(self, wish: Wish, desired: Desired, seen: Seen, subnets: tuple[Subnet, ...]) -> Face:
        config = self.setup.balancers
        uses_name = desired.is_proxied and config.enable_ingress_hostname
        return Face(
            hostname=desired.hostname,
            suffix=config.ingress_hostname_suffix if uses_name else "",
            is_proxied=desired.is_proxied,
            uses_floating_ip=not desired.is_internal,
            notices=(*seen.face.notices, *desired.notices, *notices_of(wish, desired, seen)),
            options=in_effect(wish, desired, seen, self.setup.config.classes, subnets),
        )

    async def _with_networks(
        self, wishes: Sequence[Wish], seen: Mapping[Owner, Seen | Failure]
    ) -> Mapping[Owner, Seen | Failure]:
        """Read networks and security groups once, if they are needed; then judge what was read."""
        requests = {
            owner: request
            for owner, one in seen.items()
            if isinstance(one, Seen) and (request := self._request(one))
        }
        topology = await self._topology(tuple(requests.values()))
        groups = await self._groups(wishes, seen, topology)

        async def finished(wish: Wish) -> Seen | Failure:
            one = seen[wish.owner]
            if isinstance(one, Failure):
                return one
            known = topology if wish.owner in requests else None
            own = await self._own(wish, groups) if self._needs_group(wish, one) else None
            if own is not None and not own.groups:
                self._without_group.add(wish.owner)
            one = replace(one, topology=known, groups=own)
            return await self._judged(wish, one.desired, one) if one.desired else one

        after = zip(wishes, await each_of(wishes, finished), strict=True)
        return {w.owner: Failure(one) if isinstance(one, CloudError) else one for w, one in after}

    async def _own(self, wish: Wish, groups: SecurityGroups) -> SecurityGroups:
        """Returns the owner's security groups with the ports that have them."""
        neutron, owner, own = Neutron(self.client), wish.owner, groups.of(wish.owner)
        listed, read = groups.groups, neutron.security_group
        more = await self.groups.unlisted(owner, own.groups, listed, read)
        if more:
            both = (*own.groups, *more)
            own = (await security_group.with_ports(neutron, both, own.ports)).of(owner)
        self.groups.observed(owner, own.groups)
        return own

    async def _judged(self, wish: Wish, desired: Desired, seen: Seen) -> Seen:
        """Returns the state, and remembers it if all parts were read and are up to date."""
        about_networks = tuple(network_notices(desired, seen, self.setup))
        for one in about_networks:
            if one.message not in self._logged:
                self._logged.add(one.message)
                log.warning("Network of floating IPs", warning=one.message)
        notices = (*seen.face.notices, *about_networks)
        seen = replace(seen, face=replace(seen.face, notices=notices))
        seen = replace(seen, problem=seen.problem or await self._problem(desired, seen))
        try:
            is_read = seen.parts is not None and seen.drains_for is None and not seen.has_failed
            is_complete = is_read and not changes(wish, seen, self.setup)
        except CloudError:
            is_complete = False
        if is_complete:
            self._complete[wish.owner] = _looks(self.setup.fingerprint(wish), seen)
        return seen

    def _request(self, seen: Seen) -> NetworkRequest | None:
        """Returns the request for networks, if something has to be created in them."""
        found, desired = seen.subject, seen.desired
        if desired is None or seen.is_busy or seen.problem:
            return None
        if found is None:
            return None if seen.ambiguous else desired.request
        is_floating = seen.floating_ips.on(found.vip_port_id or "") is not None
        manages_group = self.setup.balancers.manage_security_groups and seen.parts is not None
        if manages_group or (desired.has_floating_ip and not is_floating):
            return existing_request(desired, found)
        return None

    async def _groups(
        self, wishes: Sequence[Wish], seen: Mapping[Owner, Seen | Failure], topology: Topology
    ) -> SecurityGroups:
        """Read security groups once, if a Service has or may have one."""
        for wish in wishes:
            one = seen[wish.owner]
            if isinstance(one, Seen) and self._needs_group(wish, one):
                return await security_group.read_groups(Neutron(self.client), topology.ports)
        return SecurityGroups()

    def _needs_group(self, wish: Wish, seen: Seen) -> bool:
        """One that is left from when they were managed is found by the first check of all parts."""
        if wish.spec is None:
            return not seen.is_busy
        is_managed = self.setup.balancers.manage_security_groups
        may_have_one = is_managed or seen.is_full or wish.owner not in self._without_group
        return seen.parts is not None and may_have_one

    async def _topology(self, requests: tuple[NetworkRequest, ...]) -> Topology:
        """A cloud without external networks costs one request, not two, at every check."""
        if not requests:
            return Topology()
        neutron, config = Neutron(self.client), self.setup.config
        is_managed = config.load_balancer.manage_security_groups
        external = None
        if not is_managed and all(one.existing_subnet_id for one in requests):
            external = await neutron.networks([("router:external", "true")])
            if not external:
                return Topology()
        return await networks.read_topology(
            neutron, requests, config.load_balancer, config.classes, external
        )

    async def _problem(self, desired: Desired, seen: Seen) -> str:
        """Returns what is wrong with the certificate, if it is about to be used."""
        reference = desired.tls_container_ref
        is_used = seen.found is None or seen.parts is not None
        if not reference or not is_used or self.setup.balancers.container_store != "barbican":
            return ""
        place = annotations.TLS_CONTAINER_REF.name
        is_default = desired.context.values[annotations.TLS_CONTAINER_REF] is None
        place = "default-tls-container-ref of cloud.conf" if is_default else f"annotation {place}"
        form = annotations.BARBICAN.fullmatch(reference)
        if form is None:
            return (
                f"{place}: {quoted(reference)} is not a Barbican reference. Expected "
                "https://HOST/v1/containers/UUID or https://HOST/v1/secrets/UUID"
            )
        try:
            await self.client.send("GET", Service.KEY_MANAGER, f"/v1/{form[1]}/{form[2]}")
        except NotFound as error:
            return f"{place}: {quoted(reference)}: {error}"
        return ""


def _is_awaited(wish: Wish, balancers: Iterable[LoadBalancer], *, is_full: bool) -> bool:
    """Whether Octavia is busy with the load balancer, and no one asks for more than that."""
    ours = marked_for(wish.owner, balancers)
    return bool(ours) and is_pending(ours[0]) and (wish.spec is None or not is_full)


def _addresses(balancer: LoadBalancer, lists: Lists) -> frozenset[str]:
    """Returns the VIPs of a load balancer and its floating IP."""
    floating = lists.floating_ips.on(balancer.vip_port_id or "")
    return addresses_of(balancer, (floating.floating_ip_address,) if floating else ())


def _looks(fingerprint: str, seen: Seen) -> tuple[object, ...]:
    """Returns all that changes if anyone changes the load balancer."""
    found = seen.found
    tags = tuple(sorted(found.tags)) if found else ()
    return fingerprint, seen.structure, tags, found and found.updated_at


def _sorted_out(
    wish: Wish,
    seen: Seen,
    candidates: Sequence[LoadBalancer],
    proven: Sequence[LoadBalancer],
    named: LoadBalancer | None,
) -> Seen:
    """Returns which load balancer is to be marked, or why there is none."""
    if named is not None and (named in proven or len(proven) != 1):
        if named in proven:
            return replace(seen, named=named)
        if named not in candidates and may_be_guest(wish, named):
            return replace(seen, named=named, use=Use.GUEST)
        return replace(seen, problem=_refused(wish, named, is_of_same_name=named in candidates))
    if len(proven) == 1:
        return replace(seen, named=proven[0])
    return replace(seen, ambiguous=tuple(candidates))


def _refused(wish: Wish, named: LoadBalancer, *, is_of_same_name: bool) -> str:
    """Returns why the load balancer that the Service names is not used."""
    option = annotations.LOAD_BALANCER_ID.name
    if not wish.may_use_foreign:
        return str(refused(wish))
    if is_of_same_name:
        tag = for_tag(wish.owner.cluster, wish.namespace, wish.service)
        return (
            f"annotation {option}: load balancer {named.id} was created for a Service of this "
            "name, but nothing proves that it is this one: none of its addresses is in the status "
            "of the Service. Fix, if it is this Service's (by an operator): openstack loadbalancer "
            f"set --tag {tag} {named.id}. Fix, if it is not: remove the annotation"
        )
    return (
        f"annotation {option}: load balancer {named.id} belongs to another cluster. Fix: remove "
        "the annotation, or name another one"
    )
