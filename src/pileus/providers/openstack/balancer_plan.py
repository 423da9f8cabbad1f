"""What has to be changed of a load balancer, line by line. Pure.

A load balancer is created whole, in one request. Afterwards every listener, pool, set of members
and monitor is a change of its own, because Octavia accepts one write at a time and is busy after
each. The tag `pileus.dev/spec` says that everything was up to date; what makes it invalid:

- A part that is added or removed changes the IDs that the tag is a hash of.
- Before a part is changed in place, the tag is replaced by one that ends with `changing`.

So a crash at any point is noticed by the next quick check, and a node that is added costs one
request per pool. The tag is written by full checks: until the first one the process remembers that
the load balancer is up to date, and another process reads all its parts.
"""

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from pileus.cloud.balancer import Effect, Notice, Owner, Part, Wish
from pileus.cloud.errors import Misconfigured, Unsupported
from pileus.fix import one_line
from pileus.providers.openstack import annotations, floating_ip, networks, security_group
from pileus.providers.openstack.balancer_seen import Parts, Seen, changing_tag
from pileus.providers.openstack.balancer_steps import (
    Change,
    CreateBalancer,
    DeleteBalancer,
    DeletePort,
    Outcome,
    SetMembers,
    Step,
    TagBalancer,
)
from pileus.providers.openstack.desired import Desired, Setup, balancer_name, desire
from pileus.providers.openstack.floating_ip import FloatingIpChange, FloatingIpSpec
from pileus.providers.openstack.marks import CREATED, SERVICE, for_tag, for_tags, tags_of
from pileus.providers.openstack.networks import Chosen, FloatingChoice, NetworkRequest
from pileus.providers.openstack.octavia import LoadBalancer, Provisioning
from pileus.providers.openstack.ownership import (
    Use,
    creator_of,
    go_tags,
    is_mine,
    is_primary,
    may_fill,
    refused,
    service_in,
    services_of,
    was_created,
)
from pileus.providers.openstack.port_plan import PortPlan, deletion_of
from pileus.providers.openstack.security_group import (
    DeleteSecurityGroup,
    DetachSecurityGroup,
    SecurityGroupChange,
    SecurityGroupSpec,
)

ANY_PORT = "any"
"""Stands for the VIP port of a load balancer that does not exist yet."""


def changes(wish: Wish, seen: Seen, setup: Setup) -> tuple[Change, ...]:
    """See `Balancers.changes`. An observation asks first, and then the core for the same wish."""
    for known, by, found in seen.planned:
        if known is wish and by is setup:
            return found
    found = _changes(wish, seen, setup)
    seen.planned[:] = [(wish, setup, found)]
    return found


def _changes(wish: Wish, seen: Seen, setup: Setup) -> tuple[Change, ...]:
    if seen.leftover_ports:
        return tuple(
            Change(
                Effect.DELETE,
                f"port {one.id}: left by a load balancer whose creation failed",
                DeletePort(one),
            )
            for one in seen.leftover_ports
        )
    if wish.spec is None:
        return () if seen.is_busy else tuple(_deletion(wish, seen, setup))
    desired = seen.desired
    if desired is None or desired.context.wish is not wish:
        desired = desire(wish, wish.spec, setup)
    if seen.problem:
        raise Misconfigured(seen.problem)
    if seen.is_busy:
        return ()
    if seen.found is None:
        return tuple(_beginning(wish, desired, seen, setup))
    return tuple(_upkeep(wish, desired, seen, setup))


