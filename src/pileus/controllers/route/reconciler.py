"""Give every node's pod ranges a route in the cloud, and take away those of nodes that are gone.

    list routes ──▶ plan ──▶ delete ──▶ create ──▶ conditions, events
                     │
                     └─ deletes a route? ──▶ list nodes from the API server ──▶ plan again

A round is over all nodes, in a few calls. What fails is told on its node, harms no other, and
makes the round one that is retried. Equal means: one list, and nothing written.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pileus.clock import Clock
from pileus.cloud.errors import CloudError, Unavailable
from pileus.cloud.interface import Routes
from pileus.cloud.model import Route
from pileus.controllers.route.ledger import Ledger
from pileus.controllers.route.ownership import Rules, destination_of
from pileus.controllers.route.plan import (
    Plan,
    Standing,
    condition,
    is_available,
    plan,
    sparing,
)
from pileus.controllers.route.telling import Telling
from pileus.kube.errors import KubeError, NotFound
from pileus.kube.model.core_v1 import Node, NodeCondition
from pileus.objects.cluster_nodes import ClusterNodes, NodeReplaced
from pileus.objects.lookup import chunks
from pileus.runtime.failure import hint
from pileus.runtime.reconcile import DONE, Result, again_in
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

CHUNK = 100
"""Routes per call to the cloud."""
LONG = 120.0
"""Seconds after which a round begins no further call; the rest waits for the next one."""
WRITERS = 100
"""Nodes whose condition is written at the same time."""
SHRUNK = 2
PAUSE = 5.0
"""A list that is shorter than the last one by this factor is asked for again after so long."""
IN_DOUBT = Unavailable("it may be that of a node that could not be read")
SHOWN = 5
"""Different errors of a round that its own error names."""


class Trigger(StrEnum):
    """Why a round is made; a label of the metric, and nothing else."""

    PERIODIC = "periodic"
    NODE_CHANGE = "node_change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    nodes: ClusterNodes[NodeCondition]
    routes: Routes
    rules: Rules
    ledger: Ledger
    telling: Telling
    clock: Clock
    metrics: Metrics


@dataclass(slots=True)
class Effects:
    """What became of a plan."""

    failed: dict[Route, CloudError] = field(default_factory=dict[Route, CloudError])
    untried: set[Route] = field(default_factory=set[Route])
    done: int = 0
    errors: list[Exception] = field(default_factory=list[Exception])

    @property
    def outcome(self) -> str:
        if self.failed or self.errors:
            return "error"
        return "changed" if self.done else "noop"


class RouteReconciler:
    """Key: there is one, for all routes."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._count = 0
        """Routes that the cloud had when the last round ended."""
        self._nodes_changed = False

    def nodes_changed(self) -> None:
        """The next round is made because of nodes, until one succeeds."""
        self._nodes_changed = True

    async def reconcile(self, key: str) -> Result:  # noqa: ARG002 -- there is one
        changed, self._nodes_changed = self._nodes_changed, False
        trigger = Trigger.NODE_CHANGE if changed else Trigger.PERIODIC
        try:
            effects = await self._round()
        except (CloudError, KubeError) as error:
            effects = Effects(errors=[error])
        self._tools.metrics.route_syncs.labels(effects.outcome, trigger.value).inc()
        self._nodes_changed |= changed and effects.outcome == "error"
        _raise(effects)
        return again_in(0) if effects.untried else DONE

    async def plan(self) -> Plan:
        """What the next round would do. Reads only."""
        listed = await self._tools.routes.list_routes(self._tools.rules.cluster)
        made, _ = await self._planned(self._tools.nodes.nodes(), listed)
        return made

    async def _round(self) -> Effects:
        listed = await self._list()
        nodes = self._tools.nodes.nodes()
        self._tools.telling.keep(nodes)
        made, trouble = await self._planned(nodes, listed)
        effects = Effects(errors=[trouble] if trouble else [])
        await self._perform(made, effects)
        self._tools.ledger.tidy((*made.delete, *made.spared))
        await self._tell(made, effects)
        return effects

    async def _list(self) -> Sequence[Route]:
        """The cloud's routes; a list that has shrunk a lot is looked at twice."""
        routes, cluster = self._tools.routes, self._tools.rules.cluster
        listed = await routes.list_routes(cluster)
        if len(listed) * SHRUNK < self._count:
            log.warning(
                "The cloud lists far fewer routes than before; it is asked again",
                before=self._count,
                now=len(listed),
            )
            await asyncio.sleep(PAUSE)
            listed = await routes.list_routes(cluster)
        self._count = len(listed)
        return listed

    async def _planned(
        self, nodes: Sequence[Node], listed: Sequence[Route]
    ) -> tuple[Plan, KubeError | None]:
        """Return the plan, and the error if the nodes could not be listed.

        No route is deleted because of what the watch shows: its view may lack nodes, and reports
        those that a list lacks as deleted. The nodes are listed after the routes, so that every
        route of the list is older than they are.
        """
        memory, rules = self._tools.ledger.memory(), self._tools.rules
        made = plan(nodes, listed, memory, rules)
        if not made.delete:
            return made, None
        try:
            fresh = await self._tools.nodes.fresh()
        except KubeError as error:
            return sparing(made, lambda _: True), error
        everyone = {each.metadata.name: each for each in (*nodes, *fresh.items)}
        made = plan(tuple(everyone.values()), listed, memory, rules)
        unread = {each.metadata.name for each in fresh.unreadable}
        return sparing(made, lambda target: bool(unread) and target in {None, *unread}), None

    async def _perform(self, made: Plan, effects: Effects) -> None:
        until = asyncio.get_running_loop().time() + LONG
        routes, ledger = self._tools.routes, self._tools.ledger
        gone = await self._in_chunks(made.delete, routes.delete, effects, until)
        ledger.deleted(gone)
        self._count -= len(gone)
        taken = {destination_of(route.destination): why for route, why in effects.failed.items()}
        taken |= {destination_of(route.destination): IN_DOUBT for route in made.spared}
        for route in made.create:
            if why := taken.get(destination_of(route.destination)):
                told = f"the route in its place could not be deleted: {why}"
                effects.failed[route] = Unavailable(told)
        wanted = [route for route in made.create if route not in effects.failed]
        made_now = await self._in_chunks(wanted, routes.create, effects, until)
        ledger.created(made_now)
        self._count += len(made_now)

    async def _in_chunks(
        self,
        routes: Sequence[Route],
        act: Callable[[str, Sequence[Route]], Awaitable[Mapping[Route, CloudError]]],
        effects: Effects,
        until: float,
    ) -> Sequence[Route]:
        """Those that succeeded."""
        now = asyncio.get_running_loop().time
        succeeded: list[Route] = []
        for chunk in chunks(routes, CHUNK):
            if now() > until:
                effects.untried.update(chunk)
                continue
            try:
                failed = await act(self._tools.rules.cluster, chunk)
            except CloudError as error:
                failed = dict.fromkeys(chunk, error)
            effects.failed |= failed
            succeeded += [route for route in chunk if route not in failed]
        effects.done += len(succeeded)
        return succeeded

    async def _tell(self, made: Plan, effects: Effects) -> None:
        self._tools.telling.deleted(made.delete, effects.failed)
        slots = asyncio.Semaphore(WRITERS)
        async with asyncio.TaskGroup() as group:
            for each in made.standings:
                group.create_task(self._tell_of(each, effects, slots))

    async def _tell_of(
        self, standing: Standing, effects: Effects, slots: asyncio.Semaphore
    ) -> None:
        self._tools.telling.of(standing, effects.failed)
        available = is_available(standing, effects.failed.keys(), effects.untried)
        if available is None:
            return
        said = condition(standing.node, available=available, now=self._tools.clock.now())
        if said is None:
            return
        async with slots:
            try:
                await self._tools.nodes.write(standing.node, said)
            except (NotFound, NodeReplaced) as error:
                name = standing.node.metadata.name
                log.info("Node went away meanwhile", v=2, node=name, why=error)
            except KubeError as error:
                effects.errors.append(error)


def _raise(effects: Effects) -> None:
    """Have the round retried if anything failed, with the longest wait that any error asks for.

    Of many errors, those that ask for nothing and the most patient one are named.
    """
    errors = [*effects.failed.values(), *effects.errors]
    unique = {(str(each), hint(each)): each.with_traceback(None) for each in errors}
    if not unique:
        return
    *others, patient = sorted(unique.values(), key=lambda each: hint(each) or 0.0)
    if not others:
        raise patient
    what = f"{len(errors)} things of a round over the routes failed, such as: {others[0]}"
    raise ExceptionGroup(what, [*others[: SHOWN - 1], patient])
