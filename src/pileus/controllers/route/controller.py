"""The route controller as one thing to run: a queue of rounds, and what asks for them."""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pileus.clock import Clock
from pileus.cloud.interface import Routes
from pileus.controllers.route.ledger import Ledger
from pileus.controllers.route.ownership import Ownership, Rules
from pileus.controllers.route.patches import condition_patch
from pileus.controllers.route.plan import is_worth_a_round
from pileus.controllers.route.preview import lines
from pileus.controllers.route.reconciler import RouteReconciler, Tools
from pileus.controllers.route.telling import Telling
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import Node
from pileus.objects.cluster_nodes import ClusterNodes, NodeInformer
from pileus.objects.events import ObjectEvents
from pileus.objects.ownership import Whose
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.objects.ranges import Range
from pileus.runtime.backoff import Exponential, RetryPolicy
from pileus.runtime.controller import Controller, Limits
from pileus.runtime.events import Recorder
from pileus.runtime.periodic import Periodic
from pileus.runtime.queue import Priority, WorkQueue
from pileus.runtime.reconcile import Result
from pileus.telemetry.metrics import Metrics

QUEUE = "Routes"
ROUND = "route-check"
ALL = "all"
"""The one key: a round is over all routes."""
RETRIES = Exponential(1.0, 300.0)
GATHER = 0.5
"""Seconds after a change in which further ones join the same round."""
BURST, WINDOW = 3, 30.0
"""Node changes cause at most so many rounds in so many seconds."""
SPREAD = 0.1
"""The part by which pauses between checks vary, where node changes cause rounds as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSettings:
    ranges: tuple[Range, ...]
    """`--cluster-cidr`."""
    ownership: Ownership = Ownership.RECORDED
    watch: bool = True
    """Whether changes of nodes cause rounds; without it only the period does."""
    period: float = 300.0
    """Seconds between the starts of two checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the controller is put into."""

    client: Client
    informer: NodeInformer
    routes: Routes
    whose: Whose
    identify: Callable[[], Awaitable[str]]
    """Finds out the cluster's id, however long that takes; never a guess."""
    events: Recorder
    clock: Clock
    metrics: Metrics
    random: random.Random


class RouteController:
    """Keeps the cloud's routes to the nodes' pod ranges."""

    def __init__(self, around: Surroundings, settings: RouteSettings) -> None:
        self._around = around
        self._settings = settings
        self._nodes = ClusterNodes(around.client, around.informer.store, condition_patch)
        self._ledger = Ledger()
        self._telling = Telling(ObjectEvents(around.events))
        self._queue = WorkQueue[str](QUEUE, around.metrics)
        self._checks = Periodic(ROUND, self._check, around.metrics, around.random)
        self._due: float | None = None
        self._controller: Controller[str] | None = None

    async def run(self) -> None:
        """Work until cancelled, once all nodes and the cluster's id are known; call once."""
        reconciler = await self._reconciler()
        pace = Pace(self._queue)
        controller = self._controller = Controller(
            "node-route-controller",
            Paced(reconciler, pace),
            self._queue,
            RetryPolicy(RETRIES, self._around.random),
            Limits(workers=1),
        )
        watcher = _Watcher(self._ledger, reconciler, pace if self._settings.watch else None)
        self._around.informer.subscribe(self._nodes.without_echoes(watcher))
        if self._settings.watch:
            pace.ask()  # also without nodes: the last one may have been deleted before the start
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run())
            group.create_task(self._checks.run())

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """What the next round would do about the nodes of `scope`. Reads only."""
        made = await (await self._reconciler()).plan()
        return lines(made, scope, self._around.clock.now())

    def stuck(self, limit: float) -> str | None:
        """What to tell a health check if a round has been going on for longer than `limit`."""
        rounds = None if self._controller is None else self._controller.stuck(limit)
        return rounds or self._checks.stuck(limit)

    def failing(self) -> str | None:
        """The message for a health check if periodic checks cannot be started."""
        return self._checks.failing()

    async def _reconciler(self) -> RouteReconciler:
        await self._around.informer.wait_synced()
        rules = Rules(
            cluster=await self._around.identify(),
            ranges=self._settings.ranges,
            ownership=self._settings.ownership,
            whose=self._around.whose,
        )
        tools = Tools(
            nodes=self._nodes,
            routes=self._around.routes,
            rules=rules,
            ledger=self._ledger,
            telling=self._telling,
            clock=self._around.clock,
            metrics=self._around.metrics,
        )
        return RouteReconciler(tools)

    async def _check(self) -> float:
        """Ask for a round once per period, at fixed times; where nodes are watched they vary.

        Returns the seconds until the next call.
        """
        now = asyncio.get_running_loop().time()
        if self._due is None:
            self._due = now + (self._varied() if self._settings.watch else 0.0)
        if now >= self._due:
            self._queue.add(ALL, Priority.REFRESH)
            self._due += self._varied()
        return max(self._due - now, 0.0)

    def _varied(self) -> float:
        spread = SPREAD * self._around.random.random() if self._settings.watch else 0.0
        return self._settings.period * (1 + spread)


class Pace:
    """Lets changes cause rounds, but not too many: each asks, and the round comes when it may."""

    def __init__(self, queue: WorkQueue[str]) -> None:
        self._queue = queue
        self._begun = deque[float](maxlen=BURST)

    def began(self) -> None:
        self._begun.append(asyncio.get_running_loop().time())

    def ask(self) -> None:
        full = len(self._begun) == BURST
        earliest = self._begun[0] + WINDOW if full else 0.0
        wait = earliest - asyncio.get_running_loop().time()
        self._queue.add_after(ALL, max(GATHER, wait))


@dataclass(frozen=True, slots=True)
class Paced:
    """A reconciler whose passes the pace knows of."""

    inner: RouteReconciler
    pace: Pace

    async def reconcile(self, key: str) -> Result:
        self.pace.began()
        return await self.inner.reconcile(key)


@dataclass(frozen=True, slots=True)
class _Watcher:
    ledger: Ledger
    reconciler: RouteReconciler
    pace: Pace | None

    def added(self, new: Node, /) -> None:
        self._changed(None, new)

    def updated(self, old: Node, new: Node, /) -> None:
        self._changed(old, new)

    def deleted(self, old: Node, /) -> None:
        self.ledger.departed(old)
        self._changed(old, None)

    def _changed(self, old: Node | None, new: Node | None) -> None:
        if self.pace is not None and is_worth_a_round(old, new):
            self.reconciler.nodes_changed()
            self.pace.ask()
