"""What must hold for every call of a manager, for every answer, and for its queues."""

from collections.abc import Callable, Iterator, Mapping

from pileus.app.node_assignment import NAME as ASSIGNMENT
from pileus.controllers.ipam.controller import QUEUE as RANGES_OF_NODES
from pileus.controllers.node.controller import QUEUE as NEW_NODES
from pileus.controllers.node.descriptor import NODE
from pileus.controllers.service.controller import SERVICE_QUEUE
from pileus.controllers.volume.controller import QUEUE as VOLUME_QUEUE
from pileus.kube.client import DEAD_AFTER
from pileus.runtime.events import BURST, LONGEST_QUEUE
from pileus.volumes.parameters import claim_owner
from pileus_lab.apiserver.tree import Obj, text, texts
from pileus_lab.simulation.environment.cluster import CLAIMS, OF_VOLUMES
from pileus_lab.simulation.environment.steps import Answer, Call, Channel
from pileus_lab.simulation.invariants.abilities import requests_of_check, requests_of_lists
from pileus_lab.simulation.invariants.facts import (
    READY,
    STUCK,
    Facts,
    conditions_of,
    ingress_of,
    is_new,
)
from pileus_lab.simulation.invariants.limits import (
    LAWS,
    NODES,
    OTHERS,
    SERVICES,
    TICK,
    Costs,
    Things,
    most_calls,
    same,
    shared,
    who_waits,
)
from pileus_lab.simulation.managers import SLOWEST

INVITED = 2
"""Calls of a kind in the pass that a server requested: the refused one, and what follows."""
READ_BEFORE: Mapping[str, str] = {"volume-controller": "cloud volumes"}
"""By part of a manager: the calls to the cloud before which its passes read the API server, to
confirm a claim and its PersistentVolume. A pass that the cloud asks to repeat reads both again."""
NOT_TOLD = frozenset({Channel.LEASE, Channel.READ, Channel.WATCH})
TOLD_AFTER = 45.0
"""Seconds of the same failure after which it must be reported. A pass waits ten for it to end;
the retries are 5, 10 and 20 s apart."""
LASTING = 3
"""Minimum failures of the same call before it counts as failing permanently: two may be of
different passes, between which other calls settled the object."""
WELL = 45.0
"""Seconds without trouble at the API server, so that the failure could be reported."""


def only_the_leader_writes(facts: Facts, call: Call) -> str | None:
    if call.identity in facts.leaders(facts.leases_for(call)):
        return None
    leader = facts.cluster.leader()
    return f"{call.identity} sent {call.what} while {leader or 'no process'} leads"


def nobody_works_on_an_old_lease(facts: Facts, call: Call) -> str | None:
    """A process without a renewal for as long as the deadline may have lost the lease."""
    renewed = [facts.renewed.get((call.identity, one), 0.0) for one in facts.leases_for(call)]
    age = call.at - max(renewed)
    if age <= facts.election.renew_deadline / SLOWEST + TICK:
        return None
    return f"{call.identity} sent {call.what} {age:.1f} s after its last renewal"


def calls_are_bounded(facts: Facts, call: Call) -> str | None:
    paces, whose = facts.paces, (call.identity, call.agent)
    sent = paces.sent.get((*whose, call.channel), 0)
    able, truth = facts.abilities, facts.account.truth()
    costs = Costs(requests_of_check(able, truth), requests_of_lists(able, truth))
    most = most_calls(call.agent, call.channel, facts.things, facts.election, costs)
    if call.channel is Channel.CLOUD_READ:
        most += costs.of(call.agent) * paces.accepted.get(whose, 0)
    invited = paces.invited.get(whose, 0)
    if call.channel is Channel.READ:
        invited += paces.invited.get((call.identity, READ_BEFORE.get(call.agent, "")), 0)
    if sent <= most + INVITED * invited:
        return None
    return f"{call.identity}: {sent} {call.channel} of {call.agent} in a minute"


