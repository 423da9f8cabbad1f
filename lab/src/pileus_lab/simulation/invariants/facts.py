"""What invariants may use: the actual state of everything, and some history."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pileus.app.settings import LeaderMigrationSettings
from pileus.cloud.abilities import Abilities
from pileus.cloud.balancer import Owner
from pileus.controllers.lifecycle.settings import LifecycleSettings
from pileus.controllers.node.descriptor import NODE
from pileus.controllers.service.notes import SUSPICION
from pileus.controllers.service.settings import ServiceSettings
from pileus.objects.nodes import UNINITIALIZED
from pileus.runtime.settings import Durations, LeaderElectionSettings
from pileus_lab.apiserver.tree import Obj, branch, number, rows, text, texts, words
from pileus_lab.simulation.clouds.second import CLASS as SECOND_CLASS
from pileus_lab.simulation.clouds.second import SECOND, SecondCloud
from pileus_lab.simulation.clouds.truth import Balancer, Machine, Truth
from pileus_lab.simulation.connections.process import Life
from pileus_lab.simulation.diagnostics import Queues, Sayings
from pileus_lab.simulation.environment.account import Account
from pileus_lab.simulation.environment.cluster import LEASE, MIGRATION_LEASE, OF_VOLUMES, Cluster
from pileus_lab.simulation.environment.operators import LEAVING, MISTAKEN
from pileus_lab.simulation.environment.steps import Answer, Call, CloudStep, ObjectStep, Trace
from pileus_lab.simulation.environment.users import ADOPT, EVIL, EXCLUDED, MANAGE, is_hostile
from pileus_lab.simulation.invariants.abilities import is_beyond
from pileus_lab.simulation.invariants.limits import RANGES, Paces
from pileus_lab.simulation.invariants.service_history import (
    ServiceHistory,
    Vanished,
    Version,
    has_finalizer,
    is_left_to_others,
    is_manager,
)
from pileus_lab.simulation.managers import SLOWEST
from pileus_lab.simulation.schedule import Schedule

if TYPE_CHECKING:
    from pileus_lab.simulation.hosts.machines import Hosts

DELETION = "pileus.dev/deletion"
WARY = SUSPICION + 60.0
"""Seconds after a false view in which a manager may treat a vanished Service as an error."""
FULL = "full"
"""Default of `pileus.dev/manage`."""
READY = "pileus.dev/Ready"
STUCK = "CloudProviderUninitialized"
MACHINES = "cloud instances"
BALANCERS = "cloud balancers"
"""User agent of calls about machines."""

Name = tuple[str, str, str]
"""Resource, namespace and name."""


@dataclass(slots=True, kw_only=True)
class Facts:
    """The actual world, whatever managers believe."""

    schedule: Schedule
    cluster: Cluster
    account: Account
    trace: Trace
    sayings: Sayings
    now: Callable[[], float]
    controllers: frozenset[str]
    """The controllers that run; nothing is expected of the others."""
    cluster_id: str
    living: Callable[[], frozenset[str]]
    """The running processes."""
    queues: Callable[[], Mapping[str, Queues]]
    """By identity of each process that was not ended."""
    second: SecondCloud | None = None
    """In worlds with a second cloud."""
    hosts: "Hosts | None" = None
    """In worlds in which volumes are mounted."""
    lost_volumes: AbstractSet[str] = frozenset()
    """Volumes that users have deleted in the cloud."""
    made_by_managers: set[str] = field(default_factory=set[str])
    """IDs of balancers and destinations of routes that managers created; all others are not
    ours."""
    finalized: set[str] = field(default_factory=set[str])
    """UIDs of Services that ever had the finalizer."""
    addresses: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """All addresses that a Service's balancer ever had, by UID."""
    own_nodes: set[str] = field(default_factory=set[str])
    """UIDs of nodes that were of this cloud at any time, or may have been."""
    second_nodes: set[str] = field(default_factory=set[str])
    """UIDs of nodes of the second cloud, also of deleted ones."""
    member_since: dict[str, float] = field(default_factory=dict[str, float])
    """Since when a node counts as a member of balancers, by name."""
    deleted: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    """Which leader deleted a node when, without approval of a user."""
    left_to_others: set[str] = field(default_factory=set[str])
    """UIDs of Services whose balancers users last wanted to keep in any case."""
    robbed: dict[str, float] = field(default_factory=dict[str, float])
    """When a user last took the lease, by the holder it was taken from."""
    writers: set[str] = field(default_factory=set[str])
    """The processes that have written anything."""
    serving: set[str] = field(default_factory=set[str])
    """The processes whose service controller has started: they have listed balancers."""
    things: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """UIDs of all nodes and Services that ever existed, by resource; and all pod ranges."""
    paces: Paces = field(default_factory=Paces)
    misled: dict[str, float] = field(default_factory=dict[str, float])
    """When a manager last got a false answer from the cloud."""
    denied: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """When a process last got a false answer about machines, by its identity."""
    renewed: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """When a process sent its last lease renewal that succeeded."""
    known_since: dict[str, float] = field(default_factory=dict[str, float])
    """When a node was created, or a user last changed a Service, by UID."""
    asked_for: set[str] = field(default_factory=set[str])
    """UIDs of Services that ever requested a balancer of this cloud."""
    let_go: set[str] = field(default_factory=set[str])
    """UIDs of Services that at some time requested none, or none of ours."""
    named: dict[Name, set[str]] = field(default_factory=dict[Name, set[str]])
    """The UIDs of all nodes and Services that ever had a name."""
    uuids: dict[str, str] = field(default_factory=dict[str, str])
    """All machines that ever existed, by provider ID."""
    history: ServiceHistory = field(default_factory=ServiceHistory)
    lives: Callable[[], Mapping[str, Life]] = dict
    """The processes that were not ended, by the names of their managers."""
    machines: dict[str, Machine] = field(default_factory=dict[str, Machine])
    """The last state of all machines that ever existed, by provider ID."""
    machine_since: dict[str, float] = field(default_factory=dict[str, float])
    """When a machine was created, by ID."""
    ranged_since: dict[str, float] = field(default_factory=dict[str, float])
    """When a node got its pod ranges, by UID."""

    def learn(self, step: ObjectStep | CloudStep | Call | Answer) -> None:
        """Records what later checks need; called after the step was checked."""
        if isinstance(step, CloudStep):
            self._learn_of_cloud(step)
        elif isinstance(step, ObjectStep):
            self._learn_of_object(step)
        elif isinstance(step, Call):
            self.paces.learn_of_call(step)
            if step.is_work:
                self.writers.add(step.identity)
            if step.agent == BALANCERS:
                self.serving.add(step.identity)
        else:
            life = self.lives().get(step.call.who)
            is_paused = life is not None and life.process.paused
            self.paces.learn_of_answer(step, self.now(), is_paused=is_paused)
            if step.is_untrue:
                self._learn_of_lie(step.call)
            if step.call.is_renewal and not step.trouble:
                is_moving = MIGRATION_LEASE.encode() in step.call.content
                lease = MIGRATION_LEASE if is_moving else LEASE
                self.renewed[step.call.identity, lease] = step.call.at

    def _learn_of_lie(self, call: Call) -> None:
        self.misled[call.who] = self.now()
        if call.agent == MACHINES:
            self.denied.setdefault(call.identity, []).append(self.now())

    def _learn_of_object(self, step: ObjectStep) -> None:
        metadata = branch(step.after or step.before, "metadata")
        self.things.setdefault(step.resource, set()).add(text(metadata, "uid"))
        if step.before is None:
            self.named.setdefault(name_of(step), set()).add(text(metadata, "uid"))
        plural, by_manager = step.resource.partition(".")[0], is_manager(step.who)
        self.paces.changed(f"/{plural}/{text(metadata, 'name')}", by_manager=by_manager)
        if step.resource in OF_VOLUMES:
            return
        if not by_manager and (step.before is None or step.resource == "services"):
            self.known_since[text(metadata, "uid")] = self.now()
        if step.resource == "nodes":
            self._learn_of_node(step)
        elif step.after is not None:
            self._learn_of_service(text(metadata, "uid"), step.after)
            wants, leader = self.wants_balancer(step.after), self.cluster.leader()
            self.history.learn(step, step.after, self.now(), wants=wants, leader=leader)
        elif not by_manager:
            self._learn_of_loss(text(metadata, "uid"), step.before or {})

    def _learn_of_service(self, uid: str, service: Obj) -> None:
        self._learn_of_annotations(service)
        if has_finalizer(service):
            self.finalized.add(uid)
        wants = self.wants_balancer(service)
        if wants:
            self.asked_for.add(uid)
        is_leaving = text(service, "metadata", "deletionTimestamp")
        wants = wants or (self.is_of_second(service) and not is_leaving)
        if not wants or is_left_to_others(service):
            self.let_go.add(uid)

    def _learn_of_loss(self, uid: str, service: Obj) -> None:
        """A Service was deleted, perhaps before a manager had removed the finalizer."""
        leader = self.cluster.leader()
        life = next((one for one in self.lives().values() if one.identity == leader), None)
        # Whom a wrong view has shown that many vanished believes no other for a while.
        is_wary = life is not None and self.now() - life.misinformed_at < WARY
        has_heard = life is not None and life.heard_at(uid) is not None
        was_known = has_heard and not is_wary and leader in self.serving
        is_loss = has_finalizer(service) or uid in self.finalized
        said = words(service, "metadata", "annotations").get(MANAGE, FULL)
        lost = Vanished(self.now(), leader, was_known, said != FULL)
        self.history.forget(uid, lost if is_loss else None)

    def heard_at(self, manager: str, version: Version) -> float | None:
        """When the process of that manager received that version; None: never."""
        life = self.lives().get(manager)
        return None if life is None else life.heard_at(*version)

    def _learn_of_cloud(self, step: CloudStep) -> None:
        if step.after.machines is not step.before.machines:
            self.uuids |= {one.provider_id: one.uuid for one in step.after.machines}
            self.machines |= {one.provider_id: one for one in step.after.machines}
            for one in step.after.machines:
                self.machine_since.setdefault(one.id, self.now())
        made = {*things_in(step.after)} - {*things_in(step.before)}
        if is_manager(step.who):
            self.made_by_managers |= made
            there = (text(one, "metadata", "uid") for one in self.cluster.objects("services"))
            self.history.learn_of_cloud(step, there, self.cluster.leader(), self.now())
        else:
            self.made_by_managers -= made
        for balancer in step.after.balancers.values():
            if balancer.owner is not None and balancer.is_of(self.cluster_id):
                self.addresses.setdefault(balancer.owner.uid, set()).update(balancer.addresses)

    def _learn_of_annotations(self, service: Obj) -> None:
        uid = {text(service, "metadata", "uid")}
        self.left_to_others -= uid
        self.left_to_others |= uid if is_left_to_others(service) else set()

    def _learn_of_node(self, step: ObjectStep) -> None:
        ranges = texts(step.after, "spec", "podCIDRs")
        if ranges and ranges != texts(step.before, "spec", "podCIDRs"):
            self.ranged_since[text(step.after, "metadata", "uid")] = self.now()
        if step.after is None and is_manager(step.who) and not is_approved(step.before):
            self.deleted.append((self.cluster.leader(), self.now()))
        self.things.setdefault(RANGES, set()).update(texts(step.after, "spec", "podCIDRs"))
        name = text(step.after or step.before, "metadata", "name")
        foreign = step.after is not None and self.is_foreign(step.after)
        if step.after is not None and self.is_of_second(step.after):
            self.second_nodes.add(text(step.after, "metadata", "uid"))
        if step.after is not None and not foreign:
            self.own_nodes.add(text(step.after, "metadata", "uid"))
        if step.after is not None and counts_as_member(step.after) and not foreign:
            self.member_since.setdefault(name, self.now())
        else:
            self.member_since.pop(name, None)

    @property
    def abilities(self) -> Abilities:
        """The abilities that the provider declares."""
        return self.account.offered.abilities

    @property
    def election(self) -> Durations:
        return self.schedule.setup.config[LeaderElectionSettings].durations

    @property
    def policy(self) -> str:
        """What happens to nodes whose machines do not exist."""
        return self.schedule.setup.config[LifecycleSettings].policy

    @property
    def fraction(self) -> float:
        """The fraction of all nodes that may be deleted within a window."""
        return self.schedule.setup.config[LifecycleSettings].rules.fraction

    @property
    def ignores_orphans(self) -> bool:
        """Whether the search for orphaned balancers is disabled."""
        return self.schedule.setup.config[ServiceSettings].orphans == "ignore"

    def leases(self) -> tuple[str, ...]:
        """The leases that a manager holds."""
        if self.schedule.setup.config[LeaderMigrationSettings].enabled:
            return LEASE, MIGRATION_LEASE
        return (LEASE,)

    def leases_for(self, call: Call) -> tuple[str, ...]:
        """The leases of which the sender must hold one.

        The migration lease is that of the lifecycle controller, which uses the node controller's
        identity.
        """
        if call.agent != NODE.identity:
            return (LEASE,)
        return self.leases()[-1:] if call.what.startswith("DELETE") else self.leases()

    def leaders(self, leases: Iterable[str]) -> set[str]:
        """The holders that may write: the current one, and briefly one that lost it to a user."""
        holders = set(map(self.cluster.leader, leases))
        unknowing = self.election.renew_deadline / SLOWEST
        return holders | {one for one, at in self.robbed.items() if self.now() - at < unknowing}

    def runs(self, controller: str) -> bool:
        return controller in self.controllers

    def machine_of(self, node: Obj) -> Machine | None:
        """The machine of a node, if it exists."""
        machines = self.account.truth().machines
        identity = text(node, "spec", "providerID")
        if identity and not self.is_foreign(node):
            return next((one for one in machines if one.provider_id == identity), None)
        uuid = text(node, "status", "nodeInfo", "systemUUID")
        return next((one for one in machines if one.uuid == uuid), None)

    def is_foreign(self, node: Obj) -> bool:
        """Whether its provider ID is of another cloud."""
        given = text(node, "spec", "providerID")
        return bool(given) and not given.startswith(f"{self.account.offered.name}://")

    def is_of_second(self, thing: Obj) -> bool:
        """Whether a node or Service is of the second cloud, in worlds that have one."""
        identity, named = (
            text(thing, "spec", "providerID"),
            text(thing, "spec", "loadBalancerClass"),
        )
        return self.second is not None and (
            identity.startswith(f"{SECOND}://") or named == SECOND_CLASS
        )

    def is_of_no_cloud(self, node: Obj) -> bool:
        """Whether no cloud of the manager has the node."""
        return self.is_foreign(node) and not self.is_of_second(node)

    def is_of_first(self, node: Obj) -> bool:
        return bool(text(node, "spec", "providerID")) and not self.is_foreign(node)

    def keeps_members(self) -> bool:
        """Whether the leader keeps the members that balancers have.

        It does if the nodes are of no cloud that it has, and it never saw one of its own: then the
        provider may not recognise its nodes. So it does while none of its nodes was checked: they
        may have registered again while no manager ran.
        """
        members = self.members()
        is_none_checked = bool(members) and all(map(is_unchecked, members))
        nodes = [one for one in self.cluster.objects("nodes") if not self.is_of_second(one)]
        is_none_own = bool(nodes) and all(map(self.is_foreign, nodes))
        return is_none_checked or (is_none_own and self.leader_never_heard_of(self.own_nodes))

    def keeps_members_of_second(self) -> bool:
        """The same for the second cloud."""
        nodes = [one for one in self.cluster.objects("nodes") if not self.is_of_first(one)]
        is_none_own = bool(nodes) and not any(map(self.is_of_second, nodes))
        return is_none_own and self.leader_never_heard_of(self.second_nodes)

    def leader_never_heard_of(self, uids: Iterable[str]) -> bool:
        """Whether the leading process never received any of these objects."""
        leader = self.cluster.leader()
        life = next((one for one in self.lives().values() if one.identity == leader), None)
        return life is None or all(life.heard_at(uid) is None for uid in sorted(uids))

    def balancers(self) -> list[Balancer]:
        """The balancers of this cluster."""
        found = self.account.truth().balancers.values()
        return [one for one in found if one.is_of(self.cluster_id)]

    def balancer_of(self, uid: str) -> Balancer | None:
        """The balancer of a Service of this cluster."""
        owner = Owner(self.cluster_id, uid)
        found = self.account.truth().balancers.values()
        return next((one for one in found if one.owner == owner), None)

    def left_in_any_cloud(self, uid: str) -> str:
        """The ID of a balancer of that Service, in any cloud; "" if there is none."""
        found = self.balancer_of(uid)
        if found is not None:
            return found.id
        is_left = self.second and Owner(self.cluster_id, uid) in self.second.balancers
        return f"the second cloud's balancer of {uid}" if is_left else ""

    def wants_balancer(self, service: Obj) -> bool:
        if text(service, "metadata", "deletionTimestamp"):
            return False
        is_asking = text(service, "spec", "type") == "LoadBalancer"
        return is_asking and not self.is_of_another_class(service)

    def is_of_another_class(self, service: Obj) -> bool:
        """Another controller serves it.

        It uses the same finalizer, so the owner cannot be identified.
        """
        given = self.schedule.setup.config[ServiceSettings].listed_classes
        served = {self.account.balancer_class, *given, *([] if "-" in given else [""])}
        return text(service, "spec", "loadBalancerClass") not in served

    def is_impossible(self, service: Obj) -> bool:
        """Whether it requests something that the cloud cannot provide, or that is not its own."""
        if is_beyond(self.abilities, service) or named_of_others(self.account, service):
            return True
        if address_of_others(self.account, service) or asked_of_others(self.account, service):
            return True
        if self._admits_no_client(service) or self._is_name_in_doubt(service):
            return True
        wanted, ports = text(service, "spec", "loadBalancerIP"), rows(service, "spec", "ports")
        is_asking = text(service, "spec", "type") == "LoadBalancer"
        if is_asking and any(not port.get("nodePort") for port in ports):
            return True
        return bool(wanted) and wanted == self.account.cloud.impossible_address

    def _admits_no_client(self, service: Obj) -> bool:
        """Whether all source ranges are of IP families that its balancer does not have."""
        ranges = texts(service, "spec", "loadBalancerSourceRanges")
        families = _families(texts(service, "spec", "clusterIPs"))
        balancer = self.balancer_of(text(service, "metadata", "uid"))
        if balancer is not None:
            families &= _families(balancer.addresses)
        return bool(ranges) and families.isdisjoint(_families(ranges))

    def _is_name_in_doubt(self, service: Obj) -> bool:
        """Whether an unmarked balancer has its name, so that none is created beside it."""
        uid = text(service, "metadata", "uid")
        own = self.balancer_of(uid)
        names = {one.name_in_doubt for one in self.account.truth().balancers.values()}
        return (own is None or own.is_remains) and f"a{uid.replace('-', '')}"[:32] in names

    def is_wanted(self, uid: str) -> bool:
        """Whether a Service with that UID wants a balancer now."""
        services = self.cluster.objects("services")
        return any(
            self.wants_balancer(one) for one in services if text(one, "metadata", "uid") == uid
        )

    def is_bidden_farewell(self, owner: str) -> bool:
        """Whether members are removed from a balancer that stays after its Service is deleted."""
        services = self.cluster.objects("services")
        wanting = [text(one, "metadata", "uid") for one in services if self.wants_balancer(one)]
        return owner in self.left_to_others and owner not in wanting

    def is_placeless(self) -> bool:
        """Whether all members have an address that operators made up, and no machine.

        Then nothing says where a balancer is to be created, in clouds that reach members by
        address.
        """
        members = self.members()
        made_up = [one for one in members if _addresses_of(one) == [MISTAKEN]]
        gone = all(self.machine_of(one) is None for one in members)
        return self.abilities.members_by_address and bool(members) and members == made_up and gone

    def members(self) -> list[Obj]:
        """The nodes that should be members of balancers; none of another cloud."""
        ours = (one for one in self.cluster.objects("nodes") if not self.is_foreign(one))
        return [one for one in ours if counts_as_member(one)]


