"""What must hold at the end, after a while without faults and changes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, ip_network

from pileus.cloud.abilities import DEFAULT_AFFINITY_SECONDS, Abilities
from pileus.cloud.balancer import BalancerSpec, Owner, Transport
from pileus.cloud.model import InstanceState
from pileus.controllers.ipam.descriptor import IPAM
from pileus.controllers.lifecycle.descriptor import LIFECYCLE
from pileus.controllers.node.descriptor import NODE
from pileus.controllers.node.labels import INSTANCE_TYPE, ZONE
from pileus.controllers.route.descriptor import ROUTE
from pileus.controllers.service.descriptor import SERVICE
from pileus.controllers.ssh_keys.descriptor import SSH_KEYS
from pileus.objects.nodes import UNINITIALIZED
from pileus_lab.apiserver.tree import Obj, branch, number, rows, text, texts, words
from pileus_lab.simulation.clouds.second import ADDRESS, INGRESS
from pileus_lab.simulation.clouds.truth import Balancer, Machine, Port, Traffic
from pileus_lab.simulation.environment.cluster import ready_status
from pileus_lab.simulation.environment.operators import (
    KEYS_KNOWN,
    KEYS_NAME,
    NEVER,
    NONE,
    public_key,
)
from pileus_lab.simulation.environment.users import UNTRUE
from pileus_lab.simulation.invariants.abilities import families_of
from pileus_lab.simulation.invariants.always import GO_OWNERSHIP, IMMEDIATE, KEEPING
from pileus_lab.simulation.invariants.calls import NOTHING_LEFT_OVER
from pileus_lab.simulation.invariants.facts import (
    DELETION,
    READY,
    STUCK,
    Facts,
    about,
    conditions_of,
    counts_as_member,
    has_taint,
    ingress_of,
    is_approved,
    is_new,
    is_unchecked,
    reason_of,
    with_address,
)
from pileus_lab.simulation.invariants.service_history import has_finalizer
from pileus_lab.simulation.invariants.steady_state import no_balancer_is_left_behind
from pileus_lab.simulation.invariants.untouched import (
    events_are_about_those_they_name,
    texts_of_users_are_no_commands,
    users_reach_no_balancer_of_others,
)
from pileus_lab.simulation.invariants.volumes import FOR_VOLUMES
from pileus_lab.simulation.kinds import SIMULATED, FaultKind
from pileus_lab.simulation.schedule import Spell
from pileus_lab.simulation.setup import SECRET

KNOWN = frozenset(map(public_key, range(KEYS_KNOWN)))


def machines_have_the_wanted_keys(facts: Facts) -> Iterator[str]:
    """Each desired key exists, and no other one of ours, if the desired keys are known."""
    entries = _entries(facts)
    nodes = [one for one in facts.cluster.objects("nodes") if facts.machine_of(one)]
    if not facts.runs(SSH_KEYS.canonical) or entries is None or not nodes:
        return
    wanted = {(user, key) for user, key in entries.items() if key in KNOWN}
    is_whole = all(key in KNOWN or key == NONE for key in entries.values())
    keys = facts.account.truth().keys.values()
    there = {(one.user, one.public_key) for one in keys}
    ours = {(one.user, one.public_key) for one in keys if one.cluster == facts.cluster_id}
    for user, key in sorted(wanted - there):
        yield f"user {user} cannot log in with {key}"
    for user, key in sorted(ours - wanted) if is_whole else ():
        yield f"user {user} can still log in with {key}"


def _entries(facts: Facts) -> dict[str, str] | None:
    """The desired keys; None: unknown."""
    for one in facts.cluster.objects("configmaps"):
        if text(one, "metadata", "name") == KEYS_NAME:
            return dict(words(one, "data"))
    return None


def secrets_stay_secret(facts: Facts) -> Iterator[str]:
    """No secret of a manager is in a trace, event, object, log or metric."""
    if any(SECRET in line for line in facts.trace.lines):
        yield "a secret is in the trace"
    for resource in ("events", "nodes", "services"):
        if SECRET in str(facts.cluster.objects(resource)):
            yield f"a secret is in {resource}"
    for where in facts.sayings.leaks():
        yield f"a secret is in {where}"


def no_manager_caught_an_unexpected_exception(facts: Facts) -> Iterator[str]:
    """Passes and rounds are isolated, so a bug in them could go unnoticed otherwise."""
    yield from facts.sayings.unexpected()


MISPLACED = "Misconfigured"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"

GONE = "CloudProviderInstanceGone"

Quiet = Callable[[Facts], Iterator[str]]


def somebody_leads(facts: Facts) -> Iterator[str]:
    for lease in facts.leases():
        leader = facts.cluster.leader(lease)
        if leader not in facts.living():
            yield f"the holder of lease {lease}, {leader or 'none'}, has ended or is frozen"


def no_watch_is_dead(facts: Facts) -> Iterator[str]:
    """A watch that sends nothing any more was noticed and restarted."""
    for watch in facts.cluster.watches:
        if watch.is_dead:
            yield f"the watch of {watch.name} sends nothing any more"


def nodes_are_as_their_machines(facts: Facts) -> Iterator[str]:
    """Every node of a running machine is initialized, and its fields are correct."""
    if not facts.runs(NODE.canonical):
        return
    for node in facts.cluster.objects("nodes"):
        machine = None if facts.is_foreign(node) else facts.machine_of(node)
        if machine is None or (is_new(node) and machine.state is not InstanceState.RUNNING):
            continue
        for wrong in _differences(node, machine):
            yield f"node {text(node, 'metadata', 'name')}: {wrong}"


def _differences(node: Obj, machine: Machine) -> Iterator[str]:
    if is_new(node):
        yield "it is not initialized"
        return
    if text(node, "spec", "providerID") != machine.provider_id:
        yield f"its provider ID is not that of {machine.id}"
    labels = words(node, "metadata", "labels")
    for keys, value in ((ZONE, machine.zone), (INSTANCE_TYPE, machine.type)):
        for key in keys:
            if labels.get(key, "") != value:
                yield f"its label {key} is {labels.get(key)}, not {value}"
    if conditions_of(node).get(STUCK) == "True":
        yield "it still reports that it is not initialized"
    have = [(text(one, "type"), text(one, "address")) for one in rows(node, "status", "addresses")]
    want = [(one.type, one.address) for one in machine.addresses]
    if want and sorted(have) != sorted(want):
        yield f"its addresses are {have}, not {want}"


def nodes_of_no_machine_are_gone(facts: Facts) -> Iterator[str]:
    """They are deleted, or report why they are kept, and the reason is correct."""
    if not facts.runs(LIFECYCLE.canonical):
        return
    ours = [node for node in facts.cluster.objects("nodes") if not facts.is_foreign(node)]
    gone = [node for node in ours if facts.machine_of(node) is None]
    are_too_many = _are_too_many(facts, ours, gone)
    for node in gone:
        why = _why_kept(node)
        too_many = why == "TooManyNodesGone" and are_too_many
        unproven = why == "NeverInitialized" and not text(node, "spec", "providerID")
        if why == "DeletionVetoed" and is_vetoed(node):
            continue
        if facts.policy in KEEPING:
            kept = why == "NodeKeptByPolicy" or (is_approved(node) and why)
        else:
            kept = facts.policy != IMMEDIATE and not is_approved(node) and (too_many or unproven)
        if not kept:
            yield f"node {text(node, 'metadata', 'name')} has no machine, and is kept: {why}"


def _are_too_many(facts: Facts, ours: Sequence[Obj], gone: Sequence[Obj]) -> bool:
    """Whether the limit keeps them. Unproven ones and those decided by a user do not count."""
    proven = [node for node in ours if text(node, "spec", "providerID")]
    counted = [n for n in gone if n in proven and not is_vetoed(n) and not is_approved(n)]
    return len(counted) > max(1, int(facts.fraction * len(proven)))


def _why_kept(node: Obj) -> str:
    for one in rows(node, "status", "conditions"):
        if text(one, "type") == GONE and text(one, "status") == "True":
            return text(one, "reason")
    return ""


def stopped_nodes_are_tainted(facts: Facts) -> Iterator[str]:
    if not facts.runs(LIFECYCLE.canonical):
        return
    for node in facts.cluster.objects("nodes"):
        machine = None if facts.is_foreign(node) else facts.machine_of(node)
        tainted = has_taint(node, SHUTDOWN)
        stopped = machine is not None and machine.state is InstanceState.STOPPED
        if stopped and ready_status(node) != "True" and not tainted:
            yield f"node {text(node, 'metadata', 'name')} is stopped and has no taint"
        if tainted and ready_status(node) == "True":
            yield f"node {text(node, 'metadata', 'name')} is ready and has the taint"


def services_have_what_they_want(facts: Facts) -> Iterator[str]:
    """Each Service that needs a balancer has a complete one and publishes its address."""
    if not facts.runs(SERVICE.canonical):
        return
    keeps_members = facts.keeps_members()
    for service in facts.cluster.objects("services"):
        if not facts.wants_balancer(service) or facts.is_impossible(service):
            continue
        balancer = facts.balancer_of(_uid(service))
        if keeps_members and balancer is not None and balancer.members:
            if reason_of(service, READY) == "Pending":
                yield about(service, ": its balancer is still pending")
            continue
        if balancer is None and facts.is_placeless() and reason_of(service, READY) == MISPLACED:
            continue
        missing = iter(["it has no balancer"])
        wrong = missing if balancer is None else _lacks(facts, service, balancer)
        for one in wrong:
            yield about(service, f": {one}")


def _lacks(facts: Facts, service: Obj, balancer: Balancer) -> Iterator[str]:
    members = facts.members()
    if not has_finalizer(service):
        yield "it has no finalizer"
    if sorted(balancer.addresses) != sorted(ingress_of(service)):
        yield f"it publishes {ingress_of(service)}, not {balancer.addresses}"
    if balancer.is_noted is False and _keeps_notes(facts):
        late = any(isinstance(one, Spell) and one.kind in LATE for one in facts.schedule.items)
        why = (
            "perhaps a request that took effect late removed it"
            if late
            else "nothing has written it again"
        )
        yield f"{balancer.id} has no note that it is complete (is_noted), and {why}"
    yield from _misses(facts, balancer, members)
    if facts.abilities.members_by_provider_id:
        members = [node for node in members if text(node, "spec", "providerID")]
    members = [one for one in members if not is_unchecked(one) or _is_in(balancer, one)]
    reason = "LoadBalancerReady" if members else "NoMembers"
    if reason_of(service, READY) != reason:
        yield f"its condition says {reason_of(service, READY)}, not {reason}"
    yield from _misdirects(facts.abilities, service, balancer)


LATE = frozenset({FaultKind.CLOUD_AFTERWARDS, FaultKind.CLOUD_LATE})
"""Faults by which a request takes effect after a newer one."""


def _is_in(balancer: Balancer, node: Obj) -> bool:
    return text(node, "metadata", "name") in balancer.members


def _keeps_notes(facts: Facts) -> bool:
    """Whether lost notes are renewed by then. Ported providers keep none in the cloud.

    Where only a full check writes them, and only if nothing else is to be changed, the second one
    after a change may be too late.
    """
    is_late = facts.abilities.notes_at_full_check
    return facts.schedule.setup.repairs and facts.account.offered.knows_leftovers and not is_late


def _misses(facts: Facts, balancer: Balancer, members: Sequence[Obj]) -> Iterator[str]:
    """Which members are wrong, or lead to another machine than that of the node."""
    names = frozenset(text(node, "metadata", "name") for node in members)
    must = frozenset(text(one, "metadata", "name") for one in members if not is_unchecked(one))
    if facts.abilities.members_by_provider_id:
        known = (node for node in members if text(node, "spec", "providerID"))
        there = (node for node in known if facts.machine_of(node) is not None)
        must &= frozenset(text(node, "metadata", "name") for node in there)
    off = frozenset[str]()
    if facts.abilities.members_running:
        found = facts.account.truth().machines
        off = frozenset(one.name for one in found if one.state is not InstanceState.RUNNING)
        must -= off - balancer.members
    if facts.abilities.members_by_address:
        must &= with_address(members, besides=balancer.members)
    if not must <= balancer.members <= names:
        yield f"{balancer.id} leads to {sorted(balancer.members)}, not {sorted(must)}"
    identified = [one for one in members if text(one, "spec", "providerID") and not is_new(one)]
    known = [facts.machine_of(node) for node in identified]
    machines = {one.id for one in known if one is not None and one.name not in off}
    if balancer.machines is not None and not machines <= balancer.machines:
        yield f"{balancer.id} does not know {sorted(machines - balancer.machines)}"


def _misdirects(able: Abilities, service: Obj, balancer: Balancer) -> Iterator[str]:
    """What is wrong with the listeners and the traffic settings."""
    wanted = frozenset(
        Port(number(one, "port"), number(one, "nodePort"), Transport(text(one, "protocol")))
        for one in rows(service, "spec", "ports")
    )
    if not balancer.members and any(one.node_port == 0 for one in balancer.ports):
        wanted = frozenset(replace(one, node_port=0) for one in wanted)
    if balancer.ports != wanted:
        yield f"{balancer.id} listens on {sorted(balancer.ports)}, not {sorted(wanted)}"
    ranges = frozenset(texts(service, "spec", "loadBalancerSourceRanges"))
    if balancer.source_ranges != ranges:
        yield f"{balancer.id} accepts {sorted(balancer.source_ranges)}, not {sorted(ranges)}"
    families = frozenset(families_of(able, service))
    if balancer.families is not None and balancer.families != families:
        yield f"{balancer.id} has {sorted(balancer.families)}, not {sorted(families)}"
    wished = _traffic_of(able, service)
    if balancer.traffic not in {None, wished}:
        yield f"{balancer.id} does {balancer.traffic}, not {wished}"


def _traffic_of(able: Abilities, service: Obj) -> Traffic:
    is_sticky = text(service, "spec", "sessionAffinity") == "ClientIP"
    config = branch(service, "spec", "sessionAffinityConfig", "clientIP")
    seconds = number(config, "timeoutSeconds") or DEFAULT_AFFINITY_SECONDS
    return Traffic(
        affinity_seconds=able.stickiness(seconds if is_sticky else None),
        health_port=number(service, "spec", "healthCheckNodePort") or None,
    )


def what_cannot_be_done_is_told(facts: Facts) -> Iterator[str]:
    """A Service with an impossible spec reports exactly that, not an earlier failure."""
    if not facts.runs(SERVICE.canonical):
        return
    for service in facts.cluster.objects("services"):
        if not (facts.wants_balancer(service) and facts.is_impossible(service)):
            continue
        said = rows(service, "status", "conditions")
        why = [text(one, "message") for one in said if text(one, "type") == READY]
        if conditions_of(service).get(READY) != "False":
            yield about(service, " does not report its failure")
        elif any(SIMULATED in one for one in why):
            yield about(service, " still reports an earlier failure")


def services_keep_nothing_else(facts: Facts) -> Iterator[str]:
    """A Service that needs no balancer has no finalizer and no address."""
    if not facts.runs(SERVICE.canonical):
        return
    services = facts.cluster.objects("services")
    wanting = {_uid(one) for one in services if facts.wants_balancer(one)}
    for service in services:
        if _uid(service) in wanting or facts.is_of_second(service):
            continue
        if has_finalizer(service):
            yield about(service, " still has the finalizer")
        if {*ingress_of(service)} - ({UNTRUE} if facts.is_of_another_class(service) else set()):
            yield about(service, " still publishes an address")


def routes_lead_to_all_nodes(facts: Facts) -> Iterator[str]:
    """Each usable pod range has a route to a node that has the range, and no other range has one.

    A range has no route if the oldest node that has it has no machine: the range stays reserved for
    that node while the node exists. A route stays that no manager can tell from another cluster's
    (`_may_be_of_others`): the node that has the range then reports that it lacks a route.
    """
    if not facts.runs(ROUTE.canonical):
        return
    machines = _with_machines(facts)
    wanted: dict[str, set[str]] = {}
    unchecked: set[str] = set()
    """Ranges of nodes that get no route before they are accepted; they keep the one they have."""
    stale: set[str] = set()
    """Routes of nodes that are kept without a machine, if no round removes useless routes."""
    for node in facts.cluster.objects("nodes"):
        for cidr in texts(node, "spec", "podCIDRs"):
            name = text(node, "metadata", "name")
            if is_unchecked(node):
                unchecked.add(cidr)
            elif name in machines and is_usable(facts, cidr):
                wanted.setdefault(cidr, set()).add(name)
            elif not facts.schedule.setup.repairs:
                stale.add(cidr)
    made = facts.account.truth().routes.values()
    ours = {one.destination: one.target for one in made if one.id in facts.made_by_managers}
    theirs = {one.destination for one in made} - ours.keys()
    oldest = _oldest_by_range(facts)
    reserved = {one for one, name in oldest.items() if one not in ours and name not in machines}
    # Without marks, routes of nodes that were deleted while no manager ran cannot be identified.
    found = ours.keys() if facts.abilities.marks_routes else ours.keys() & oldest.keys()
    checked = {*wanted, *found}
    for cidr in sorted(checked - theirs - stale - reserved - unchecked):
        names = wanted.get(cidr, {None})
        target = ours.get(cidr)
        if target not in names and not (target and _may_be_of_others(facts, target)):
            yield f"{cidr} leads to {target}, not to {' or '.join(map(str, names))}"


def _may_be_of_others(facts: Facts, target: str) -> bool:
    """Whether nothing says that the route to a machine was this cluster's.

    The cloud neither marks routes nor knows machines by name, the machine is of no node, and the
    leader never heard of a node that had it: the route of a second cluster on the same router would
    look the same.
    """
    able = facts.abilities
    if GO_OWNERSHIP in facts.schedule.setup.arguments:
        return False
    if able.marks_routes or not (able.members_by_provider_id or able.members_by_address):
        return False
    if target not in {one.name for one in facts.account.truth().machines}:
        return False
    former = facts.named.get(("nodes", "", target), set())
    return target not in _with_machines(facts) and facts.leader_never_heard_of(former)


def _with_machines(facts: Facts) -> set[str]:
    """Names that have a machine; where the cloud knows machines by ID, the node's very own."""
    able = facts.abilities
    if not (able.members_by_provider_id or able.members_by_address):
        return {one.name for one in facts.account.truth().machines}
    nodes = facts.cluster.objects("nodes")
    return {text(one, "metadata", "name") for one in nodes if facts.machine_of(one) is not None}


