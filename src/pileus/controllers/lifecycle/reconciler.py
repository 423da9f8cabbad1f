"""Do to one node what was decided, and tell its users: taints, a condition, its deletion."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from pileus.clock import Clock
from pileus.controllers.lifecycle.plan import (
    OUT_OF_SERVICE,
    REASONS,
    Wanted,
    Write,
    is_met,
    is_out_of_service,
    object_write,
    status_write,
    subject_of,
)
from pileus.fence import Fenced
from pileus.kube.errors import Conflict, KubeError, NotFound
from pileus.kube.model.core_v1 import Node
from pileus.objects import cluster_nodes
from pileus.objects.cluster_nodes import NodeReplaced, NodeWriter
from pileus.objects.events import ObjectEvents, shortened
from pileus.objects.nodes import about_node, provider_id_of, taints_of
from pileus.runtime.backoff import Exponential
from pileus.runtime.memory import PerObject
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

TRIES = 3
"""Requests to delete a node that others keep changing; then the next round decides anew."""
RESTS = Exponential(10.0, 300.0)
"""How long a node is left alone after its n-th failure in a row."""
AFTERMATH = 60.0
"""Seconds that a node which was deleted is left alone; it may be shown for a while yet."""


class Nodes(cluster_nodes.Nodes[Write], Protocol):
    async def delete(self, node: Node) -> None:
        """Delete this very version of the node. Errors: `Conflict`, if it has changed since."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    nodes: Nodes
    writer: NodeWriter[Write]
    notices: ObjectEvents
    clock: Clock
    metrics: Metrics
    concurrency: int
    """Nodes written at the same time."""


@dataclass(frozen=True, slots=True)
class _Rest:
    failures: int
    until: float