def _beginning(wish: Wish, desired: Desired, seen: Seen, setup: Setup) -> Iterator[Change]:
    if seen.named is not None:
        yield from _adoption(wish, desired, seen.named, seen, setup)
        return
    if wish.adopts and not wish.may_use_foreign:
        raise refused(wish)
    if wish.adopts:
        raise Misconfigured(
            f"there is no load balancer {one_line(wish.adopts)} in the project. Fix: correct "
            f"annotation {annotations.LOAD_BALANCER_ID.name}, or remove it to get a new one"
        )
    if seen.ambiguous:
        raise Misconfigured(_ambiguity(desired))
    if desired.request.port_id and not wish.may_use_foreign:
        raise Misconfigured(
            f"annotation {annotations.PORT_ID.name}: namespace {wish.namespace} may not use a port "
            "that was not created for it. Fix: remove the annotation, or ask an operator to add "
            "the namespace to --trusted-namespaces"
        )
    chosen = _chosen(desired, seen, setup)
    floating = floating_spec(desired, _checked(desired, chosen.floating), may_attach=True)
    floating_ip.plan(floating, ANY_PORT, seen.floating_ips)  # nothing is created in vain
    ports = ", ".join(port.label for port in desired.ports)
    body = desired.body(chosen, _more_subnets(desired, chosen, seen), whole=not _is_serial(setup))
    yield Change(
        Effect.CREATE,
        f"load balancer {desired.name}: {ports} with {_member_count(desired)} members",
        CreateBalancer(body),
        completes=None if _is_serial(setup) else _outcome(wish, desired, setup),
    )


def _outcome(wish: Wish, desired: Desired, setup: Setup) -> Outcome | None:
    """Returns what the load balancer is when it is up to date.

    None if it has to be read then: members drain, or have security groups.
    """
    if setup.balancers.manage_security_groups or setup.balancers.member_drain_time:
        return None
    members = sorted(len(port.members) for port in desired.ports)
    return Outcome(setup.fingerprint(wish), tuple(members))


def _member_count(desired: Desired) -> int:
    return max((len(port.members) for port in desired.ports), default=0)


def _is_serial(setup: Setup) -> bool:
    return setup.balancers.provider_requires_serial_api_calls


def _ambiguity(desired: Desired) -> str:
    """It names no ID: the load balancer may be of others."""
    namespace, _, service = desired.service_name.rpartition("/")
    tag = for_tag(desired.owner.cluster, namespace, service)
    return (
        f"a load balancer has the name {desired.name}, but nothing proves that it belongs to this "
        "cluster: clusters with the same --cluster-name use the same names. It is not used, and no "
        "other one is created. Fix, if it is this Service's (by an operator): openstack "
        f"loadbalancer set --tag {tag} ID. Fix, if it is of another cluster: openstack "
        "loadbalancer set --tag pileus.dev/cluster=CLUSTER-ID-OF-THE-OTHER ID, or give this "
        "cluster another --cluster-name"
    )


def _chosen(desired: Desired, seen: Seen, setup: Setup) -> Chosen:
    topology = seen.topology or networks.Topology()
    return networks.choose(desired.request, topology, setup.balancers, setup.config.classes)


def _more_subnets(desired: Desired, chosen: Chosen, seen: Seen) -> tuple[str, ...]:
    """Returns subnets of the VIP's network for the other IP families of the Service."""
    topology = seen.topology or networks.Topology()
    vip = topology.subnet(chosen.vip_subnet_id)
    network = chosen.vip_network_id or (vip.network_id if vip else "")
    found: list[str] = []
    for family in desired.families[1:]:
        version = 4 if family == "IPv4" else 6
        inside = [
            one.id
            for one in topology.subnets
            if one.network_id == network and one.ip_version == version
        ]
        if not inside:
            raise Unsupported(f"the network of the VIP has no {family} subnet")
        found.append(min(inside))
    return tuple(found)


def floating_spec(
    desired: Desired,
    choice: FloatingChoice,
    *,
    may_attach: bool,
    balancer: LoadBalancer | None = None,
) -> FloatingIpSpec:
    namespace, _, service = desired.service_name.rpartition("/")
    wish = desired.context.wish
    return FloatingIpSpec(
        owner=desired.owner,
        description=floating_ip.description_of(namespace, service, desired.cluster_name),
        former=_description_at_creation(balancer),
        users=services_of(balancer.tags) if balancer else frozenset(),
        permits=for_tags(wish.owner.cluster, wish.namespace, wish.service),
        may_use_foreign=wish.may_use_foreign,
        is_wanted=desired.has_floating_ip,
        is_kept=desired.keeps_floating_ip,
        address=desired.requested_address if desired.has_floating_ip else "",
        choice=choice,
        may_attach=may_attach,
    )


