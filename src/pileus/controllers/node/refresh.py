"""The periodic refresh of all initialized nodes from the cloud.

Updates addresses, and with `--node-label-sync` also zone, region, type and the cloud's own labels.
Asks the cloud about hundreds of nodes per call, and writes only what differs.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from pileus.controllers.node.events import message_of, reason_of
from pileus.controllers.node.observation import Observation, look_up
from pileus.controllers.node.plan import Skip, Steps, is_refreshable, plan_refresh
from pileus.controllers.node.reconciler import StepPerformer, Tools
from pileus.controllers.node.settings import NodeSettings
from pileus.fence import Fenced
from pileus.kube.errors import KubeError, NotFound
from pileus.kube.model.core_v1 import Node
from pileus.objects.cluster_nodes import NodeReplaced
from pileus.objects.lookup import CHUNK, chunks
from pileus.objects.node_ips import NodeIpRefused
from pileus.objects.nodes import about_node
from pileus.runtime.controller import Limits
from pileus.runtime.periodic import ROUND_LIMITS, Periodic, all_of
from pileus.telemetry.log import Log

log = Log(__name__)

ROUND = "node-refresh"
SPREAD = 0.1
"""The fraction of the period over which calls are spread and by which periods vary."""


class NodeRefresher:
    """Refreshes all initialized nodes once per period."""

    def __init__(
        self,
        tools: Tools,
        performer: StepPerformer,
        settings: NodeSettings,
        rng: random.Random,
        name: str = ROUND,
    ) -> None:
        """`name` is the name of the rounds in queue metrics, round metrics and health checks."""
        self._tools = tools
        self._performer = performer
        self._settings = settings
        self._random = rng
        self._slots = asyncio.Semaphore(settings.status_workers)
        pauses = Limits(deadline=ROUND_LIMITS.deadline + 2 * SPREAD * settings.refresh_period)
        self.rounds = Periodic(name, self._next_round, tools.metrics, rng, pauses)

    async def run(self) -> None:
        """Refreshes nodes until cancelled: once at the start, then once per period."""
        await self.rounds.run()

    async def _next_round(self) -> float:
        await self.round()
        return self._settings.refresh_period * (1 + SPREAD * self._random.random())

    async def round(self) -> None:
        """Refreshes every initialized node once. Logs errors of the API server and the cloud.

        Raises unexpected errors after all nodes of the chunk were refreshed.
        """
        managed = self._tools.managed()
        self._tools.notices.keep(about_node(each) for each in managed)
        nodes = [each for each in managed if is_refreshable(each)]
        parts = list(chunks(nodes, CHUNK))
        for number, chunk in enumerate(parts):
            if number:
                pause = 2 * SPREAD * self._settings.refresh_period / len(parts)
                await asyncio.sleep(pause * self._random.random())
            await self._refresh(chunk)

    async def _refresh(self, nodes: Sequence[Node]) -> None:
        answers = await look_up(self._tools.instances, nodes)
        skipped: dict[str, list[str]] = {}
        work: list[Callable[[], Awaitable[None]]] = []
        for node in nodes:
            seen = self._tools.observation(node, answers[node.metadata.name])
            steps = plan_refresh(
                seen, self._tools.clock.now(), sync_labels=self._settings.sync_labels
            )
            match steps:
                case (Skip(error, warns=False),):
                    skipped.setdefault(str(error), []).append(node.metadata.name)
                case _:
                    work.append(partial(self._perform, seen, steps))
        await all_of(work)
        for why, names in skipped.items():
            log.warning("Nodes not refreshed", nodes=len(names), first=names[0], err=why)

    async def _perform(self, seen: Observation, steps: Steps) -> None:
        name = seen.node.metadata.name
        async with self._slots:
            try:
                await self._performer.perform(seen, steps)
            except (NotFound, NodeReplaced, Fenced) as error:
                log.info("Node not refreshed", v=2, node=name, why=error)
            except (NodeIpRefused, KubeError) as error:
                log.warning("Node not refreshed", node=name, err=error)
                self._tools.notices.warn(about_node(seen.node), reason_of(error), message_of(error))