class Actor:
    """Whatever the API server says of one node is logged, told, and harms no other."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._slots = asyncio.Semaphore(tools.concurrency)
        self._rests = PerObject[str, _Rest]("nodes/resting", ends_with_object=True)
        self._announced = PerObject[str, None]("nodes/announced", ends_with_object=True)

    def is_resting(self, node: Node) -> bool:
        """Whether the node is to be left alone for now, because of what happened last."""
        rest = self._rests.get(node.metadata.uid)
        return rest is not None and _now() < rest.until

    def rouse(self, node: Node) -> None:
        """End its rest; a further failure makes the next one longer all the same."""
        rest = self._rests.get(node.metadata.uid)
        if rest is not None:
            self._rests[node.metadata.uid] = replace(rest, until=0.0)

    def stumbled(self, node: Node, error: Exception) -> None:
        """An unexpected error ended the work on the node: log it, and leave the node for a while.

        Each further failure in a row makes the pause longer.
        """
        uid = node.metadata.uid
        failures = self._rests.get(uid, _Rest(0, 0.0)).failures + 1
        delay = RESTS.delay(failures)
        self._rests[uid] = _Rest(failures, _now() + delay)
        log.exception(  # noqa: LOG004 -- called by those who caught it
            "Work on node failed, will be retried",
            error=error,
            node=node.metadata.name,
            failures=failures,
            retry_in=delay,
        )

    def keep(self, nodes: Iterable[Node]) -> None:
        """Forget all nodes but these."""
        kept = {node.metadata.uid: node for node in nodes}
        self._rests.keep(set(kept))
        self._announced.keep(set(kept))
        self._tools.notices.keep(about_node(node) for node in kept.values())

    def tell(self, node: Node, wanted: Wanted) -> bool:
        """Warn of what is wrong: what holds once, what is over may be told again.

        Returns whether the node is as it is wanted already.
        """
        about, notices = about_node(node), self._tools.notices
        told = [said for said in (wanted.kept, wanted.warning) if said]
        for reason in REASONS - {said.reason for said in told}:
            notices.forget(about, reason)
        for said in told:
            notices.warn(about, said.reason, said.message)
        return is_met(node, wanted, self._tools.clock.now())

    async def bring(self, node: Node, wanted: Wanted) -> None:
        """Make taints, annotations and condition what is wanted.

        A node that turned ready, or not ready, in between is left for the next look.
        """
        now, bring, spell = self._tools.clock.now(), self._tools.writer.bring, subject_of(node)

        def on_object(seen: Node) -> Write | None:
            return object_write(seen, wanted) if subject_of(seen) == spell else None

        def on_status(seen: Node) -> Write | None:
            return status_write(seen, wanted, now) if subject_of(seen) == spell else None

        async with self._slots:
            with self._caught(node, "NodeWriteFailed", "Failed writing node"):
                after, _ = await bring(node, on_object)
                self._announce(node, after)
                await bring(after, on_status)
                self._rests.pop(node.metadata.uid, None)

    async def delete(self, node: Node, evidence: str, is_condemned: Callable[[Node], bool]) -> None:
        """Delete the node if that is right also for its newest state, and if it stays in that."""
        async with self._slots:
            with self._caught(node, "DeletingNodeFailed", "Failed deleting node"):
                await self._delete(node, evidence, is_condemned)

    async def _delete(
        self, node: Node, evidence: str, is_condemned: Callable[[Node], bool]
    ) -> None:
        name, uid = node.metadata.name, node.metadata.uid
        changed: Conflict | None = None
        for _ in range(TRIES):
            newest = await self._tools.nodes.read(name)
            if not is_condemned(newest):
                log.info("Node is not deleted after all: it has changed", node=name)
                return
            if changed is None:
                self._announce_deletion(newest, evidence)
            try:
                await self._tools.nodes.delete(newest)
            except Conflict as error:
                changed = error
            else:
                self._tools.metrics.nodes_deleted.inc()
                self._rests[uid] = _Rest(0, _now() + AFTERMATH)
                return
        if changed is not None:
            raise changed

    def _announce_deletion(self, node: Node, evidence: str) -> None:
        name = node.metadata.name
        log.info("Deleting node", node=name, provider_id=provider_id_of(node), evidence=evidence)
        if node.metadata.uid not in self._announced:
            self._announced[node.metadata.uid] = None
            text = f"Deleting node {name} because it does not exist in the cloud provider"
            self._tools.notices.announce(about_node(node), "DeletingNode", text)

    def _announce(self, before: Node, after: Node) -> None:
        """Say what was changed, where it matters to more than the scheduler."""
        name, notices = before.metadata.name, self._tools.notices
        if is_out_of_service(after) and not is_out_of_service(before):
            log.info("Took a stopped node out of service", node=name)
            text = f"The machine is stopped: pods and volumes may move ({OUT_OF_SERVICE.key})"
            notices.announce(about_node(after), "NodeOutOfService", text)
        elif is_out_of_service(before) and not is_out_of_service(after):
            log.info("Took a node into service again", node=name)
            notices.announce(about_node(after), "NodeBackInService", "The machine runs again")
        elif before is not after:
            taints = ", ".join(taint.key for taint in taints_of(after))
            log.info("Changed taints of node", node=name, taints=taints)

    def _rest(self, uid: str) -> int:
        """Leave the node alone for a while; returns its failures in a row."""
        failures = self._rests.get(uid, _Rest(0, 0.0)).failures + 1
        self._rests[uid] = _Rest(failures, _now() + RESTS.delay(failures))
        return failures

    @contextmanager
    def _caught(self, node: Node, reason: str, what: str) -> Generator[None]:
        name, uid = node.metadata.name, node.metadata.uid
        try:
            yield
        except Fenced as error:
            log.info("Node is not ours to write", v=2, node=name, why=error)
        except (NotFound, NodeReplaced) as error:
            self._rest(uid)  # it is shown for as long as the watch is late
            log.info("Node went away meanwhile", v=2, node=name, why=error)
        except KubeError as error:
            failures = self._rest(uid)
            log.warning(what, node=name, failures=failures, err=error)
            text = shortened(f"{what} {name}: {error}")
            self._tools.notices.warn(about_node(node), reason, text)


def _now() -> float:
    return asyncio.get_running_loop().time()