def _adoption(
    wish: Wish, desired: Desired, named: LoadBalancer, seen: Seen, setup: Setup
) -> Iterator[Change]:
    """Yields the mark, and everything that is changed once the load balancer has it.

    Raises if any of that is refused: nothing is marked before every check has passed. If only
    members may be changed, nothing is marked at all.
    """
    subnet = _member_subnet(desired, seen, setup)
    if wish.only_members:
        parts = seen.parts or Parts()
        ports = PortPlan(desired, named, parts, subnet, _is_serial(setup), seen.draining)
        yield from ports.members(also_of_others=may_fill(wish, named, seen.use))
        return
    _check_sharing(desired, named, setup)
    step = _marking_of(desired, named, seen)
    kept = (tag for tag in named.tags if tag not in {*step.add, *step.drop})
    marked = msgspec.structs.replace(named, tags=(*kept, *step.add))
    after = replace(seen, found=marked, named=None)
    _ = tuple(_floating(desired, after, setup))  # raises what is refused
    yield Change(Effect.UPDATE, f"tags of load balancer {named.id}: mark of this Service", step)
    yield from (one for one in _upkeep(wish, desired, after, setup) if one.part is not Part.RECORD)


def _description_at_creation(balancer: LoadBalancer | None) -> str:
    """Returns the description of floating IPs that were created together with a load balancer.

    It names the Service and the cluster as the load balancer's own name does: the Service may be
    deleted, and the cluster renamed.
    """
    created_for = service_in(balancer.name or "") if balancer is not None else None
    if balancer is None or created_for is None or not creator_of(balancer.tags):
        return ""
    cluster_name, namespace, service = created_for
    return floating_ip.description_of(namespace, service, cluster_name)


def _marking_of(desired: Desired, named: LoadBalancer, seen: Seen) -> TagBalancer:
    """Returns the marks of a load balancer that the Service adopts.

    One that the Go program created for a Service of this cluster, by its name, is recorded as
    created: it is deleted with the last Service on it. Marks of a Service of the same name from
    before a restore are replaced.
    """
    created: tuple[str, ...] = ()
    before = creator_of(named.tags)
    is_shared = bool(go_tags(named.tags) - {desired.name})
    stale = () if is_shared else tuple(tag for tag in named.tags if tag.startswith(SERVICE))
    if (
        named.name in {desired.name, desired.legacy_name} and seen.use is Use.OWN
    ) or f"{SERVICE}{before}" in stale:
        created = (desired.created_tag,)
    elif not before and seen.use is Use.OWN and _is_of_cluster(named, desired):
        created = (f"{CREATED}{named.name}",)
    drop = (*stale, *((f"{CREATED}{before}",) if before and created else ()))
    return TagBalancer(named.id, (*desired.tags, *created, changing_tag(desired.owner)), drop)


def _is_of_cluster(balancer: LoadBalancer, desired: Desired) -> bool:
    created_for = service_in(balancer.name or "")
    return created_for is not None and created_for[0] == desired.cluster_name


def _check_sharing(desired: Desired, named: LoadBalancer, setup: Setup) -> None:
    """Raises `Misconfigured` if the load balancer cannot be shared."""
    if named.name in {desired.name, desired.legacy_name} or desired.name in named.tags:
        return
    users, most = len(go_tags(named.tags)), setup.balancers.max_shared_lb
    if users + 1 > most:
        raise Misconfigured(
            f"annotation {annotations.LOAD_BALANCER_ID.name}: the load balancer already serves as "
            "many Services as allowed. Fix: name another one, or raise max-shared-lb of "
            f"[LoadBalancer] in cloud.conf, which is {most}"
        )
    if users and desired.is_internal:
        raise Misconfigured(
            f"annotation {annotations.LOAD_BALANCER_ID.name}: the load balancer cannot be shared "
            "by an internal Service: its other Service decides whether it has a floating IP. Fix: "
            "remove the annotation"
        )


def _upkeep(wish: Wish, desired: Desired, seen: Seen, setup: Setup) -> Iterator[Change]:
    found = seen.found
    if found is None:
        return
    for one in seen.duplicates:
        summary = f"load balancer {one.id}: created twice"
        yield Change(Effect.DELETE, summary, DeleteBalancer(one.id))
    if found.provisioning_status == Provisioning.ERROR:
        if not seen.was_complete and is_deleted_whole(found, wish):
            summary = f"load balancer {found.id}: its creation failed, it is created again"
            yield Change(Effect.REPLACE, summary, DeleteBalancer(found.id))
        return
    before, after = _groups(wish, desired, seen, setup)
    ports = tuple(_ports(desired, seen, setup))
    if len(ports) == 1 and isinstance(ports[0].step, SetMembers):
        ports = (replace(ports[0], completes=_outcome(wish, desired, setup)),)
    changes = (*before, *ports, *after)
    changes += _floating_last(desired, seen, setup, is_alone=not changes)
    yield from changes
    if not changes and seen.drains_for is None:
        yield from _stamp(wish, seen, setup)


