"""Checks nodes that are not ready: asks the cloud about many at once, then plans and acts per node.

    woken, or the period is over ──▶ nodes not in progress ──▶ chunks ──look up──▶ guards ──▶ steps

A node is in progress from being selected until its last write, which may be after the end of the
round: a slow call or write delays no other node. Ready nodes cost no call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random

from pileus.clock import Clock
from pileus.cloud.model import Instance, InstanceState
from pileus.controllers.lifecycle.guard import subject_of
from pileus.controllers.lifecycle.observation import (
    ClusterView,
    InstanceLookup,
    LookupReport,
    Observed,
)
from pileus.controllers.lifecycle.patches import needs_recovery
from pileus.controllers.lifecycle.plan import plan
from pileus.controllers.lifecycle.reconciler import GuardMemory, StepPerformer
from pileus.controllers.lifecycle.settings import LifecycleSettings, Policy
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node
from pileus.objects.lookup import CHUNK, Answer, chunks
from pileus.objects.nodes import is_ready
from pileus.objects.ownership import Ownership
from pileus.runtime.periodic import Periodic, all_of
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics
from pileus.telemetry.passes import part_of_pass

log = Log(__name__)

ROUND = "node-monitor"
LOOKUPS = 8
"""Concurrent calls to the cloud."""
GATHERING = 0.25
"""Seconds for which nodes that became not ready wait for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorTools:
    """What the monitor needs."""

    view: ClusterView
    lookup: InstanceLookup
    memory: GuardMemory
    performer: StepPerformer
    clock: Clock
    metrics: Metrics
    random: Random


