"""What must hold at every step. Each function returns what is wrong, or nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import TypeVar

from pileus.controllers.node.labels import INSTANCE_TYPE, REGION, ZONE
from pileus_lab.apiserver.tree import Obj, number, rows, text, texts, words
from pileus_lab.simulation.clouds.second import INGRESS
from pileus_lab.simulation.clouds.truth import Machine, Route
from pileus_lab.simulation.environment.cluster import OF_VOLUMES, ready_status
from pileus_lab.simulation.environment.kubelets import is_pretender
from pileus_lab.simulation.environment.operators import NEVER
from pileus_lab.simulation.environment.steps import (
    Answer,
    Call,
    CloudStep,
    HostStep,
    ObjectStep,
    Step,
)
from pileus_lab.simulation.invariants import calls, untouched
from pileus_lab.simulation.invariants.facts import (
    DELETION,
    Facts,
    ingress_of,
    is_approved,
    is_new,
    is_unchecked,
    things_in,
)
from pileus_lab.simulation.invariants.limits import RANGES
from pileus_lab.simulation.invariants.service_history import (
    has_finalizer,
    is_left_to_others,
    is_manager,
)
from pileus_lab.simulation.invariants.volumes import (
    attachments_stay_until_volumes_are_detached,
    claims_get_one_volume,
    mounted_volumes_are_not_detached,
    only_own_classes_get_volumes,
    pods_read_what_pods_wrote,
    pods_that_only_read_cannot_write,
    volumes_are_attached_once,
    volumes_are_mounted_on_one_machine,
    volumes_for_readers_stay_as_they_are,
    volumes_outlive_their_claims,
    volumes_stay_where_pods_are,
    volumes_with_data_are_never_formatted,
)


def initialized_nodes_have_their_facts(facts: Facts, step: ObjectStep) -> str | None:
    """Provider ID, labels and addresses are on a node before its taint is removed."""
    before, after = step.before, step.after
    if step.resource != "nodes" or not is_manager(step.who) or before is None or after is None:
        return None
    if not is_new(before) or is_new(after):
        return None
    name = text(after, "metadata", "name")
    machine = facts.machines.get(text(after, "spec", "providerID"))
    if machine is None:
        return f"node {name} was initialized without the provider ID of a machine"
    wrong = next(_lacking(after, machine), None)
    return f"node {name} was initialized, but {wrong}" if wrong else None


def _lacking(node: Obj, machine: Machine) -> Iterator[str]:
    labels = words(node, "metadata", "labels")
    wanted = ((ZONE, machine.zone), (REGION, machine.region), (INSTANCE_TYPE, machine.type))
    for key, value in ((key, value) for keys, value in wanted for key in keys if value):
        if labels.get(key) != value:
            yield f"its label {key} is {labels.get(key)}, not {value}"
    have = {(text(one, "type"), text(one, "address")) for one in rows(node, "status", "addresses")}
    want = {(str(one.type), one.address) for one in machine.addresses}
    if have != want:
        yield f"its addresses are {have}, not {want}"


def addresses_keep_their_order(_: Facts, step: ObjectStep) -> str | None:
    """The first address of each type is the main one: it does not change while it exists."""
    before, after = step.before, step.after
    if not is_manager(step.who) or before is None or after is None:
        return None
    was, now = _addresses(before), _addresses(after)
    for kind, addresses in now.items():
        stayed = [one for one in was.get(kind, ()) if one in addresses]
        if stayed != [one for one in addresses if one in stayed]:
            name = text(after, "metadata", "name")
            return f"{step.resource}/{name}: {kind} was {was[kind]} and is {addresses}"
    return None


def _addresses(thing: Obj) -> Mapping[str, Sequence[str]]:
    """Addresses by type; of a Service, those that it publishes."""
    found: dict[str, list[str]] = {"ingress": ingress_of(thing)}
    for one in rows(thing, "status", "addresses"):
        found.setdefault(text(one, "type"), []).append(text(one, "address"))
    return found


def vetoes_are_obeyed(_: Facts, step: ObjectStep) -> str | None:
    """No node is deleted whose annotation forbids it."""
    node = _deleted(step)
    if words(node, "metadata", "annotations").get(DELETION) != NEVER:
        return None
    return f"node {text(node, 'metadata', 'name')} was deleted; {DELETION} says {NEVER}"


def no_ready_node_is_deleted(_: Facts, step: ObjectStep) -> str | None:
    """A node whose kubelet reports is not deleted, whatever the cloud answers."""
    node = _deleted(step)
    if node is None or ready_status(node) != "True":
        return None
    return f"node {text(node, 'metadata', 'name')} was deleted although it is ready"


def _deleted(step: ObjectStep) -> Obj | None:
    """The node that a manager deleted."""
    is_deletion = step.resource == "nodes" and is_manager(step.who) and step.after is None
    return step.before if is_deletion else None


GRACE = 30.0
"""Default of `--node-deletion-grace`."""
WINDOW = 600.0
"""Default of `--node-deletion-window`."""
IMMEDIATE, KEEPING = "immediate", frozenset({"taint", "report"})
"""Values of `--node-deletion-policy`: the one that needs one check, and the one that never
deletes."""
SETTLED = 60.0
"""Seconds after which every manager should know a node."""

LIE = 60.0
"""Seconds in which a false answer may still affect the process that received it."""

S = TypeVar("S")
Check = Callable[[Facts, S], str | None]


GO_OWNERSHIP = "--route-ownership=cluster-cidr"


def others_things_are_left_alone(facts: Facts, step: CloudStep) -> str | None:
    """No manager changes or deletes anything in the cloud that no manager created."""
    if not is_manager(step.who):
        return None
    after, ours = things_in(step.after), facts.made_by_managers
    for identity, thing in things_in(step.before).items():
        if identity in ours or _may_be_ours(facts, thing):
            continue
        if after.get(identity) != thing:
            return f"{identity} is not ours: {thing} became {after.get(identity)}"
    return None


def _may_be_ours(facts: Facts, thing: object) -> bool:
    """Whether it is a route without a mark, to exactly the range that a node has or had.

    Where routes do not say whose they are, such a route counts as the cluster's; by the rule of the
    Go framework, every route to a part of the cluster's range does.
    """
    if not isinstance(thing, Route) or facts.abilities.marks_routes or thing.cluster is not None:
        return False
    if GO_OWNERSHIP in facts.schedule.setup.arguments:
        there, ranges = ip_network(thing.destination), facts.schedule.setup.cluster_cidrs
        return any(there.overlaps(each) for each in map(ip_network, ranges))
    return thing.destination in facts.things.get(RANGES, set())


def who_claims_the_machine_of_another_is_not_initialized(_: Facts, step: ObjectStep) -> str | None:
    if not _is_by_manager(step, "nodes") or step.before is None or step.after is None:
        return None
    had, has = (rows(one, "status", "addresses") for one in (step.before, step.after))
    is_let_in = is_new(step.before) and not is_new(step.after)
    if not is_pretender(step.before) or (had == has and not is_let_in):
        return None
    return f"{text(step.before, 'metadata', 'name')} got the identity of another node's machine"


def no_node_is_deleted_whose_machine_exists(facts: Facts, step: ObjectStep) -> str | None:
    node = _deleted_node(step)
    if node is None:
        return None
    name = text(node, "metadata", "name")
    if facts.is_foreign(node):
        return f"node {name} of another cloud was deleted"
    if facts.policy == IMMEDIATE and facts.now() - facts.misled.get(step.who, -LIE) < LIE:
        return None
    machine = facts.machine_of(node)
    return f"node {name} was deleted, but {machine.id} exists" if machine else None


def no_node_is_deleted_within_the_grace(facts: Facts, step: ObjectStep) -> str | None:
    """The grace is between two checks; the first may have been a false answer that came true."""
    node = _deleted_node(step)
    if facts.policy == IMMEDIATE:
        return None
    gone = facts.account.gone_since.get(text(node, "spec", "providerID")) if node else None
    seconds = GRACE if gone is None else facts.account.now() - gone
    if seconds >= GRACE or _is_looked_for_before(facts, seconds):
        return None
    return f"node {text(node, 'metadata', 'name')} was deleted {seconds:.1f} s after its machine"


def _is_looked_for_before(facts: Facts, seconds: float) -> bool:
    """Whether the leader got a false answer about machines a grace ago, before it came true."""
    now = facts.now()
    lies = [at for leader in facts.leaders(facts.leases()) for at in facts.denied.get(leader, ())]
    return any(GRACE <= now - at < seconds + LIE for at in lies)


def nodes_are_kept_where_people_want_it(facts: Facts, step: ObjectStep) -> str | None:
    node = _deleted_node(step)
    if node is None or facts.policy not in KEEPING:
        return None
    return f"node {text(node, 'metadata', 'name')} was deleted; the policy is {facts.policy}"


def few_nodes_are_deleted_at_once(facts: Facts, step: ObjectStep) -> str | None:
    """Without approval one leader deletes at most a fifth of the nodes in ten minutes, or one."""
    node = _deleted_node(step)
    if node is None or is_approved(node) or facts.policy == IMMEDIATE:
        return None
    leader, now = facts.cluster.leader(), facts.now()
    before = sum(1 for who, at in facts.deleted if who == leader and now - at < WINDOW)
    nodes = len(facts.cluster.objects("nodes")) + before + 1
    limit = max(1, int(facts.fraction * nodes + 1e-6))
    return f"{leader} deleted {before + 1} of {nodes} nodes" if before + 1 > limit else None


def the_finalizer_comes_before_the_balancer(facts: Facts, step: CloudStep) -> str | None:
    if not is_manager(step.who):
        return None
    for identity, balancer in step.after.balancers.items():
        if identity in step.before.balancers:
            continue
        owner = balancer.twin_of or balancer.owner
        if owner is None:
            return f"{identity} was created without a mark: its owner is unknown"
        if owner.uid not in facts.finalized:
            return f"Service {owner.uid} had no finalizer"
    return None


def the_finalizer_goes_when_nothing_is_left(facts: Facts, step: ObjectStep) -> str | None:
    if not _is_by_manager(step, "services"):
        return None
    before, after = step.before, step.after
    if before is None or not has_finalizer(before) or (after and has_finalizer(after)):
        return None
    if is_left_to_others(after or before):
        return None
    uid = text(before, "metadata", "uid")
    left = facts.left_in_any_cloud(uid)
    return f"Service {uid} lost its finalizer, but {left} is left" if left else None


def members_are_never_emptied(facts: Facts, step: CloudStep) -> str | None:
    """No balancer loses all members while nodes exist that have long been known.

    For one that is deleted see `nothing_wanted_is_deleted`.
    """
    if not is_manager(step.who):
        return None
    for identity, balancer in step.after.balancers.items():
        before = step.before.balancers.get(identity)
        if before is None or not before.members or balancer.members or balancer.is_remains:
            continue
        known = [n for n, since in facts.member_since.items() if facts.now() - since > SETTLED]
        unchecked = _unchecked(facts) - before.members
        known = [name for name in known if name not in unchecked]
        if facts.abilities.members_by_provider_id:
            known = [name for name in known if name in _identified(facts)]
        if facts.abilities.members_by_address:
            known = [name for name in known if name not in _never_addressed(facts)]
        owner = balancer.owner.uid if balancer.owner else ""
        if known and not facts.is_bidden_farewell(owner) and facts.is_wanted(owner):
            return f"{identity} lost all members, though {', '.join(known)} should be members"
    return None


def _identified(facts: Facts) -> set[str]:
    """Names of nodes with a provider ID, whose machine exists."""
    nodes = [one for one in facts.cluster.objects("nodes") if text(one, "spec", "providerID")]
    return {text(one, "metadata", "name") for one in nodes if facts.machine_of(one) is not None}


def _unchecked(facts: Facts) -> set[str]:
    nodes = facts.cluster.objects("nodes")
    return {text(one, "metadata", "name") for one in nodes if is_unchecked(one)}


ADDRESSED = 600.0
"""Seconds after which members of nodes that left need not wait for a node that gets no address:
their addresses may get other machines."""


def _never_addressed(facts: Facts) -> set[str]:
    """Names of nodes that have been there for long, without an address."""
    nodes = [one for one in facts.cluster.objects("nodes") if not rows(one, "status", "addresses")]
    names, now = {text(one, "metadata", "name") for one in nodes}, facts.now()
    return {name for name in names if now - facts.member_since.get(name, now) > ADDRESSED}


def one_balancer_for_each_owner(_: Facts, step: CloudStep) -> str | None:
    marks = [one.owner for one in step.after.balancers.values() if one.owner]
    twice = [mark for mark in marks if marks.count(mark) > 1]
    return f"two balancers with the mark {twice[0]}" if twice else None


def no_address_serves_two(facts: Facts, step: ObjectStep) -> str | None:
    """No two Services publish the same address and port."""
    if not _is_by_manager(step, "services") or step.after is None:
        return None
    mine = _published(step.after) - (_published(step.before) if step.before else set())
    for other in facts.cluster.objects("services") if mine else ():
        same = mine & _published(other)
        if same and text(other, "metadata", "uid") != text(step.after, "metadata", "uid"):
            return f"{min(same)} is published by two Services"
    return None


def only_true_addresses_are_published(facts: Facts, step: ObjectStep) -> str | None:
    if not _is_by_manager(step, "services") or step.after is None:
        return None
    had = facts.addresses.get(text(step.after, "metadata", "uid"), set())
    had = had | {INGRESS} if facts.is_of_second(step.after) else had
    before = ingress_of(step.before) if step.before else []
    wrong = [ip for ip in ingress_of(step.after) if ip not in had and ip not in before]
    return f"{wrong[0]} was never an address of its balancer" if wrong else None


def no_range_is_given_twice(facts: Facts, step: ObjectStep) -> str | None:
    if not _is_by_manager(step, "nodes") or step.after is None:
        return None
    mine = texts(step.after, "spec", "podCIDRs")
    if not mine or (step.before and mine == texts(step.before, "spec", "podCIDRs")):
        return None
    name = text(step.after, "metadata", "name")
    for other in facts.cluster.objects("nodes"):
        theirs = texts(other, "spec", "podCIDRs")
        if text(other, "metadata", "name") != name and _overlap(mine, theirs):
            return f"{mine} of {name} and {theirs} of {text(other, 'metadata', 'name')} overlap"
    return None


def _named(*checks: Check[S]) -> Mapping[str, Check[S]]:
    return {check.__name__: check for check in checks}


OF_OBJECTS: Mapping[str, Check[ObjectStep]] = _named(
    untouched.nobody_changes_what_it_has_not_heard_of,
    untouched.nodes_get_the_id_of_their_own_machine,
    untouched.who_wants_a_balancer_is_not_released,
    vetoes_are_obeyed,
    no_ready_node_is_deleted,
    initialized_nodes_have_their_facts,
    addresses_keep_their_order,
    no_node_is_deleted_whose_machine_exists,
    who_claims_the_machine_of_another_is_not_initialized,
    no_node_is_deleted_within_the_grace,
    nodes_are_kept_where_people_want_it,
    few_nodes_are_deleted_at_once,
    the_finalizer_goes_when_nothing_is_left,
    no_address_serves_two,
    only_true_addresses_are_published,
    no_range_is_given_twice,
    untouched.others_services_are_left_alone,
    untouched.others_parts_are_left_alone,
    untouched.nodes_of_other_clouds_are_left_alone,
)
OF_ANY_CLOUD: Mapping[str, Check[ObjectStep]] = _named(
    untouched.nobody_changes_what_it_has_not_heard_of,
    untouched.who_wants_a_balancer_is_not_released,
    vetoes_are_obeyed,
    no_ready_node_is_deleted,
    addresses_keep_their_order,
    no_node_is_deleted_whose_machine_exists,
    the_finalizer_goes_when_nothing_is_left,
    no_address_serves_two,
    only_true_addresses_are_published,
    no_range_is_given_twice,
    untouched.others_parts_are_left_alone,
    untouched.nodes_of_other_clouds_are_left_alone,
)
"""The checks of objects of a second cloud; the others compare with the state of the first."""
OF_CLOUD: Mapping[str, Check[CloudStep]] = _named(
    others_things_are_left_alone,
    the_finalizer_comes_before_the_balancer,
    members_are_never_emptied,
    one_balancer_for_each_owner,
    untouched.nothing_wanted_is_deleted,
    untouched.unmanaged_balancers_are_left_alone,
    untouched.few_vanished_services_are_cleaned_up_at_once,
    volumes_outlive_their_claims,
    volumes_stay_where_pods_are,
    claims_get_one_volume,
    only_own_classes_get_volumes,
    volumes_are_attached_once,
    mounted_volumes_are_not_detached,
)
OF_VOLUME_OBJECTS: Mapping[str, Check[ObjectStep]] = _named(
    attachments_stay_until_volumes_are_detached,
)
OF_HOSTS: Mapping[str, Check[HostStep]] = _named(
    volumes_with_data_are_never_formatted,
    volumes_are_mounted_on_one_machine,
    pods_read_what_pods_wrote,
    volumes_for_readers_stay_as_they_are,
    pods_that_only_read_cannot_write,
)
OF_CALLS: Mapping[str, Check[Call]] = _named(
    calls.calls_are_bounded,
    calls.who_is_told_to_wait_waits,
)
OF_WORK: Mapping[str, Check[Call]] = {
    **_named(
        calls.only_the_leader_writes,
        calls.nobody_works_on_an_old_lease,
        calls.no_queue_outgrows_its_objects,
    ),
    **OF_CALLS,
}
"""For calls that only a leader may make. The others, mostly for the lease, are many."""
OF_TROUBLE: Mapping[str, Check[Answer]] = _named(
    calls.what_fails_comes_ever_more_seldom,
    calls.what_the_cloud_refuses_is_told,
)
ALWAYS: frozenset[str] = frozenset({
    *OF_OBJECTS,
    *OF_VOLUME_OBJECTS,
    *OF_CLOUD,
    *OF_HOSTS,
    *OF_WORK,
    *OF_TROUBLE,
})
"""Their names."""


def breaches(facts: Facts, step: Step) -> Iterator[tuple[str, str]]:
    """Returns which invariants the step breaks, and how."""
    match step:
        case Call():
            return _broken(OF_WORK if step.is_work else OF_CALLS, facts, step)
        case Answer():
            return _broken(OF_TROUBLE, facts, step) if step.trouble else iter(())
        case ObjectStep() if step.resource in OF_VOLUMES:
            return _broken(OF_VOLUME_OBJECTS, facts, step)
        case ObjectStep():
            is_of_second = facts.is_of_second(step.after or step.before or {})
            return _broken(OF_ANY_CLOUD if is_of_second else OF_OBJECTS, facts, step)
        case HostStep():
            return _broken(OF_HOSTS, facts, step)
        case CloudStep():
            return _broken(OF_CLOUD, facts, step)


def _broken(checks: Mapping[str, Check[S]], facts: Facts, step: S) -> Iterator[tuple[str, str]]:
    for name, check in checks.items():
        wrong = check(facts, step)
        if wrong is not None:
            yield name, wrong


def _is_by_manager(step: ObjectStep, resource: str) -> bool:
    return step.resource == resource and is_manager(step.who)


def _deleted_node(step: ObjectStep) -> Obj | None:
    if _is_by_manager(step, "nodes") and step.after is None:
        return step.before
    return None


def _published(service: Obj) -> set[tuple[str, int, str]]:
    ports = rows(service, "spec", "ports")
    return {
        (ip, number(port, "port"), text(port, "protocol"))
        for ip in ingress_of(service)
        for port in ports
    }


def _overlap(mine: list[str], theirs: list[str]) -> bool:
    return any(ip_network(one).overlaps(ip_network(other)) for one in mine for other in theirs)