def things_in(truth: Truth) -> Mapping[str, object]:
    """Everything in the cloud that may have an owner, by ID."""
    return {**truth.balancers, **truth.routes, **truth.keys, **truth.strange_parts}


def name_of(step: ObjectStep) -> Name:
    """The name of an object; another one may have it later."""
    metadata = branch(step.after or step.before, "metadata")
    return step.resource, text(metadata, "namespace"), text(metadata, "name")


def named_of_others(account: Account, service: Obj) -> str:
    """Returns the balancer that its user names without any permission; "": none.

    One that requests an address names none: if the address is free, a manager writes the ID.
    """
    names_one = is_hostile(service) and not text(service, "spec", "loadBalancerIP")
    given = words(service, "metadata", "annotations") if names_one else {}
    return given.get(ADOPT, "") or given.get(account.cloud.shares_by, "")


def address_of_others(account: Account, service: Obj) -> str:
    """Returns the address that its user requests although others have it; "": none."""
    wanted = text(service, "spec", "loadBalancerIP") if is_hostile(service) else ""
    if not wanted:
        return ""
    uid = text(service, "metadata", "uid")
    others = (
        one
        for one in account.truth().balancers.values()
        if one.owner is None or one.owner.uid != uid
    )
    is_held = any(wanted in one.addresses for one in others)
    is_text = EVIL in wanted
    return wanted if is_held or is_text or not account.cloud.gives_free_addresses else ""


