"""Queues hold no more than there is to do: one key for each object, and none for what is gone."""

from collections.abc import Iterator, Mapping

from pileus.controllers.ipam.controller import QUEUE as RANGES_OF_NODES
from pileus.controllers.node.controller import QUEUE as NEW_NODES
from pileus.controllers.service.controller import SERVICE_QUEUE
from pileus.runtime.correlation import BURST
from pileus.runtime.events import LONGEST_QUEUE
from pileus_lab.apiserver.tree import text
from pileus_lab.simulation.invariants.facts import Facts
from pileus_lab.simulation.invariants.rates import NODES, SERVICES, Things
from pileus_lab.simulation.stage.steps import Call

EVENTS = "events_"
"""With this the names of queues begin in which events wait to be written."""
HOLDS: Mapping[str, str] = {NEW_NODES: NODES, RANGES_OF_NODES: NODES, SERVICE_QUEUE: SERVICES}
"""By queue: what its keys are of. The others have one key, for all that there is."""

CLUSTER_WIDE = 1
"""Objects beside nodes and Services that reports may be about: kube-system, for orphans."""


def no_queue_outgrows_its_objects(facts: Facts, call: Call) -> str | None:
    """Looked at with each write, by when the keys of whatever caused it have come."""
    queues = facts.queues().get(call.identity)
    for queue, keys in queues.keys.now().items() if queues else ():
        most = _most(queue, facts.things)
        if keys > most:
            return f"{call.identity} has {keys} keys in its queue {queue}, of {most} that ever were"
    return None


def queues_have_drained(facts: Facts) -> Iterator[str]:
    """Nothing waits, and what is due later is of objects that are there; no event is unwritten."""
    there = {
        kind: [text(one, "metadata", "uid") for one in facts.cluster.objects(kind)]
        for kind in (NODES, SERVICES)
    }
    for identity, queues in facts.queues().items():
        for queue, waiting in queues.waiting.now().items():
            if waiting:
                yield f"{waiting} keys wait in the queue {queue} of {identity}"
        for queue, keys in queues.keys.now().items():
            most = 0 if queue.startswith(EVENTS) else _most(queue, there)
            if keys > most:
                yield f"{identity} keeps {keys} keys in its queue {queue}, of {most} that are there"


def _most(queue: str, things: Things) -> int:
    """Of events as many as the recorder lets through for each object, and one that it is about."""
    if queue.startswith(EVENTS):
        return min(LONGEST_QUEUE, BURST * (1 + sum(map(len, things.values()))))
    return len(things.get(HOLDS[queue], ())) if queue in HOLDS else 1


def memories_are_of_what_exists(facts: Facts) -> Iterator[str]:
    """No map of per-object state has more entries than there are objects of its kind."""
    nodes, services = (len(tuple(facts.cluster.objects(kind))) for kind in (NODES, SERVICES))
    most = {"nodes": nodes, "services": services, "objects": max(nodes, services) + CLUSTER_WIDE}
    there = f"{nodes} nodes and {services} Services"
    for identity, queues in facts.queues().items():
        for memory, entries in queues.remembered.now().items():
            if entries > most[memory.partition("/")[0]]:
                yield f"{identity} remembers {entries} objects in {memory}, of {there}"


NOTHING_LEFT_OVER = (queues_have_drained, memories_are_of_what_exists)
