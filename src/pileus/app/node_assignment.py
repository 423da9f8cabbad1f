"""Assigns each node to one of several clouds, if only lookups can tell whose machine it is.

node without a clear owner ──look up in all clouds──▶ found in one: assigned to it
found in none: left to the caretaker
found in two: reported, not managed
cloud down, found in no other: retried
"""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from pileus.cloud.errors import CloudError, Misconfigured, Unavailable
from pileus.cloud.interface import Instances
from pileus.cloud.model import Absent, Failure, Found, Instance, NodeName, NodeRef
from pileus.dataclass import dataclass
from pileus.kube.informer import Informer
from pileus.kube.model.core_v1 import Node
from pileus.kube.store import NamespacedName
from pileus.objects.events import ObjectEvents
from pileus.objects.lookup import DEADLINE
from pileus.objects.node_clouds import NodeClouds, claim
from pileus.objects.nodes import about_node, reference
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.runtime.backoff import Exponential, RetryPolicy
from pileus.runtime.controller import Controller, Limits
from pileus.runtime.memory import LINGER
from pileus.runtime.queue import WorkQueue
from pileus.runtime.reconcile import DONE, Result, again_in
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

NAME = "node-assignment"
IN_SEVERAL_CLOUDS = "NodeInSeveralClouds"
NOT_ASSIGNED = "NodeNotAssigned"
RETRIES = Exponential(0.25, 60.0)
WORKERS = 1000
FOUND_GRACE = 5.0
"""Seconds that other clouds have to answer once one cloud has found the machine."""
CHECK_AGAIN = 60.0
"""Seconds between two checks of a node that several clouds claim."""

Answers = Mapping[str, Mapping[NodeName, Found] | CloudError]
"""What each cloud answered; clouds that did not answer in time are missing."""
NO_ANSWERS: Answers = {}


class SeveralClouds(Misconfigured):
    """Several clouds have a machine for the same node."""