def _floating_last(
    desired: Desired, seen: Seen, setup: Setup, *, is_alone: bool
) -> tuple[Change, ...]:
    """Returns the changes of the floating IP.

    What is wrong with it is raised when nothing else is left to change: nodes join and leave
    although no floating IP is available.
    """
    try:
        return tuple(_floating(desired, seen, setup))
    except Misconfigured:
        if is_alone:
            raise
        return ()


def _groups(
    wish: Wish, desired: Desired, seen: Seen, setup: Setup
) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
    """Returns the changes of the security group before and after those of members.

    New members can be reached before they get traffic, and old ones as long as they get some.
    """
    if seen.groups is None or wish.spec is None:
        return (), ()
    spec = None
    if setup.balancers.manage_security_groups:
        spec = SecurityGroupSpec(
            name=security_group.name_of(wish.owner, wish.namespace, wish.service),
            description=security_group.description_of(
                wish.namespace, wish.service, setup.cluster_name
            ),
            rules=security_group.rules_of(
                wish.spec,
                _member_cidr(desired, seen, setup),
                keeps_client_address=setup.features.provider == "ovn",
            ),
            machines=desired.request.machines,
        )
    planned = security_group.plan(wish.owner, spec, seen.groups)
    lines = [_line(one) for one in planned]
    last = [one for one in lines if isinstance(one.step, DetachSecurityGroup | DeleteSecurityGroup)]
    return (*(one for one in lines if one not in last),), (*last,)


def _member_cidr(desired: Desired, seen: Seen, setup: Setup) -> str:
    """Raises `Misconfigured` if the subnet of members is not visible."""
    subnet_id = _member_subnet(desired, seen, setup)
    subnet = seen.topology.subnet(subnet_id) if seen.topology else None
    if subnet is None:
        raise Misconfigured(
            "security group: the subnet of members is not visible. Fix: set "
            "member-subnet-id of [LoadBalancer] in cloud.conf, or manage-security-groups=false"
        )
    return subnet.cidr


def _floating(desired: Desired, seen: Seen, setup: Setup) -> Iterator[Change]:
    found = seen.found
    if found is None or not found.vip_port_id:
        return
    spec = floating_spec(
        desired,
        _floating_choice(desired, seen, setup),
        may_attach=is_primary(found, desired.owner),
        balancer=found,
    )
    yield from map(_line, floating_ip.plan(spec, found.vip_port_id, seen.floating_ips))


def _floating_choice(desired: Desired, seen: Seen, setup: Setup) -> FloatingChoice:
    """Returns where a floating IP would be created; nowhere if networks were not read."""
    if seen.topology is None or seen.found is None:
        return FloatingChoice()
    if not seen.topology.external:
        return _checked(desired, None)
    request = existing_request(desired, seen.found)
    chosen = networks.choose(request, seen.topology, setup.balancers, setup.config.classes)
    return _checked(desired, chosen.floating)


def _checked(desired: Desired, choice: FloatingChoice | None) -> FloatingChoice:
    """Returns the choice; if there is no external network, a requested address is a problem."""
    choice = choice or FloatingChoice()
    if choice.network_id or choice.problem or not desired.requested_address:
        return choice
    return FloatingChoice(
        problem=f"loadBalancerIP {one_line(desired.requested_address)}: there is no external "
        "network with IPv4, and no floating IP with this address. Fix: create one, or make the "
        "Service internal"
    )


def existing_request(desired: Desired, balancer: LoadBalancer) -> NetworkRequest:
    return replace(
        desired.request,
        existing_subnet_id=balancer.vip_subnet_id or "",
        existing_network_id=balancer.vip_network_id or "",
        port_id="",
    )