def who_is_told_to_wait_waits(facts: Facts, call: Call) -> str | None:
    """Exceptions: the lease, which is lost by waiting, and reads of the API server.

    Reads cannot be attributed: two passes may need the same object.
    """
    if call.channel in NOT_TOLD or not facts.paces.is_early(call):
        return None
    seconds = facts.paces.quiet_until[who_waits(call)] - call.at
    return f"{call.identity} sent {call.what} {seconds:.3f} s too early"


def what_fails_comes_ever_more_seldom(facts: Facts, answer: Answer) -> str | None:
    call = answer.call
    for key in (same(call), shared(call)) if call.is_work else ():
        vain = facts.paces.vain.get(key)
        if vain is None:
            continue
        law, elapsed = LAWS.get(call.agent, OTHERS), facts.now() - vain.since
        if vain.passes > law.passes(elapsed):
            times = f"{vain.passes} times without success in {elapsed:.1f} s"
            return f"{call.identity} sent {key[2]} {times}"
    return None


def what_the_cloud_refuses_is_told(facts: Facts, answer: Answer) -> str | None:
    """A lasting failure is reported on its object, if the API server is healthy."""
    call, now = answer.call, facts.now()
    vain = facts.paces.vain.get(same(call)) if call.is_to_cloud else None
    if vain is None or now - vain.since < TOLD_AFTER or vain.passes < LASTING:
        return None
    if now - facts.paces.ill.get(call.identity, 0.0) < WELL or facts.cluster.is_down:
        return None
    for kind, thing in _concerned(facts, call):
        name = text(thing, "metadata", "name")
        if not _says_so(thing) and not _is_warned_of(facts, thing):
            seconds = now - vain.since
            return f"{kind}/{name} says nothing, though {call.what} fails for {seconds:.0f} s"
    return None


def _concerned(facts: Facts, call: Call) -> Iterator[tuple[str, Obj]]:
    """The objects for which a call to the cloud is made, if they have existed for a while."""
    kind, is_for = _CONCERN.get(call.agent, ("", None))
    for thing in facts.cluster.objects(kind) if is_for else ():
        since = facts.known_since.get(text(thing, "metadata", "uid"), 0.0)
        heard = DEAD_AFTER if call.channel is Channel.CLOUD_READ else 0.0
        if facts.now() - since < TOLD_AFTER + heard:
            continue  # a reader need not know it: its watch may be stalled
        if is_for and is_for(facts, call, thing):
            yield kind, thing


def _is_for_service(facts: Facts, call: Call, service: Obj) -> bool:
    """Whether a write names it or its balancer. A read is for those without an address."""
    uid = text(service, "metadata", "uid")
    if call.channel is Channel.CLOUD_READ:
        return not ingress_of(service) and facts.wants_balancer(service)
    balancer = facts.balancer_of(uid)
    return uid in call.what or (balancer is not None and f"'{balancer.id}'" in call.what)


def _is_for_route(_: Facts, call: Call, node: Obj) -> bool:
    return any(f"'{cidr}'" in call.what for cidr in texts(node, "spec", "podCIDRs"))


def _is_for_new_node(facts: Facts, _: Call, node: Obj) -> bool:
    return facts.runs(NODE.canonical) and is_new(node)


_CONCERN: Mapping[str, tuple[str, Callable[[Facts, Call, Obj], bool]]] = {
    "cloud balancers": ("services", _is_for_service),
    "cloud routes": ("nodes", _is_for_route),
    "cloud instances": ("nodes", _is_for_new_node),
}
"""The part of the manager, by the purpose of the call."""


def _says_so(thing: Obj) -> bool:
    said = conditions_of(thing)
    return (
        said.get(READY) in {"False", "Unknown"}
        or said.get(STUCK) == "True"
        or said.get("NetworkUnavailable") == "True"
    )