def _oldest_by_range(facts: Facts) -> dict[str, str]:
    """Returns, for each pod range, the name of the oldest node that has it."""

    def age(node: Obj) -> tuple[str, str]:
        return text(node, "metadata", "creationTimestamp"), text(node, "metadata", "name")

    ours = (node for node in facts.cluster.objects("nodes") if not facts.is_foreign(node))
    return {
        cidr: text(node, "metadata", "name")
        for node in sorted(ours, key=age, reverse=True)
        for cidr in texts(node, "spec", "podCIDRs")
    }


def is_usable(facts: Facts, cidr: str) -> bool:
    """Whether a route may lead there: destinations outside of the cluster's ranges are not ours."""
    network = ip_network(cidr)
    ranges = map(ip_network, facts.schedule.setup.cluster_cidrs)
    return any(one.version == network.version and _is_within(network, one) for one in ranges)


def nodes_say_that_routes_lead_to_them(facts: Facts) -> Iterator[str]:
    """Or that none is possible: the machine does not exist, or a route of others blocks it."""
    if not facts.runs(ROUTE.canonical):
        return
    truth = facts.account.truth()
    routes = {(one.destination, one.target) for one in truth.routes.values()}
    taken, machines = {cidr for cidr, _ in routes}, _with_machines(facts)
    ours = (one for one in facts.cluster.objects("nodes") if not facts.is_foreign(one))
    for node in ours:
        name, cidrs = text(node, "metadata", "name"), texts(node, "spec", "podCIDRs")
        said = conditions_of(node).get("NetworkUnavailable")
        reached = bool(cidrs) and all((cidr, name) in routes for cidr in cidrs)
        unknown = name not in machines and not taken.isdisjoint(cidrs)
        barred = bool(cidrs) and not reached and not unknown
        if reached and said != "False":
            yield f"node {name} has its routes and does not report it"
        if barred and said != "True":
            yield f"node {name} lacks a route and does not report it"


