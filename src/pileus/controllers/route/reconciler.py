"""Give the pod ranges of every node a route in the cloud, and delete routes of deleted nodes.

    list routes ──▶ plan ──▶ delete ──▶ create ──▶ conditions, events (while others are created)
                     │
                     └─ deletes a route? ──▶ list nodes from the API server ──▶ plan again

A pass covers all nodes, in a few calls. A failure is reported on its node, affects no other node,
and lets the pass be retried. If all routes match, a pass is one list, and nothing is written.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import assert_never

from pileus.clock import Clock
from pileus.cloud.errors import CloudError, Unavailable
from pileus.cloud.interface import Routes
from pileus.cloud.model import Route
from pileus.controllers.route.ownership import Rules, destination_of
from pileus.controllers.route.plan import (
    CreateRoutes,
    DeleteRoutes,
    KeepRoutes,
    Observation,
    ReportNode,
    Step,
    deletes,
    plan,
    waits_for,
    with_targets,
)
from pileus.controllers.route.record import RouteRecord
from pileus.controllers.route.status import NodeStatus, NodeWarnings, Outcome, lines, status_of
from pileus.dataclass import dataclass, replace
from pileus.kube.errors import KubeError, NotFound
from pileus.kube.model.core_v1 import Node, NodeCondition
from pileus.objects.cluster_nodes import ClusterNodes, NodeReplaced
from pileus.objects.decisions import record_plan
from pileus.objects.preview import EVERYTHING
from pileus.objects.ranges import Range
from pileus.runtime.failure import hint
from pileus.runtime.reconcile import DONE, Result, again_in
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

LONG = 120.0
"""Seconds after which a pass starts no further call; the rest waits for the next pass."""
WRITERS = 100
"""Nodes whose condition is written at the same time."""
SHRUNK = 2
PAUSE = 5.0
"""A list that is shorter than the last one by this factor is requested again after so long."""
GATHER = 5.0
"""Seconds for which a pass over a node that is no longer new waits for more of them."""
IN_DOUBT = Unavailable("it may be that of a node that could not be read")
SHOWN = 5
"""Different errors of a pass that its own error names."""

Publish = Callable[[Node, NodeStatus], None]
Call = Callable[[str, Sequence[Route]], Awaitable[Mapping[Route, CloudError]]]


class Trigger(StrEnum):
    """Why a pass is made: a label of the metric, and nothing else."""

    PERIODIC = "periodic"
    NODE_CHANGE = "node_change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    nodes: ClusterNodes[NodeCondition]
    routes: Routes
    rules: Rules
    record: RouteRecord
    warnings: NodeWarnings
    clock: Clock
    metrics: Metrics
    again: Callable[[float], None]
    """Asks for another pass after so many seconds, unless there is an earlier one."""


class RouteReconciler:
    """Has one key, for all routes."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._count = 0
        """Routes that the cloud had when the last pass ended."""
        self._nodes_changed = False

    def nodes_changed(self) -> None:
        """Nodes are the reason for the next pass, until one succeeds."""
        self._nodes_changed = True

    async def reconcile(self, key: str) -> Result:  # noqa: ARG002 -- there is one
        changed, self._nodes_changed = self._nodes_changed, False
        trigger = Trigger.NODE_CHANGE if changed else Trigger.PERIODIC
        try:
            outcome = await self._pass()
        except (CloudError, KubeError) as error:
            outcome = Outcome(errors=[error])
        self._tools.metrics.route_syncs.labels(outcome.label, trigger.value).inc()
        self._nodes_changed |= changed and outcome.label == "error"
        _raise(outcome)
        return again_in(0) if outcome.untried else DONE

    async def plan(self) -> Sequence[Step]:
        """Returns the steps of the next pass. Reads only."""
        routes = await self._tools.routes.list_routes(self._tools.rules.cluster)
        return plan(await self._observe(routes), self._tools.rules)

    async def _pass(self) -> Outcome:
        observed = await self._observe(await self._list())
        steps = plan(observed, self._tools.rules)
        outcome = Outcome(errors=[observed.nodes_error] if observed.nodes_error else [])
        await self._perform(steps, outcome)
        self._tools.record.tidy(_unwanted(steps))
        waits = (waits_for(observed, self._tools.rules), self._tools.record.doubtful_for())
        soonest = min((each for each in waits if each is not None), default=None)
        if soonest is not None:  # also if this pass failed: its retry may be much later
            self._tools.again(soonest + GATHER)
        return outcome

    async def _list(self) -> Sequence[Route]:
        """Returns the cloud's routes. If the list is much shorter than before, lists again."""
        routes, cluster = self._tools.routes, self._tools.rules.cluster
        listed = await routes.list_routes(cluster)
        if len(listed) * SHRUNK < self._count:
            log.warning(
                "Cloud lists far fewer routes than before, listing again",
                before=self._count,
                now=len(listed),
            )
            await asyncio.sleep(PAUSE)
            listed = await routes.list_routes(cluster)
        self._count = len(listed)
        return listed

    async def _observe(self, routes: Sequence[Route]) -> Observation:
        """Returns what the pass knows. If routes would be deleted, nodes are listed first.

        No route is deleted because of what the watch shows: its view may lack nodes, and it reports
        nodes that a relist lacks as deleted. The nodes are listed after the routes, so that every
        listed route is older than the list of nodes.
        """
        nodes, rules = self._tools.nodes.nodes(), self._tools.rules
        self._tools.record.nodes_seen(nodes)
        self._tools.record.routes_listed(with_targets(routes, nodes))
        recorded = self._tools.record.now()
        date = self._tools.clock.now()
        seen = Observation(nodes=nodes, routes=tuple(routes), recorded=recorded, date=date)
        if not deletes(plan(seen, rules)):
            return seen
        try:
            listed = await self._tools.nodes.fresh()
        except KubeError as error:
            return replace(seen, nodes_error=error)
        everyone = {each.metadata.name: each for each in (*nodes, *listed.items)}
        unreadable = frozenset(each.metadata.name for each in listed.unreadable)
        return replace(seen, nodes=tuple(everyone.values()), unreadable=unreadable)

    async def _perform(self, steps: Sequence[Step], outcome: Outcome) -> None:
        record_plan(lines(steps, EVERYTHING, self._tools.clock.now()))
        until = asyncio.get_running_loop().time() + LONG
        blocked: dict[Range | None, CloudError] = {}
        async with self._publishing(outcome) as publish:
            for step in steps:
                match step:
                    case DeleteRoutes(routes):
                        await self._delete(routes, outcome, until)
                        blocked |= _by_destination(outcome.failed)
                    case KeepRoutes(routes):
                        blocked |= _by_destination(dict.fromkeys(routes, IN_DOUBT))
                    case CreateRoutes(routes):
                        await self._create(routes, blocked, outcome, until)
                    case ReportNode(node):
                        publish(node, status_of(step, outcome, self._tools.clock.now()))
                    case _:
                        assert_never(step)

    async def _delete(self, routes: Sequence[Route], outcome: Outcome, until: float) -> None:
        deleted = await self._call(self._tools.routes.delete, routes, outcome, until)
        self._tools.record.routes_deleted(deleted)
        self._count -= len(deleted)
        for route in routes:
            where = {"destination": route.destination, "target": route.target}
            if route in outcome.failed:
                log.error("Cannot delete route", error=outcome.failed[route], route=where)
            elif route not in outcome.untried:
                log.info("Deleted route that no node needs", route=where)

    async def _create(
        self,
        routes: Sequence[Route],
        blocked: Mapping[Range | None, CloudError],
        outcome: Outcome,
        until: float,
    ) -> None:
        for route in routes:
            if why := blocked.get(destination_of(route.destination)):
                reason = f"the route in its place could not be deleted: {why}"
                outcome.failed[route] = Unavailable(reason)
        free = [route for route in routes if route not in outcome.failed]
        created = await self._call(self._tools.routes.create, free, outcome, until)
        self._tools.record.routes_created(created)
        self._count += len(created)

    async def _call(
        self, call: Call, routes: Sequence[Route], outcome: Outcome, until: float
    ) -> Sequence[Route]:
        """Make one call to the cloud, if there is time left. Returns the routes that succeeded."""
        if not routes:
            return ()
        if asyncio.get_running_loop().time() > until:
            outcome.untried.update(routes)
            return ()
        try:
            failed = await call(self._tools.rules.cluster, routes)
        except CloudError as error:
            failed = dict.fromkeys(routes, error)
        outcome.failed |= failed
        succeeded = [route for route in routes if route not in failed]
        outcome.done += len(succeeded)
        return succeeded

    @asynccontextmanager
    async def _publishing(self, outcome: Outcome) -> AsyncGenerator[Publish]:
        """Reports on nodes while the block goes on with other routes; ends when all are written."""
        reports: list[tuple[Node, NodeStatus]] = []
        slots = asyncio.Semaphore(WRITERS)
        raised: Exception | None = None
        async with asyncio.TaskGroup() as group:

            def publish(node: Node, status: NodeStatus) -> None:
                reports.append((node, status))
                self._tools.warnings.publish(node, status.warnings)
                if status.condition is not None:
                    group.create_task(self._write(node, status.condition, outcome, slots))

            try:
                yield publish
            except Exception as error:  # noqa: BLE001 -- raised below, without the group's wrapping
                raised = error
        if raised is not None:
            raise raised
        self._tools.warnings.keep((node, status.warnings) for node, status in reports)

    async def _write(
        self, node: Node, condition: NodeCondition, outcome: Outcome, slots: asyncio.Semaphore
    ) -> None:
        async with slots:
            try:
                await self._tools.nodes.write(node, condition)
            except (NotFound, NodeReplaced) as error:
                log.info("Node was deleted meanwhile", v=2, node=node.metadata.name, why=error)
            except KubeError as error:
                outcome.errors.append(error)


def _unwanted(steps: Iterable[Step]) -> Sequence[Route]:
    """The routes that no node needs, whether they are deleted now or not."""
    found = (each for each in steps if isinstance(each, DeleteRoutes | KeepRoutes))
    return [route for each in found for route in each.routes]


def _by_destination(errors: Mapping[Route, CloudError]) -> Mapping[Range | None, CloudError]:
    return {destination_of(route.destination): error for route, error in errors.items()}


def _raise(outcome: Outcome) -> None:
    """Let the pass be retried if anything failed, after the longest delay that any error asks for.

    Of many errors, those that ask for no delay and the one with the longest delay are named.
    """
    errors = [*outcome.failed.values(), *outcome.errors]
    unique = {(str(each), hint(each)): each.with_traceback(None) for each in errors}
    if not unique:
        return
    *others, patient = sorted(unique.values(), key=lambda each: hint(each) or 0.0)
    if not others:
        raise patient
    what = f"{len(errors)} operations on routes failed, such as: {others[0]}"
    raise ExceptionGroup(what, [*others[: SHOWN - 1], patient])