async def ask_all(
    clouds: Mapping[str, Instances], refs: Sequence[NodeRef], *, fresh: bool
) -> Answers:
    """Asks all clouds at once about all nodes. Raises nothing but cancellation.

    Once every node has been found, the other clouds have `FOUND_GRACE` seconds to answer: a cloud
    that hangs does not delay the nodes of another.
    """
    answers: dict[str, Mapping[NodeName, Found] | CloudError] = {}
    now = asyncio.get_running_loop().time
    limit = now() + DEADLINE
    async with asyncio.TaskGroup() as group:
        asked = {
            group.create_task(_ask(instances, refs, fresh=fresh)): name
            for name, instances in clouds.items()
        }
        waiting = set(asked)
        while waiting and (left := limit - now()) > 0:
            done, waiting = await asyncio.wait(
                waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            answers |= {asked[task]: task.result() for task in done}
            if all(_finders(answers, ref) for ref in refs):
                limit = min(limit, now() + FOUND_GRACE)
        for task in waiting:
            task.cancel()
    return answers


async def _ask(
    instances: Instances, refs: Sequence[NodeRef], *, fresh: bool
) -> Mapping[NodeName, Found] | CloudError:
    """Asks one cloud. A node that it leaves out is asked for again, this time with `fresh=True`.

    Ported providers answer only then whether a machine exists.
    """
    try:
        found = await instances.find(refs, fresh=fresh)
        left_out = [] if fresh else [ref for ref in refs if ref.name not in found]
        return {**found, **await instances.find(left_out, fresh=True)} if left_out else found
    except CloudError as error:
        return error


def _finders(answers: Answers, ref: NodeRef) -> dict[str, Instance]:
    found = {name: _said(answer, ref) for name, answer in answers.items()}
    return {name: said for name, said in found.items() if isinstance(said, Instance)}


def _said(answer: Mapping[NodeName, Found] | CloudError | None, ref: NodeRef) -> Found:
    if answer is None:
        return Failure(Unavailable("no answer in time"))
    if isinstance(answer, CloudError):
        return Failure(answer)
    return answer.get(ref.name, Failure(Unavailable("no answer for this node")))


def combined(ref: NodeRef, candidates: Sequence[str], answers: Answers) -> tuple[str, Found]:
    """Returns the cloud that has the machine ("": none), and what is known about it. Pure.

    `Absent` only if every candidate reports it. `Failure` with `SeveralClouds` if two have it.
    """
    finders = {
        name: each for name in candidates if (each := _finders(answers, ref).get(name)) is not None
    }
    if len(finders) == 1:
        ((name, instance),) = finders.items()
        return name, instance
    if finders:
        return "", Failure(SeveralClouds(_several(ref.name, finders)))
    said = {name: _said(answers.get(name), ref) for name in candidates}
    failed = {name: each.error for name, each in said.items() if isinstance(each, Failure)}
    if failed:
        texts = "; ".join(f"cloud {name}: {error}" for name, error in failed.items())
        return "", Failure(Unavailable(f"no cloud has found the machine of this node, and {texts}"))
    evidence = [
        f"{name}: {each.evidence}" for name, each in said.items() if isinstance(each, Absent)
    ]
    return "", Absent("; ".join(evidence))


def _several(node: str, finders: Mapping[str, Instance]) -> str:
    names = " and ".join(finders)
    ids = ", ".join(f"{cloud}: {each.provider_id or each.id}" for cloud, each in finders.items())
    first = next(iter(finders.values())).provider_id
    return (
        f"clouds {names} both have a machine for this node ({ids}), so the node is not managed. "
        f"Fix: kubectl patch node {node} --patch "
        f'\'{{"spec":{{"providerID":"{first}"}}}}\' (or the ID of the other cloud)'
    )


@dataclass(frozen=True, slots=True)
class JointInstances:
    """The instances of one cloud; nodes that any cloud may have are denied by all or by none."""

    own: str
    inner: Instances
    assignment: "NodeAssignment"

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        """Asks this cloud first. A node that it denies is absent only if the others deny it too."""
        answers = await self.inner.find(nodes, fresh=fresh)
        clouds = self.assignment.nodes.clouds
        denied = [
            ref
            for ref in nodes
            if isinstance(answers.get(ref.name), Absent) and claim(ref, clouds).candidates
        ]
        found = await self.assignment.look_up(denied, fresh=fresh, known={self.own: answers})
        other = Failure(Unavailable("another cloud has the machine of this node"))
        joint = {name: other if owner else it for name, (owner, it) in found.items()}
        return {**answers, **joint}


class NodeAssignment:
    """Looks up nodes without a clear owner, and reports those that several clouds claim."""

    def __init__(
        self,
        nodes: NodeClouds,
        informer: Informer[Node],
        events: ObjectEvents,
        metrics: Metrics,
        random: Random,
    ) -> None:
        self.nodes = nodes
        self._informer = informer
        self._events = events
        self._queue = WorkQueue[str](NAME, metrics)
        policy = RetryPolicy(RETRIES, random)
        self._controller = Controller(NAME, self, self._queue, policy, Limits(workers=WORKERS))

    async def run(self) -> None:
        """Assign nodes until cancelled; call once."""
        await self._informer.wait_synced()
        self._informer.subscribe(self)
        await self._controller.run()

    def stuck(self, limit: float) -> str | None:
        return self._controller.stuck(limit)

    def failing(self) -> str | None:
        return None

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """Assigns all nodes that can be assigned. Returns those that cannot."""
        await self._informer.wait_synced()
        found = {node.metadata.name: node for node in self._informer.store.list()}
        undecided = [reference(node) for node in found.values() if self.nodes.is_undecided(node)]
        results = await self.look_up(undecided, fresh=False)
        troubles = [
            Trouble(about_node(found[name]), _reason(answer.error), str(answer.error))
            for name, (_, answer) in results.items()
            if isinstance(answer, Failure)
        ]
        contested = (self._contested(node) for node in found.values())
        everything = [*troubles, *(each for each in contested if each)]
        return [each for each in everything if scope.has(each.about)]

    async def look_up(
        self, refs: Sequence[NodeRef], *, fresh: bool, known: Answers = NO_ANSWERS
    ) -> Mapping[NodeName, tuple[str, Found]]:
        """Looks up nodes in all clouds that may have them, and remembers where they were found.

        `known` has the answers of clouds that were asked already.
        """
        if not refs:
            return {}
        clouds = self.nodes.clouds
        candidates = {ref: claim(ref, clouds).candidates for ref in refs}
        names = {name for several in candidates.values() for name in several} - known.keys()
        asked = {name: it for name in names if (it := clouds[name].instances) is not None}
        answers = {**known, **await ask_all(asked, refs, fresh=fresh)}
        found = {ref.name: combined(ref, candidates[ref], answers) for ref in refs}
        for name, (owner, answer) in found.items():
            if isinstance(answer, Instance):
                self._assign(name, owner)
        return found

    async def reconcile(self, key: str) -> Result:
        node = self._informer.store.get(NamespacedName("", key))
        if node is None:
            return DONE
        contested = self._contested(node)
        if contested is not None:
            return self._report(node, contested.message)
        if not self.nodes.is_undecided(node):
            return DONE
        _, answer = (await self.look_up([reference(node)], fresh=False))[NodeName(key)]
        match answer:
            case Instance():
                self._events.forget(about_node(node), IN_SEVERAL_CLOUDS)
            case Absent():
                self._assign(key, self.nodes.caretaker)
            case Failure(SeveralClouds() as error):
                return self._report(node, str(error))
            case Failure(error):
                self._events.warn(about_node(node), NOT_ASSIGNED, str(error))
                raise error.with_traceback(None)
        return DONE

    def added(self, new: Node, /) -> None:
        self._queue.add(new.metadata.name)

    def updated(self, old: Node, new: Node, /) -> None:
        if old.metadata.uid != new.metadata.uid or reference(old) != reference(new):
            self._queue.add(new.metadata.name)

    def deleted(self, old: Node, /) -> None:
        self._events.forget(about_node(old), IN_SEVERAL_CLOUDS)
        self._events.forget(about_node(old), NOT_ASSIGNED)
        self._forget_later(old.metadata.name)

    def check_all(self) -> None:
        """Check all nodes again, because the clouds have changed."""
        for node in self._informer.store.list():
            self._queue.add(node.metadata.name)
            self._informer.notify_again(NamespacedName("", node.metadata.name))

    def _forget_later(self, name: str) -> None:
        """A node that registers again soon keeps its cloud."""

        def forget() -> None:
            if self._informer.store.get(NamespacedName("", name)) is None:
                self.nodes.forget(name)

        asyncio.get_running_loop().call_later(LINGER, forget)

    def _assign(self, name: str, owner: str) -> None:
        if self.nodes.assign(name, owner):
            log.info("Assigned node to cloud", node=name, cloud=owner)
            self._informer.notify_again(NamespacedName("", name))

    def _contested(self, node: Node) -> Trouble | None:
        claimed = self.nodes.claim(node).contested
        if not claimed:
            return None
        names = " and ".join(claimed)
        return Trouble(
            about_node(node),
            IN_SEVERAL_CLOUDS,
            f"the providers of clouds {names} both say that this node is theirs, so the node is "
            f"not managed. Fix: change the configuration of one of these clouds, or the node's "
            "provider ID, so that only one of them owns it",
        )

    def _report(self, node: Node, message: str) -> Result:
        log.warning("Node is claimed by several clouds", node=node.metadata.name, why=message)
        self._events.warn(about_node(node), IN_SEVERAL_CLOUDS, message)
        return again_in(CHECK_AGAIN)


def _reason(error: CloudError) -> str:
    return IN_SEVERAL_CLOUDS if isinstance(error, SeveralClouds) else NOT_ASSIGNED