def nodes_have_ranges(facts: Facts) -> Iterator[str]:
    if not facts.runs(IPAM.canonical):
        return
    nodes = facts.cluster.objects("nodes")
    given = {cidr for node in nodes for cidr in texts(node, "spec", "podCIDRs")}
    if len(given) >= facts.schedule.setup.pod_ranges:
        return
    for node in nodes:
        if not texts(node, "spec", "podCIDRs"):
            yield f"node {text(node, 'metadata', 'name')} has no pod range"


def the_second_cloud_serves_its_own(facts: Facts) -> Iterator[str]:
    """Its node matches its machine, and its Service has a balancer with exactly that member."""
    if facts.second is None:
        return
    nodes = [one for one in facts.cluster.objects("nodes") if facts.is_of_second(one)]
    for node in nodes:
        wrong = _lacks_as_second_node(node)
        yield from (f"node {text(node, 'metadata', 'name')} of the second cloud {x}" for x in wrong)
    members = [text(one, "metadata", "name") for one in nodes if counts_as_member(one)]
    wanted = [one for one in facts.cluster.objects("services") if facts.is_of_second(one)]
    balancers = facts.second.balancers
    if len(balancers) != len(wanted):
        yield f"the second cloud has {len(balancers)} balancers for {len(wanted)} Services"
    for service in wanted:
        spec = balancers.get(Owner(facts.cluster_id, _uid(service)))
        is_kept = spec is not None and spec.members and facts.keeps_members_of_second()
        wrong = _misreports_kept(service) if is_kept else _lacks_in_second(service, spec)
        yield from (about(service, f": {one}") for one in wrong)
    for owner, spec in () if facts.keeps_members_of_second() else balancers.items():
        found = sorted(ref.name for ref in spec.members)
        if found != members:
            of = next((about(one, "") for one in wanted if _uid(one) == owner.uid), "no Service")
            yield f"a balancer of the second cloud has the members {found}, not {members}: {of}"