def asked_of_others(account: Account, service: Obj) -> str:
    """Returns the address or port of others that its user asks for; "": none."""
    if not is_hostile(service):
        return ""
    asked = {*words(service, "metadata", "annotations").items()}
    asked.add(("", text(service, "spec", "loadBalancerIP")))
    return next((one[1] for one in account.truth().requestable.values() if one in asked), "")


def is_approved(node: Obj | None) -> bool:
    """Whether a user has approved its deletion."""
    return words(node, "metadata", "annotations").get(DELETION) == "approved"


def has_taint(node: Obj, key: str) -> bool:
    return any(text(taint, "key") == key for taint in rows(node, "spec", "taints"))


def is_new(node: Obj) -> bool:
    """Whether it waits for the cloud controller."""
    return has_taint(node, UNINITIALIZED)


def is_unchecked(node: Obj) -> bool:
    """Whether it came with a provider ID that the manager did not accept yet.

    Such a node is a member only if a former Node of its machine was one.
    """
    return is_new(node) and bool(text(node, "spec", "providerID"))


def counts_as_member(node: Obj) -> bool:
    if text(node, "metadata", "deletionTimestamp"):
        return False
    excluded = words(node, "metadata", "labels").get(EXCLUDED)
    return excluded is None and not has_taint(node, LEAVING)


