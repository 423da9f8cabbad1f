"""The route controller: its queue with one key, its workers, and what asks for passes."""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial

from pileus.cloud.interface import Routes
from pileus.controllers.route.ownership import Rules
from pileus.controllers.route.plan import is_worth_a_round
from pileus.controllers.route.reconciler import RouteReconciler, Tools
from pileus.controllers.route.record import RouteRecord
from pileus.controllers.route.settings import RouteSettings
from pileus.controllers.route.status import NodeWarnings, condition_patch, lines
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import NODES, Node
from pileus.objects import ownership as nodes
from pileus.objects.cluster_nodes import ClusterNodes
from pileus.objects.descriptor import ControllerContext
from pileus.objects.events import ObjectEvents
from pileus.objects.ownership import Whose
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.runtime.backoff import Exponential, RetryPolicy
from pileus.runtime.controller import Controller, Limits
from pileus.runtime.periodic import Periodic
from pileus.runtime.queue import Priority, WorkQueue
from pileus.runtime.reconcile import Result

QUEUE = "Routes"
ROUND = "route-check"
ALL = "all"
"""The only key: a pass covers all routes."""
RETRIES = Exponential(1.0, 300.0)
GATHER = 0.5
"""Seconds after a change of a node in which further changes join the same pass."""
BURST, WINDOW = 3, 30.0
"""Changes of nodes cause at most so many passes in so many seconds."""
SPREAD = 0.1
"""The fraction by which pauses between checks vary, if changes of nodes cause passes as well."""


class RouteController:
    """Keeps the cloud's routes to the pod ranges of nodes."""

    def __init__(self, context: ControllerContext, routes: Routes, settings: RouteSettings) -> None:
        self._context = context
        self._routes = routes
        self._settings = settings
        self._informer = context.informers.of(NODES)
        self._nodes = ClusterNodes(context.client, self._informer.store, condition_patch)
        self._record = RouteRecord()
        self._warnings = NodeWarnings(ObjectEvents(context.events))
        self._queue = WorkQueue[str](context.scoped(QUEUE), context.metrics)
        self._checks = Periodic(context.scoped(ROUND), self._check, context.metrics, context.random)
        self._due: float | None = None
        self._controller: Controller[str] | None = None

    async def run(self) -> None:
        """Work until cancelled; call once. Waits until all nodes and the cluster's ID are known."""
        reconciler = await self._reconciler()
        pace = Pace(self._queue)
        controller = self._controller = Controller(
            self._context.scoped(self._context.names.canonical),
            Paced(reconciler, pace),
            self._queue,
            RetryPolicy(RETRIES, self._context.random),
            Limits(workers=1),
        )
        watcher = _Watcher(
            self._record,
            reconciler,
            self._context.scope.whose,
            pace if self._settings.watch else None,
        )
        self._record.nodes_seen(self._nodes.nodes())  # those that are added later are new
        self._informer.subscribe(self._nodes.without_echoes(watcher))
        if self._settings.watch:
            pace.ask()  # even without nodes: the last one may have been deleted before the start
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run())
            group.create_task(self._checks.run())

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """Returns what the next pass would do for the nodes of `scope`. Reads only."""
        steps = await (await self._reconciler()).plan()
        return lines(steps, scope, self._context.clock.now())

    def stuck(self, limit: float) -> str | None:
        """Returns the message for a health check if a pass runs for longer than `limit` seconds."""
        passes = None if self._controller is None else self._controller.stuck(limit)
        return passes or self._checks.stuck(limit)

    def failing(self) -> str | None:
        """Returns the message for a health check if periodic checks cannot be started."""
        return self._checks.failing()

    async def _reconciler(self) -> RouteReconciler:
        await self._informer.wait_synced()
        rules = Rules(
            cluster=await self._context.cluster_id(),
            ranges=self._settings.ranges,
            ownership=self._settings.ownership,
            whose=self._context.scope.whose,
            checks_claims=self._context.scope.cloud.instances is not None,
        )
        tools = Tools(
            nodes=self._nodes,
            routes=self._routes,
            rules=rules,
            record=self._record,
            warnings=self._warnings,
            clock=self._context.clock,
            metrics=self._context.metrics,
            again=partial(self._queue.next_pass, ALL),
        )
        return RouteReconciler(tools)

    async def _check(self) -> float:
        """Ask for a pass once per period, at fixed times; the period varies if nodes are watched.

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
        spread = SPREAD * self._context.random.random() if self._settings.watch else 0.0
        return self._settings.period * (1 + spread)


class Pace:
    """Limits how often changes of nodes cause passes."""

    def __init__(self, queue: WorkQueue[str]) -> None:
        self._queue = queue
        self._begun = deque[float](maxlen=BURST)

    def began(self) -> None:
        self._begun.append(asyncio.get_running_loop().time())

    def ask(self) -> None:
        """Ask for a pass. The first one is made at once: all nodes are known by then."""
        full = len(self._begun) == BURST
        earliest = self._begun[0] + WINDOW if full else 0.0
        wait = earliest - asyncio.get_running_loop().time()
        self._queue.add_after(ALL, max(GATHER if self._begun else 0.0, wait))


@dataclass(frozen=True, slots=True)
class Paced:
    """A reconciler that reports the start of each pass to the pace."""

    inner: RouteReconciler
    pace: Pace

    async def reconcile(self, key: str) -> Result:
        self.pace.began()
        return await self.inner.reconcile(key)


@dataclass(frozen=True, slots=True)
class _Watcher:
    record: RouteRecord
    reconciler: RouteReconciler
    whose: Whose
    pace: Pace | None

    def added(self, new: Node, /) -> None:
        self.record.node_added(new)
        self._changed(None, new)

    def updated(self, old: Node, new: Node, /) -> None:
        self._changed(old, new)

    def deleted(self, old: Node, /) -> None:
        if self.whose(old) is not nodes.Ownership.FOREIGN:
            self.record.node_deleted(old)
        self._changed(old, None)

    def _changed(self, old: Node | None, new: Node | None) -> None:
        if self.pace is not None and is_worth_a_round(old, new):
            self.reconciler.nodes_changed()
            self.pace.ask()
