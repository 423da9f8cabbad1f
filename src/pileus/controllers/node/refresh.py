"""Look at all initialized nodes from time to time, and keep on them what the cloud may change.

Addresses always; with `--node-label-sync` also zone, region, type and the cloud's own labels.
The cloud is asked about hundreds of nodes at once; only what differs is written.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pileus.cloud.errors import CloudError
from pileus.controllers.node.events import complain, message_of, reason_of
from pileus.controllers.node.observation import Facts, look_up
from pileus.controllers.node.plan import is_settled, refreshment
from pileus.controllers.node.reconciler import Tools
from pileus.fence import Fenced
from pileus.kube.errors import KubeError, NotFound
from pileus.kube.model.core_v1 import Node
from pileus.objects.cluster_nodes import NodeReplaced
from pileus.objects.lookup import CHUNK, chunks
from pileus.objects.node_ips import NodeIpRefused
from pileus.objects.nodes import about_node
from pileus.runtime.periodic import all_of
from pileus.runtime.supervision import Rounds
from pileus.telemetry.log import Log

log = Log(__name__)

ROUND = "node-refresh"
SPREAD = 0.1
"""The part of the period over which a round's calls are spread, and by which periods vary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshSettings:
    period: float = 300.0
    """Seconds between the end of a round and the start of the next (`--node-status-update-
    frequency`)."""
    sync_labels: bool = False
    concurrency: int = 100
    """Nodes written at the same time (`--concurrent-node-status-updates`)."""

    def __post_init__(self) -> None:
        if self.period <= 0:
            raise ValueError(f"the period of address rounds must be positive, not {self.period:g}")
        if self.concurrency < 1:
            raise ValueError(f"at least one node must be written at a time, not {self.concurrency}")


class NodeRefresher:
    def __init__(self, tools: Tools, settings: RefreshSettings, rng: random.Random) -> None:
        self._tools = tools
        self._settings = settings
        self._random = rng
        self._slots = asyncio.Semaphore(settings.concurrency)
        self.rounds = Rounds(ROUND, tools.metrics)

    async def run(self) -> None:
        """Refresh nodes until cancelled: once at the start, then once per period."""
        await self.rounds.run(self._next_round)

    async def _next_round(self) -> float:
        await self.round()
        return self._settings.period * (1 + SPREAD * self._random.random())

    async def round(self) -> None:
        """Refresh every initialized node once. Logs what the API server or the cloud refuses.

        Raises unexpected errors once all nodes of the chunk were refreshed.
        """
        everyone = self._tools.managed()
        self._tools.notices.keep(about_node(each) for each in everyone)
        nodes = [each for each in everyone if is_settled(each)]
        parts = list(chunks(nodes, CHUNK))
        for number, chunk in enumerate(parts):
            if number:
                pause = 2 * SPREAD * self._settings.period / len(parts)
                await asyncio.sleep(pause * self._random.random())
            await self._refresh(chunk)

    async def _refresh(self, nodes: Sequence[Node]) -> None:
        answers = await look_up(self._tools.instances, nodes)
        failed: dict[str, list[str]] = {}
        writes: list[Callable[[], Awaitable[None]]] = []
        for node in nodes:
            answer = answers[node.metadata.name]
            if isinstance(answer, CloudError):
                failed.setdefault(str(answer), []).append(node.metadata.name)
            else:
                writes.append(partial(self._bring, node, answer))
        await all_of(writes)
        for why, names in failed.items():
            log.warning("Nodes not refreshed", nodes=len(names), such_as=names[0], err=why)

    async def _bring(self, node: Node, facts: Facts) -> None:
        async with self._slots:
            try:
                await self._write(node, facts)
            except (NotFound, NodeReplaced, Fenced) as error:
                log.info("Node not refreshed", v=2, node=node.metadata.name, why=error)
            except (NodeIpRefused, KubeError) as error:
                log.warning("Node not refreshed", node=node.metadata.name, err=error)
                self._tools.notices.warn(about_node(node), reason_of(error), message_of(error))

    async def _write(self, node: Node, facts: Facts) -> None:
        # Unknown address types are reported once, when the node is initialized.
        complain(self._tools.notices, node, replace(facts, unknown_addresses=()))
        for decide in refreshment(facts, sync_labels=self._settings.sync_labels):
            node = (await self._tools.bring(node, decide)).node