def with_address(nodes: Sequence[Obj], besides: frozenset[str]) -> frozenset[str]:
    """Returns the names of the nodes that have an address which none of the others has.

    Users may have given two nodes the same one: a balancer leads to each address once.
    """
    taken = {
        address
        for node in nodes
        if text(node, "metadata", "name") in besides
        for address in _addresses_of(node)
    }
    free = (node for node in nodes if any(one not in taken for one in _addresses_of(node)))
    return frozenset(text(node, "metadata", "name") for node in free) | besides


def _addresses_of(node: Obj) -> list[str]:
    return [text(one, "address") for one in rows(node, "status", "addresses")]


def conditions_of(thing: Obj) -> dict[str, str]:
    """Addresses by type."""
    return {text(one, "type"): text(one, "status") for one in rows(thing, "status", "conditions")}


def reason_of(thing: Obj, condition: str) -> str:
    """The reason of the condition; "" if there is none."""
    said = {text(one, "type"): text(one, "reason") for one in rows(thing, "status", "conditions")}
    return said.get(condition, "")


def ingress_of(service: Obj) -> list[str]:
    """What it publishes: IPs and host names."""
    published = rows(service, "status", "loadBalancer", "ingress")
    return [text(one, "ip") or text(one, "hostname") for one in published]


