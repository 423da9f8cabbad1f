"""Performs the steps for one node: events, taints, the condition, the deletion."""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Protocol, assert_never

from pileus.clock import Clock
from pileus.controllers.lifecycle.annotations import OUT_OF_SERVICE_MARK
from pileus.controllers.lifecycle.guard import Guard, Guards, subject_of
from pileus.controllers.lifecycle.lines import rendered
from pileus.controllers.lifecycle.observation import Observed, answer_text
from pileus.controllers.lifecycle.patches import (
    OUT_OF_SERVICE,
    ObjectWrite,
    Write,
    is_out_of_service,
    object_write,
    status_write,
)
from pileus.controllers.lifecycle.plan import (
    Apply,
    Delete,
    ForgetWarnings,
    NoAnswer,
    Postpone,
    Step,
    Steps,
    Wait,
    Warn,
    approval_command,
    is_deletion,
    plan,
    taint_command,
)
from pileus.dataclass import dataclass, replace
from pileus.fence import Fenced
from pileus.kube.errors import Conflict, KubeError, NotFound
from pileus.kube.model.core_v1 import Node
from pileus.objects import cluster_nodes
from pileus.objects.cluster_nodes import NodeReplaced, NodeWriter
from pileus.objects.decisions import record_observation, record_plan
from pileus.objects.events import ObjectEvents, shortened
from pileus.objects.nodes import about_node, is_ready, provider_id_of, taints_of
from pileus.objects.ownership import Ownership, Whose
from pileus.runtime.backoff import Exponential
from pileus.runtime.memory import PerObject
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

TRIES = 3
"""Requests to delete a node that other processes keep changing; then the next round decides."""
PAUSES = Exponential(10.0, 300.0)
"""The pause of a node after its n-th failure in a row."""
AFTER_DELETION = 60.0
"""The pause of a deleted node, in seconds: the watch may show it for a while."""