def network_notices(desired: Desired, seen: Seen, setup: Setup) -> Iterator[Notice]:
    """Yields a warning if an external network is missing, or was chosen among several."""
    found = seen.found
    if found is None or seen.topology is None or not desired.has_floating_ip:
        return
    if seen.floating_ips.on(found.vip_port_id or ""):
        return
    choice = _floating_choice(desired, seen, setup)
    if choice.notice:
        yield Notice("LoadBalancerFloatingNetworkChosen", choice.notice, is_warning=True)
    elif not choice.network_id and not choice.problem:
        yield Notice(
            "LoadBalancerForcedInternal",
            "there is no external network with IPv4: the load balancer has no floating IP, and its "
            "internal address is published. Fix: create an external network, or make the Service "
            "internal",
            is_warning=True,
        )


def _line(change: FloatingIpChange | SecurityGroupChange) -> Change:
    return Change(change.effect, change.summary, change, change.part)


def _ports(desired: Desired, seen: Seen, setup: Setup) -> Iterator[Change]:
    found, parts = seen.found, seen.parts
    if found is None or parts is None:
        return
    subnet = _member_subnet(desired, seen, setup)
    yield from PortPlan(desired, found, parts, subnet, _is_serial(setup), seen.draining).changes()


def _member_subnet(desired: Desired, seen: Seen, setup: Setup) -> str:
    """Returns the subnet of new members of an existing load balancer."""
    config, request = setup.balancers, desired.request
    of_class = setup.config.classes.get(request.class_name)
    configured = (
        request.asked.member_subnet_id
        or (of_class.member_subnet_id if of_class else "")
        or config.member_subnet_id
        or config.subnet_id
    )
    if configured or seen.subject is None:
        return configured
    parts = seen.parts or Parts()
    if not desired.context.wish.only_members:  # those of other Services may be elsewhere
        parts = parts.of(seen.subject, desired.name, desired.owner)
    known = {one.subnet_id for one in parts.members_of(parts.pools) if one.subnet_id}
    return min(known, default="") or seen.subject.vip_subnet_id or ""


def _stamp(wish: Wish, seen: Seen, setup: Setup) -> Iterator[Change]:
    """Yields the tag that says that everything is up to date: only in a full check.

    A load balancer that is created and a node that is added would cost another request otherwise,
    and another time in which Octavia is busy.
    """
    found = seen.found
    if found is None or seen.parts is None or not seen.is_full:
        return
    stamp = seen.stamp(setup.fingerprint(wish))
    old = tuple(tag for tag in seen.stamps if tag != stamp)
    if stamp in found.tags and not old:
        return
    step = TagBalancer(found.id, (stamp,), old)
    summary = f"tags of load balancer {found.id}: up to date"
    yield Change(Effect.UPDATE, summary, step, Part.RECORD)


def _deletion(wish: Wish, seen: Seen, setup: Setup) -> Iterator[Change]:
    values = annotations.ANNOTATIONS.parse(wish.options).values
    keeps = bool(values[annotations.KEEP_FLOATING_IP])
    found = seen.found
    if found is None and seen.ambiguous:
        raise Misconfigured(_unmarked(seen.ambiguous))
    for one in seen.duplicates:  # their parts are not read
        yield Change(Effect.DELETE, f"load balancer {one.id}", DeleteBalancer(one.id))
    if found is None:
        yield from _floating_leftovers(wish, seen, setup, is_kept=keeps)
        yield from _group_leftovers(wish, seen)
    elif is_deleted_whole(found, wish):
        yield from _floating_leftovers(wish, seen, setup, is_kept=keeps)
        yield from _removal_of_parts(found, seen, setup)
        yield _removal(found, setup)
        yield from _group_leftovers(wish, seen)
    else:
        heir = _heir(wish, found)
        yield from _floating_leftovers(wish, seen, setup, is_kept=keeps, heir=heir)
        yield from _release(wish, found, seen, setup)


def _heir(wish: Wish, balancer: LoadBalancer) -> Owner | None:
    """Returns which of the other Services the floating IP is deleted with from now on."""
    others = sorted(services_of(balancer.tags) - {wish.owner.uid})
    if not others or not was_created(balancer, wish.owner.cluster):
        return None
    return Owner(wish.owner.cluster, others[0])