def _is_warned_of(facts: Facts, thing: Obj) -> bool:
    uid = text(thing, "metadata", "uid")
    return any(
        text(event, "involvedObject", "uid") == uid and text(event, "type") == "Warning"
        for event in facts.cluster.objects("events")
    )


EVENTS = "events_"
"""Prefix of the names of queues in which events wait to be written."""
HOLDS: Mapping[str, str] = {
    ASSIGNMENT: NODES,
    NEW_NODES: NODES,
    RANGES_OF_NODES: NODES,
    SERVICE_QUEUE: SERVICES,
    VOLUME_QUEUE: CLAIMS,
}
"""By queue: the kind of its keys. The other queues have one key for everything."""

CLUSTER_WIDE = 1
"""Objects besides nodes and Services that events may be about: kube-system, for orphans."""


def no_queue_outgrows_its_objects(facts: Facts, call: Call) -> str | None:
    """Checked at each write, when the keys of its cause have been queued."""
    queues = facts.queues().get(call.identity)
    for queue, keys in queues.keys.now().items() if queues else ():
        most = _most(queue, facts.things)
        if keys > most:
            return f"{call.identity} has {keys} keys in its queue {queue}, of {most} that ever were"
    return None


def queues_have_drained(facts: Facts) -> Iterator[str]:
    """Nothing waits, delayed keys are of existing objects, and all events are written."""
    there = {
        kind: [text(one, "metadata", field) for one in facts.cluster.objects(kind)]
        for kind, field in ((NODES, "name"), (SERVICES, "uid"))
    }
    there[CLAIMS] = [
        claim_owner(text(one, "metadata", "uid")) for one in facts.cluster.objects(CLAIMS)
    ]
    for identity, queues in facts.queues().items():
        for queue, held in queues.keys.keys().items():
            kind = HOLDS.get(queue.partition("@")[0])
            left = held.difference(there.get(kind or "", held))
            if left:
                names = ", ".join(sorted(map(str, left)))
                yield f"{identity} keeps keys of deleted objects in its queue {queue}: {names}"
        for queue, waiting in queues.waiting.now().items():
            if waiting:
                yield f"{waiting} keys wait in the queue {queue} of {identity}"
        for queue, keys in queues.keys.now().items():
            most = 0 if queue.startswith(EVENTS) else _most(queue, there)
            if keys > most:
                yield f"{identity} keeps {keys} keys in its queue {queue}, of {most} that are there"


def _most(queue: str, things: Things) -> int:
    """As many events as the recorder passes for each object, and one in progress."""
    if queue.startswith(EVENTS):
        return min(LONGEST_QUEUE, BURST * (1 + sum(map(len, things.values()))))
    kind = HOLDS.get(queue.partition("@")[0])  # with several clouds, each has its own queues
    return 1 if kind is None else len(things.get(kind, ()))


CLEANED_UP = "services/deleted"
"""The map of Services that no longer exist and are still to be cleaned up."""


def memories_are_of_what_exists(facts: Facts) -> Iterator[str]:
    """No map of per-object state has more entries than there are objects of its kind.

    No Service waits to be cleaned up: its clean-up ends with an event, even if nothing is left.
    """
    nodes, services = (len(tuple(facts.cluster.objects(kind))) for kind in (NODES, SERVICES))
    volumes = sum(len(facts.cluster.objects(kind)) for kind in OF_VOLUMES)
    most = {
        "nodes": nodes,
        "services": services,
        "volumes": len(facts.cluster.objects(CLAIMS)),
        "objects": max(nodes, services, volumes) + CLUSTER_WIDE,
    }
    there = f"{nodes} nodes and {services} Services"
    for identity, queues in facts.queues().items():
        for memory, entries in queues.remembered.now().items():
            if memory == CLEANED_UP and entries:
                yield f"{identity} still has {entries} deleted Services to clean up"
            elif entries > most[memory.partition("/")[0]]:
                yield f"{identity} remembers {entries} objects in {memory}, of {there}"


NOTHING_LEFT_OVER = (queues_have_drained, memories_are_of_what_exists)