def about(service: Obj, wrong: str) -> str:
    return f"Service {text(service, 'metadata', 'name')}{wrong} ({asked_and_told(service)})"


def asked_and_told(service: Obj) -> str:
    """Returns what a Service asks for, and what its condition says: a failure needs both."""
    spec = branch(service, "spec")
    ports = (f"{number(one, 'port')}/{text(one, 'protocol')}" for one in rows(spec, "ports"))
    parts = {
        "ports": ", ".join(ports),
        "families": f"{', '.join(texts(spec, 'ipFamilies'))} {text(spec, 'ipFamilyPolicy')}",
        "affinity": text(spec, "sessionAffinity"),
        "source ranges": ", ".join(texts(spec, "loadBalancerSourceRanges")),
        "traffic policy": text(spec, "externalTrafficPolicy"),
        "requested address": text(spec, "loadBalancerIP"),
        "annotations": ", ".join(
            f"{key}={value}" for key, value in words(service, "metadata", "annotations").items()
        ),
    }
    asked = "; ".join(f"{name} {value.strip()}" for name, value in parts.items() if value.strip())
    said = next(
        (one for one in rows(service, "status", "conditions") if text(one, "type") == READY), None
    )
    told = "none" if said is None else f"{text(said, 'status')}, {text(said, 'reason')}"
    message = text(said or {}, "message")
    return f"it asks for: {asked}; its condition: {told}{': ' if message else ''}{message}"


def _families(addresses: Iterable[str]) -> frozenset[str]:
    return frozenset("IPv6" if ":" in one else "IPv4" for one in addresses)