class NodeMonitor:
    """Runs the checks."""

    def __init__(self, tools: MonitorTools, settings: LifecycleSettings, name: str = ROUND) -> None:
        """`name` is the name of the rounds in queue metrics, round metrics and health checks."""
        self._tools = tools
        self._view = tools.view
        self._memory = tools.memory
        self._performer = tools.performer
        self._settings = settings
        self._lookups = LookupReport(tools.metrics)
        self._loop = asyncio.get_running_loop()
        self._in_progress: dict[str, float] = {}
        self._woken: set[str] = set()
        self._reminders: set[asyncio.TimerHandle] = set()
        self._errors: list[Exception] = []
        """Unexpected errors of checks; the next round ends with them."""
        self._due = 0.0
        """When all nodes are checked again."""
        self._progress = asyncio.Event()
        """Set when the checks of a round have ended, or nodes are woken."""
        self._checks: asyncio.TaskGroup | None = None
        self._calls = asyncio.Semaphore(LOOKUPS)
        self._is_stale = False
        self._rounds = Periodic(name, self._round, tools.metrics, tools.random)

    async def run(self) -> None:
        """Checks all nodes at the start and once per period; in between those that are woken."""
        try:
            async with asyncio.TaskGroup() as self._checks:
                await self._rounds.run()
        finally:
            for reminder in self._reminders:
                reminder.cancel()

    def wake(self, name: str) -> None:
        """Checks the node soon."""
        self._woken.add(name)
        self._progress.set()
        self._rounds.wake(GATHERING)

    def changed(self, node: Node) -> None:
        """Checks the node soon, even if it is paused after a failure."""
        self._performer.resume(node)
        self.wake(node.metadata.name)

    def forget(self, node: Node) -> None:
        """Forgets the evidence about a node that is ready or deleted."""
        self._memory.update(self._memory.guards.without(node.metadata.uid))

    def stuck(self, limit: float) -> str | None:
        """Returns a message for the health check if work on a node takes more than `limit` s."""
        in_progress = list(self._in_progress.items())  # health checks run in threads
        now = self._loop.time()
        name, since = min(in_progress, key=lambda item: item[1], default=("", now))
        age = now - since
        message = f"work on node {name} has been running for {age:.0f} s"
        return message if age > limit else self._rounds.stuck(limit)

    def failing(self) -> str | None:
        """Returns a message for the health check if rounds keep failing."""
        return self._rounds.failing()

    async def _round(self) -> float:
        """Starts the checks of all nodes if the period is over, else of the woken nodes.

        Returns the seconds until the period is over. Slow checks go on after the round: they delay
        no other node. Raises the unexpected errors of checks that have ended.
        """
        self._raise_errors()
        nodes = self._take_woken()
        if _now() >= self._due:
            self._due = _now() + self._settings.period
            nodes = self._view.nodes()
            self._performer.keep(nodes)
        self._progress.clear()
        if self._checks is not None:
            self._checks.create_task(self._check_all(nodes))
        await self._wait_for_progress()
        self._raise_errors()
        return max(self._due - _now(), 0.0)

    async def _wait_for_progress(self) -> None:
        """Waits until checks have ended, nodes are woken, or the period is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._due):
                await self._progress.wait()

    def _raise_errors(self) -> None:
        errors, self._errors = self._errors, []
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup(f"{len(errors)} checks of nodes failed", errors)

    def _take_woken(self) -> Sequence[Node]:
        """Returns the nodes that were woken since the last call."""
        names, self._woken = self._woken, set()
        found = (self._view.node(name) for name in sorted(names))
        return [node for node in found if node is not None]

    async def _check_all(self, nodes: Sequence[Node]) -> None:
        """Checks the nodes; keeps an unexpected error for the next round to raise."""
        began = _now()
        try:
            if not self._sees_stale_nodes(self._view.staleness()):
                self._recount()
                await all_of(self._work([node for node in nodes if self._is_selected(node)]))
                self._tools.metrics.monitor_duration.observe(_now() - began)
        except Exception as error:  # noqa: BLE001 -- raised by a round, which backs off
            self._errors.append(error)
        finally:
            self._progress.set()

    def _work(self, selected: Sequence[Node]) -> Sequence[Callable[[], Awaitable[None]]]:
        """Returns the checks of the nodes, which are in progress from now on."""
        work: list[Callable[[], Awaitable[None]]] = []
        for node in selected:
            if is_ready(node):
                self._start([node])
                seen = Observed(node, self._view.whose(node))
                work.append(partial(self._released, node, partial(self._act, seen)))
        for chunk in self._chunks([node for node in selected if not is_ready(node)]):
            self._start(chunk)
            work.append(partial(self._check, chunk))
        return work

    def _chunks(self, nodes: Sequence[Node]) -> Iterable[Sequence[Node]]:
        """Returns the nodes of each lookup.

        With several clouds the lookup of unidentified nodes waits for all of them, so these nodes
        share no lookup with nodes of this cloud.
        """
        ours = [node for node in nodes if self._view.whose(node) is Ownership.OURS]
        others = [node for node in nodes if self._view.whose(node) is not Ownership.OURS]
        return [*chunks(ours, CHUNK), *chunks(others, CHUNK)]

    def _is_selected(self, node: Node) -> bool:
        """Whether there may be something to do for the node, and nothing is in progress."""
        name = node.metadata.name
        if not name or name in self._in_progress or node.metadata.deletion_timestamp:
            return False
        if self._performer.is_paused(node):
            return False
        if is_ready(node) and not needs_recovery(node):
            return False
        return self._view.whose(node) is not Ownership.FOREIGN

    def _start(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._in_progress[node.metadata.name] = _now()

    async def _released(self, node: Node, work: Callable[[], Awaitable[None]]) -> None:
        """Does the work on a node in progress. A failure affects no other node."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 -- the node is paused, like the key of a failed pass
            self._rounds.count_failure()
            self._performer.failed(node, error)
        finally:
            self._in_progress.pop(node.metadata.name)

    async def _check(self, nodes: Sequence[Node]) -> None:
        try:
            seen = await self._observed(nodes)
        except BaseException:
            for node in nodes:
                self._in_progress.pop(node.metadata.name)
            raise
        await all_of([
            partial(self._released, node, partial(self._act, seen[node.metadata.name]))
            for node in nodes
        ])

    async def _observed(self, nodes: Sequence[Node]) -> Mapping[str, Observed | None]:
        async with self._calls:
            began = _now()
            answers = await self._answers(nodes)
        seen = {node.metadata.name: self._seen(node, answers) for node in nodes}
        self._record([each for each in seen.values() if each], began)
        return seen

    async def _answers(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        suspects = self._memory.guards.deletion.suspects
        try:
            answers = await self._tools.lookup.answers(
                nodes,
                witnesses=self._settings.policy is Policy.GUARDED,
                suspected=any(node.metadata.uid in suspects for node in nodes),
            )
        except asyncio.CancelledError:
            self._lookups.cancelled(len(nodes))
            raise
        self._lookups.answered(answers)
        return answers

    def _seen(self, asked: Node, answers: Mapping[str, Answer]) -> Observed | None:
        """Returns the node as it is now, with its answer; None if the node has changed since."""
        node = self._view.node(asked.metadata.name)
        if node is None or node.metadata.deletion_timestamp or is_ready(node):
            return None
        whose = self._view.whose(node)
        if whose is Ownership.FOREIGN or subject_of(node) != subject_of(asked):
            return None
        return Observed(node, whose, answers[asked.metadata.name])

    def _record(self, seen: Sequence[Observed], began: float) -> None:
        before = self._memory.guards
        after = before.recorded(seen, began=began, ended=_now(), ours=self._ours(seen))
        self._memory.update(after)
        new = after.suspects - before.suspects
        self._remind([e.node.metadata.name for e in seen if e.node.metadata.uid in new])

    def _remind(self, names: Sequence[str]) -> None:
        """Checks the nodes again as soon as that can confirm the first answer."""
        if not names:
            return
        loop = asyncio.get_running_loop()

        def remind() -> None:
            self._reminders.discard(reminder)
            for name in names:
                self.wake(name)

        reminder = loop.call_later(self._settings.rules.grace, remind)
        self._reminders.add(reminder)

    def _recount(self) -> None:
        """Forgets evidence about nodes that are ready or deleted, and counts again."""
        guards = self._memory.guards
        if guards.is_idle:
            return
        away = [node for node in self._view.nodes() if not is_ready(node)]
        self._memory.update(guards.retained(map(subject_of, away), _now(), self._view.ours()))

    def _ours(self, seen: Iterable[Observed]) -> frozenset[str]:
        """Returns the UIDs of all nodes of this cloud; none if there is nothing to count."""
        if self._memory.guards.is_idle and all(_is_running(each.answer) for each in seen):
            return frozenset()
        return self._view.ours()

    def _sees_stale_nodes(self, why: str) -> bool:
        """Whether nothing may be concluded now. Logs when that begins and ends."""
        if why and not self._is_stale:
            log.warning("Pausing node monitoring: the view of the cluster may be stale", why=why)
        elif self._is_stale and not why:
            log.info("Resuming node monitoring")
        self._is_stale = bool(why)
        return self._is_stale

    async def _act(self, seen: Observed | None) -> None:
        """Plans for one node from what was observed, and performs the steps."""
        if seen is not None:
            steps = plan(seen, self._memory.guards, self._tools.clock.now())
            with part_of_pass():
                await self._performer.perform(seen, steps)


def _is_running(answer: Answer | None) -> bool:
    """Whether there is nothing to guard against."""
    return isinstance(answer, Instance) and answer.state is not InstanceState.STOPPED


def _now() -> float:
    return asyncio.get_running_loop().time()