class Nodes(cluster_nodes.Nodes[Write], Protocol):
    async def delete(self, node: Node) -> None:
        """Deletes this version of the node. Raises `Conflict` if it has changed since."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformerTools:
    """What performing steps needs."""

    nodes: Nodes
    writer: NodeWriter[Write]
    whose: Whose
    notices: ObjectEvents
    clock: Clock
    metrics: Metrics
    concurrency: int
    """Nodes written at the same time."""


class GuardMemory:
    """The guards of this process. Reports when a circuit breaker opens or closes."""

    def __init__(self, guards: Guards, metrics: Metrics) -> None:
        self.guards = guards
        self._metrics = metrics
        self._set_gauges()

    def update(self, guards: Guards) -> None:
        before, self.guards = self.guards, guards
        if guards is not before:
            name = "NAME"
            _log_breaker("delete", before.deletion, guards.deletion, approval_command(name))
            former, latter = before.out_of_service, guards.out_of_service
            _log_breaker("out_of_service", former, latter, taint_command(name))
            self._set_gauges()

    def _set_gauges(self) -> None:
        both = (("delete", self.guards.deletion), ("out_of_service", self.guards.out_of_service))
        for action, guard in both:
            self._metrics.node_breaker_open.labels(action).set(guard.is_open)
            self._metrics.nodes_held.labels(action).set(guard.kept_back)


@dataclass(frozen=True, slots=True)
class _Pause:
    failures: int
    until: float


class StepPerformer:
    """Performs steps. An error of the API server is logged and reported, and affects one node."""

    def __init__(self, tools: PerformerTools, memory: GuardMemory) -> None:
        self._tools = tools
        self._memory = memory
        self._slots = asyncio.Semaphore(tools.concurrency)
        self._pauses = PerObject[str, _Pause]("nodes/resting", ends_with_object=True)
        self._announced = PerObject[str, None]("nodes/announced", ends_with_object=True)

    async def perform(self, seen: Observed, steps: Steps) -> None:
        """Performs the steps in order; a failed write ends them."""
        node = seen.node
        record_observation(about_node(node), answer_text(seen))
        record_plan(line for step in steps for line in rendered(node, step, ""))
        with self._caught(node, deletes=is_deletion(steps)):
            for step in steps:
                node = await self._perform(seen, node, step)
            if any(isinstance(step, Apply) for step in steps):
                self._pauses.pop(node.metadata.uid, None)

    def is_paused(self, node: Node) -> bool:
        """Whether nothing is done with the node for now, because of an earlier failure."""
        pause = self._pauses.get(node.metadata.uid)
        return pause is not None and _now() < pause.until

    def resume(self, node: Node) -> None:
        """Ends the pause of a node; after another failure the next pause is longer all the same."""
        pause = self._pauses.get(node.metadata.uid)
        if pause is not None:
            self._pauses[node.metadata.uid] = replace(pause, until=0.0)

    def failed(self, node: Node, error: Exception) -> None:
        """Logs an unexpected error and pauses the node."""
        failures, delay = self._pause(node.metadata.uid)
        log.exception(  # noqa: LOG004 -- called where it is caught
            "Work on node failed, will be retried",
            error=error,
            node=node.metadata.name,
            failures=failures,
            retry_in=delay,
        )

    def keep(self, nodes: Iterable[Node]) -> None:
        """Forgets all nodes but these."""
        kept = {node.metadata.uid: node for node in nodes}
        self._pauses.keep(set(kept))
        self._announced.keep(set(kept))
        self._tools.notices.keep(about_node(node) for node in kept.values())

    async def _perform(self, seen: Observed, node: Node, step: Step) -> Node:
        """Returns the node after the step. `node`: as the step before left it."""
        about, notices = about_node(node), self._tools.notices
        match step:
            case ForgetWarnings(reasons):
                for reason in reasons:
                    notices.forget(about, reason)
            case Warn(reason, message) | Postpone(_, reason, message):
                notices.warn(about, reason, message)
            case Apply():
                return await self._apply(seen, node, step)
            case Delete(evidence):
                await self._delete(seen, evidence)
            case Wait() | NoAnswer():
                pass
            case _:
                assert_never(step)
        return node

    async def _apply(self, seen: Observed, node: Node, step: Apply) -> Node:
        """Writes to the node, unless its readiness has changed since it was observed."""
        now, subject = self._tools.clock.now(), subject_of(seen.node)
        is_object = isinstance(step.write, ObjectWrite)

        def decide(fresh: Node) -> Write | None:
            if subject_of(fresh) != subject:
                return None
            marks = step.marks
            return object_write(fresh, marks) if is_object else status_write(fresh, marks, now)

        if isinstance(step.write, ObjectWrite) and step.write.annotations.get(OUT_OF_SERVICE_MARK):
            guards = self._memory.guards
            self._memory.update(guards.taking_out_of_service(node.metadata.uid, _now()))
        async with self._slots:
            after, _ = await self._tools.writer.bring(node, decide)
        if is_object:
            self._announce(node, after)
        return after

    async def _delete(self, seen: Observed, evidence: str) -> None:
        """Deletes the node if the plan for its newest version deletes it, and only that version."""
        name, uid = seen.node.metadata.name, seen.node.metadata.uid
        conflict: Conflict | None = None
        async with self._slots:
            for _ in range(TRIES):
                newest = await self._tools.nodes.read(name)
                if not self._is_condemned(seen, newest):
                    log.info("Not deleting node: it has changed", node=name)
                    return
                if conflict is None:
                    self._announce_deletion(newest, evidence)
                try:
                    await self._tools.nodes.delete(newest)
                except Conflict as error:
                    conflict = error
                else:
                    self._tools.metrics.nodes_deleted.inc()
                    self._pauses[uid] = _Pause(0, _now() + AFTER_DELETION)
                    return
        if conflict is not None:
            raise conflict

    def _is_condemned(self, seen: Observed, fresh: Node) -> bool:
        """Decides again from the newest version, immediately before the request."""
        same = subject_of(fresh) == subject_of(seen.node) and not is_ready(fresh)
        again = replace(seen, node=fresh, whose=self._tools.whose(fresh))
        ours = again.whose is not Ownership.FOREIGN and not fresh.metadata.deletion_timestamp
        steps = plan(again, self._memory.guards, self._tools.clock.now())
        condemned = same and ours and is_deletion(steps)
        if condemned:
            self._memory.update(self._memory.guards.deleting(fresh.metadata.uid, _now()))
        return condemned

    def _announce_deletion(self, node: Node, evidence: str) -> None:
        name = node.metadata.name
        log.info("Deleting node", node=name, provider_id=provider_id_of(node), evidence=evidence)
        if node.metadata.uid not in self._announced:
            self._announced[node.metadata.uid] = None
            text = f"Deleting node {name} because it does not exist in the cloud provider"
            self._tools.notices.announce(about_node(node), "DeletingNode", text)

    def _announce(self, before: Node, after: Node) -> None:
        """Logs the change, and records an event if pods may move because of it."""
        name, notices = before.metadata.name, self._tools.notices
        if is_out_of_service(after) and not is_out_of_service(before):
            log.info("Added the out-of-service taint to a stopped node", node=name)
            text = f"The machine is stopped: pods and volumes may move ({OUT_OF_SERVICE.key})"
            notices.announce(about_node(after), "NodeOutOfService", text)
        elif is_out_of_service(before) and not is_out_of_service(after):
            log.info("Removed the out-of-service taint from a node", node=name)
            notices.announce(about_node(after), "NodeBackInService", "The machine is running again")
        elif before is not after:
            taints = ", ".join(taint.key for taint in taints_of(after))
            log.info("Changed taints of node", node=name, taints=taints)

    def _pause(self, uid: str) -> tuple[int, float]:
        """Pauses the node; returns its failures in a row, and the seconds."""
        failures = self._pauses.get(uid, _Pause(0, 0.0)).failures + 1
        delay = PAUSES.delay(failures)
        self._pauses[uid] = _Pause(failures, _now() + delay)
        return failures, delay

    @contextmanager
    def _caught(self, node: Node, *, deletes: bool) -> Generator[None]:
        name, uid = node.metadata.name, node.metadata.uid
        try:
            yield
        except Fenced as error:
            log.info("Node not written: not leader", v=2, node=name, why=error)
        except (NotFound, NodeReplaced) as error:
            self._pause(uid)  # the watch shows it for a while
            log.info("Node was deleted meanwhile", v=2, node=name, why=error)
        except KubeError as error:
            failures, _ = self._pause(uid)
            what = "Failed deleting node" if deletes else "Failed writing node"
            log.warning(what, node=name, failures=failures, err=error)
            reason = "DeletingNodeFailed" if deletes else "NodeWriteFailed"
            text = shortened(f"{what} {name}: {error}")
            self._tools.notices.warn(about_node(node), reason, text)


def _log_breaker(action: str, before: Guard, after: Guard, resume: str) -> None:
    share = after.share
    if after.is_open and not before.is_open:
        log.warning(
            "Stopping node actions: too many nodes are affected",
            action=action,
            nodes=share.affected,
            limit=share.limit,
            of=share.nodes,
            resume=resume,
        )
    elif before.is_open and not after.is_open:
        log.info("Resuming node actions", action=action, nodes=share.affected, limit=share.limit)


def _now() -> float:
    return asyncio.get_running_loop().time()