def _unmarked(found: tuple[LoadBalancer, ...]) -> str:
    ids = " ".join(one.id for one in found)
    return (
        f"load balancer {ids} has the name and the address of this Service, but not its mark: the "
        "Service was deleted before the load balancer was taken over. Fix: openstack loadbalancer "
        f"delete --cascade {ids}. Fix, if it belongs to another cluster: rename it"
    )


def is_deleted_whole(balancer: LoadBalancer, wish: Wish) -> bool:
    """Whether the load balancer is deleted with this Service: no other one uses it.

    One that was not created for a Service of this cluster stays, whatever its name is.
    """
    others = services_of(balancer.tags) - {wish.owner.uid}
    is_ours = was_created(balancer, wish.owner.cluster)
    return is_ours and not others and len(go_tags(balancer.tags)) <= 1


def _goes_with_parts(balancer: LoadBalancer, setup: Setup) -> bool:
    """Octavia refuses to change parts of one in ERROR, so that they are deleted together."""
    has_failed = balancer.provisioning_status == Provisioning.ERROR
    return setup.balancers.cascade_delete or has_failed


def _removal(balancer: LoadBalancer, setup: Setup) -> Change:
    step = DeleteBalancer(balancer.id, with_parts=_goes_with_parts(balancer, setup))
    return Change(Effect.DELETE, f"load balancer {balancer.id}", step)


def _removal_of_parts(found: LoadBalancer, seen: Seen, setup: Setup) -> Iterator[Change]:
    if _goes_with_parts(found, setup) or seen.parts is None:
        return
    for listener in seen.parts.listeners:
        yield from deletion_of(listener, seen.parts)


def _group_leftovers(wish: Wish, seen: Seen) -> Iterator[Change]:
    if seen.groups is not None:
        for one in security_group.plan(wish.owner, None, seen.groups):
            yield replace(_line(one), is_final=True)


def _floating_leftovers(
    wish: Wish, seen: Seen, setup: Setup, *, is_kept: bool, heir: Owner | None = None
) -> Iterator[Change]:
    found = seen.found
    known = bool(wish.service)
    spec = FloatingIpSpec(
        owner=wish.owner,
        description=floating_ip.description_of(wish.namespace, wish.service, setup.cluster_name)
        if known
        else "",
        former=_description_at_creation(found),
        users=services_of(found.tags) if found else frozenset(),
        permits=for_tags(wish.owner.cluster, wish.namespace, wish.service),
        is_wanted=False,
        is_kept=is_kept,
        may_attach=found is not None and (heir is not None or is_deleted_whole(found, wish)),
        detaches=False,
        heir=heir,
        is_left_to_others=found is not None and not heir and not is_deleted_whole(found, wish),
    )
    port = found.vip_port_id or "" if found else ""
    yield from map(_line, floating_ip.plan(spec, port, seen.floating_ips))


def _release(wish: Wish, found: LoadBalancer, seen: Seen, setup: Setup) -> Iterator[Change]:
    """Yields what removes this Service from a load balancer that stays.

    All its listeners are deleted, also for ports that the Service no longer has. Tags of others
    stay. The tags of this Service are the last to go: until then it is found again by them.
    """
    parts = seen.parts or Parts()
    name = balancer_name(wish, setup.cluster_name) if wish.service else ""
    mine = [one for one in parts.listeners if is_mine(one, found, name, wish.owner)]
    for listener in mine:
        yield from deletion_of(listener, parts)
    if mine or seen.parts is None:
        return
    yield from _group_leftovers(wish, seen)
    yield _untag(wish, found, name, seen)


def _untag(wish: Wish, found: LoadBalancer, name: str, seen: Seen) -> Change:
    """The tag of a Service whose name is not known is one that no listener has any more."""
    cluster, service = tags_of(wish.owner)
    others = services_of(found.tags) - {wish.owner.uid}
    listeners = seen.parts.listeners if seen.parts else ()
    used = {tag for one in listeners for tag in one.tags}
    names = {name} if name else go_tags(found.tags) - used
    drop = (service, *sorted(names), *seen.stamps, *(() if others else (cluster,)))
    step: Step = TagBalancer(found.id, (), tuple(tag for tag in drop if tag in found.tags))
    return Change(Effect.UPDATE, f"tags of load balancer {found.id}: no longer used", step)
