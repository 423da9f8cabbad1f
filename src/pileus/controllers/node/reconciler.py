"""Give every new node what the cloud knows about its machine; then take its taint off.

    node ──look up──▶ facts ──plan──▶ addresses ──▶ provider ID, labels, no taint ──▶ event
              │
              └─ nothing found ──▶ retried; if it lasts: a warning and a condition say why

An initialized node that is as it should be costs no request, whatever woke us.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pileus.clock import Clock
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Instances
from pileus.controllers.node.events import PATIENCE, complain, is_lasting, message_of, reason_of
from pileus.controllers.node.observation import Facts, look_up
from pileus.controllers.node.plan import (
    Decide,
    ObjectWrite,
    Write,
    age,
    expected,
    initialization,
    settlement,
    stuck_status,
)
from pileus.kube.errors import ApiError, KubeError, NotFound
from pileus.kube.model.core_v1 import Node
from pileus.objects.cluster_nodes import Brought, NodeReplaced, Nodes, NodeWriter
from pileus.objects.events import ObjectEvents
from pileus.objects.nodes import about_node, is_uninitialized
from pileus.objects.ownership import Ownership, Whose
from pileus.runtime.backoff import Pacing
from pileus.runtime.memory import PerObject
from pileus.runtime.reconcile import DONE, Result
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the controller works with, its initialization and its rounds alike."""

    nodes: Nodes[Write]
    instances: Instances
    whose: Whose
    writer: NodeWriter[Write]
    notices: ObjectEvents
    clock: Clock
    metrics: Metrics

    def is_managed(self, node: Node) -> bool:
        """Whether the node may be looked up and written; not if it is one of another cloud."""
        return self.whose(node) is not Ownership.FOREIGN

    def managed(self) -> Sequence[Node]:
        """All nodes that may be."""
        return [node for node in self.nodes.nodes() if self.is_managed(node)]

    async def bring(self, node: Node, decide: Decide) -> Brought:
        """As `NodeWriter.bring`, but never writes to a node that became another cloud's."""
        return await self.writer.bring(
            node, lambda seen: decide(seen) if self.is_managed(seen) else None
        )


class NodeReconciler:
    """Key: the node's name."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._failing = PerObject[str, float]("nodes/failing")
        self._pacing = PerObject[str, Pacing]("nodes/report-pacing")
        tools.metrics.nodes_failing.set_function(lambda: len(self._failing))

    async def reconcile(self, key: str) -> Result:
        node = self._tools.nodes.node(key)
        if node and self._tools.is_managed(node) and not node.metadata.deletion_timestamp:
            try:
                await (self._initialize(node) if is_uninitialized(node) else self._settle(node))
            except (NotFound, NodeReplaced) as error:
                log.info("Node went away meanwhile", v=2, node=key, why=error)
        self._failing.pop(key, None)
        self._pacing.pop(key, None)
        return DONE

    async def report(self, key: str, error: Exception) -> None:
        """Report on the node that its pass ran out of time, or ended by a bug."""
        node = self._tools.nodes.node(key)
        if node is not None and is_uninitialized(node):
            await self._tell(node, error)

    async def _initialize(self, node: Node) -> None:
        try:
            facts = await self._look_up(node)
            written = await self._write(node, facts)
        except NotFound:
            raise
        except (CloudError, ApiError) as error:
            await self._tell(node, error)
            raise
        if written:
            self._finish(node, facts)

    async def _settle(self, node: Node) -> None:
        for decide in settlement(self._tools.clock.now()):
            node = (await self._tools.bring(node, decide)).node

    async def _look_up(self, node: Node) -> Facts:
        answer = (await look_up(self._tools.instances, [node]))[node.metadata.name]
        if isinstance(answer, CloudError):
            raise answer.with_traceback(None)  # several nodes may share it
        return answer

    async def _write(self, node: Node, facts: Facts) -> bool:
        """Whether it was us who took the taint off."""
        bring = self._tools.bring
        first, second, last = initialization(facts, self._tools.clock.now())
        node = (await bring(node, first)).node
        node, written = await bring(node, second)
        await bring(node, last)
        return written

    def _finish(self, node: Node, facts: Facts) -> None:
        delay = age(node, self._tools.clock.now())
        if delay is not None:
            self._tools.metrics.taint_removal_delay.observe(delay)
            self._tools.metrics.initial_node_sync_delay.observe(delay)
        log.info("Initialized node", node=node.metadata.name, provider_id=facts.provider_id)
        self._tools.notices.announce(about_node(node), "Synced", "Node synced successfully")
        complain(self._tools.notices, node, facts)
        self._check_ownership(node, facts)

    def _check_ownership(self, node: Node, facts: Facts) -> None:
        """Report a provider that gives its node a provider ID which it does not own."""
        if not node.spec or not node.spec.provider_id:
            node = expected(node, ObjectWrite(provider_id=facts.provider_id))
        if not self._tools.is_managed(node):
            self._tools.notices.warn(
                about_node(node),
                "ProviderIDNotOwned",
                f"The cloud provider gave this node the provider ID {facts.provider_id}, but does "
                "not declare its scheme, so the node is ignored from now on. Fix the provider: "
                "declare the scheme in Cloud.owns, or in provider_id_schemes if it is ported",
            )

    async def _tell(self, node: Node, error: Exception) -> None:
        """Say on the node why it is stuck, by event and condition, once it is time to."""
        now = asyncio.get_running_loop().time()
        since = self._failing.setdefault(node.metadata.name, now)
        if now - since < PATIENCE and not is_lasting(error):
            return
        reason, message = reason_of(error), message_of(error)
        self._tools.notices.warn(about_node(node), reason, f"Node cannot be initialized: {message}")
        write = stuck_status(node, reason, message, self._tools.clock.now())
        pacing = self._pacing.setdefault(node.metadata.name, Pacing())
        if write is None or not pacing.is_due(now):
            return
        try:
            await self._tools.nodes.write(node, write)
            pacing.succeeded()
        except KubeError as refused:
            pacing.failed(refused, asyncio.get_running_loop().time())
            log.warning(
                "Cannot tell on the node why it is stuck", node=node.metadata.name, err=refused
            )