def _misreports_kept(service: Obj) -> Iterator[str]:
    if reason_of(service, READY) != "Misconfigured":
        yield f"its members are kept, and it reports {reason_of(service, READY)}"


def _lacks_as_second_node(node: Obj) -> Iterator[str]:
    if has_taint(node, UNINITIALIZED):
        yield "is not initialized"
    addresses = [text(one, "address") for one in rows(node, "status", "addresses")]
    if addresses != [ADDRESS]:
        yield f"has {addresses}"


def _lacks_in_second(service: Obj, spec: BalancerSpec | None) -> Iterator[str]:
    """What the Service of the second cloud, or its balancer, lacks."""
    ports = {number(one, "port") for one in rows(service, "spec", "ports")}
    if spec is None or {one.port for one in spec.listeners} != ports:
        yield f"the second cloud has no balancer with the ports {sorted(ports)}"
    if not has_finalizer(service):
        yield "it has no finalizer"
    if ingress_of(service) != [INGRESS]:
        yield f"it publishes {ingress_of(service)}, not {[INGRESS]}"


QUIET: Mapping[str, Quiet] = {
    check.__name__: check
    for check in (
        somebody_leads,
        the_second_cloud_serves_its_own,
        no_watch_is_dead,
        nodes_are_as_their_machines,
        nodes_of_no_machine_are_gone,
        stopped_nodes_are_tainted,
        services_have_what_they_want,
        what_cannot_be_done_is_told,
        services_keep_nothing_else,
        no_balancer_is_left_behind,
        routes_lead_to_all_nodes,
        nodes_say_that_routes_lead_to_them,
        nodes_have_ranges,
        machines_have_the_wanted_keys,
        *FOR_VOLUMES,
        *NOTHING_LEFT_OVER,
        events_are_about_those_they_name,
        texts_of_users_are_no_commands,
        users_reach_no_balancer_of_others,
        secrets_stay_secret,
        no_manager_caught_an_unexpected_exception,
    )
}


def is_vetoed(node: Obj) -> bool:
    return words(node, "metadata", "annotations").get(DELETION) == NEVER


def _is_within(one: IPv4Network | IPv6Network, other: IPv4Network | IPv6Network) -> bool:
    first, last = int(other.network_address), int(other.broadcast_address)
    return first <= int(one.network_address) and int(one.broadcast_address) <= last


def _uid(service: Obj) -> str:
    return text(service, "metadata", "uid")
