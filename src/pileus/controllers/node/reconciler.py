"""A pass over one node: observe it, plan, perform the steps.

    node ──look up──▶ observation ──plan──▶ addresses ──▶ provider ID, labels, taint ──▶ event
                           │
                           └─ the cloud has no answer ──▶ retried; reported on the node if it lasts

A pass over an initialized node that is up to date makes no request. A periodic refresh updates all
initialized nodes from the cloud, hundreds per call: addresses, and with `--node-label-sync` labels.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from functools import partial
from typing import assert_never

from pileus.clock import Clock
from pileus.cloud.interface import Instances
from pileus.controllers.node.events import message_of, reason_of
from pileus.controllers.node.identity import AcceptedNodes
from pileus.controllers.node.lines import lines
from pileus.controllers.node.observation import (
    Answer,
    Facts,
    Observation,
    answer_text,
    look_up,
    refused,
)
from pileus.controllers.node.patches import Write
from pileus.controllers.node.plan import (
    Apply,
    Finish,
    Report,
    Retry,
    Rule,
    Skip,
    Step,
    Steps,
    Warn,
    age,
    decide,
    is_managed,
    is_refreshable,
    plan,
    plan_refresh,
    plan_report,
)
from pileus.controllers.node.settings import NodeSettings
from pileus.dataclass import dataclass, replace
from pileus.deadline import covered
from pileus.fence import Fenced
from pileus.kube.errors import ApiError, KubeError, NotFound
from pileus.kube.model.core_v1 import Node
from pileus.objects.cluster_nodes import NodeReplaced, Nodes, NodeWriter
from pileus.objects.decisions import record_observation, record_plan
from pileus.objects.events import ObjectEvents
from pileus.objects.lookup import CHUNK, chunks
from pileus.objects.node_ips import NodeIpRefused
from pileus.objects.nodes import about_node, is_uninitialized, provider_id_of
from pileus.objects.ownership import Ownership, Whose
from pileus.runtime.backoff import Pacing
from pileus.runtime.controller import Limits
from pileus.runtime.memory import PerObject
from pileus.runtime.periodic import ROUND_LIMITS, Periodic, all_of
from pileus.runtime.reconcile import DONE, Result
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics
from pileus.telemetry.passes import part_of_pass

log = Log(__name__)

ROUND = "node-refresh"
TURNS = 32
"""New nodes that are written at a time, as many as the client sends requests at a time. A node gets
both of its writes before the next one has its turn, and is ready sooner than the last ones."""
SPREAD = 0.1
"""The fraction of the refresh period over which calls are spread and by which periods vary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What passes and refreshes need."""

    nodes: Nodes[Write]
    instances: Instances
    whose: Whose
    writer: NodeWriter[Write]
    notices: ObjectEvents
    clock: Clock
    metrics: Metrics
    accepted: AcceptedNodes = field(default_factory=AcceptedNodes)

    def observation(self, node: Node, answer: Answer | None = None) -> Observation:
        is_new = is_uninitialized(node)
        is_claim = not is_new and self.accepted.is_claim(node)
        return Observation(
            node=node,
            whose=self.whose,
            answer=answer,
            others=self._others(node, answer)
            if isinstance(answer, Facts) and (is_new or is_claim)
            else (),
            identity=self.accepted.rule,
            is_claim=is_claim,
        )

    def _others(self, node: Node, machine: Facts) -> tuple[Node, ...]:
        """Returns the other initialized nodes of the machine."""
        forms = {machine.provider_id, *machine.aliases} - {""}
        return tuple(
            each
            for form in sorted(forms)
            for each in self.nodes.of_machine(form)
            if each.metadata.uid != node.metadata.uid
            and not is_uninitialized(each)
            and not each.metadata.deletion_timestamp
        )

    def managed(self) -> Sequence[Node]:
        """Returns all nodes except those of other clouds."""
        nodes = self.nodes.nodes()
        return [node for node in nodes if self.whose(node) is not Ownership.FOREIGN]

    def oldest_uninitialized(self) -> float:
        """Returns the age of the oldest node with the uninitialized taint; 0 if there is none."""
        now = self.clock.now()
        ages = (age(node, now) for node in self.managed() if is_uninitialized(node))
        return max((each for each in ages if each is not None), default=0.0)


class StepPerformer:
    """Performs the steps of passes and refreshes, in order."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._failing = PerObject[str, float]("nodes/failing")
        """When the first of the failed passes over a node ended."""
        self._pacing = PerObject[str, Pacing]("nodes/report-pacing")
        tools.metrics.nodes_failing.set_function(lambda: len(self._failing))
        tools.metrics.oldest_uninitialized_node.set_function(tools.oldest_uninitialized)

    async def perform(self, seen: Observation, steps: Steps) -> Observation | None:
        """Performs the steps. Returns what is observed after them.

        Ends early and returns None if another process has initialized the node. Raises the error of
        `Retry`, and what the API server answers to a write.
        """
        record_observation(about_node(seen.node), answer_text(seen.answer))
        record_plan(lines(seen.node, steps))
        left: Observation | None = seen
        for step in steps:
            if left is not None:
                left = await self._perform(left, step)
        return left

    def failing_for(self, name: str) -> float:
        """Returns the seconds since the first failure of a node's passes; 0 if none failed."""
        since = self._failing.get(name)
        return 0.0 if since is None else _now() - since

    def forget(self, name: str) -> None:
        """Forgets the failures of a node."""
        self._failing.pop(name, None)
        self._pacing.pop(name, None)

    async def _perform(self, seen: Observation, step: Step) -> Observation | None:
        """Returns what is observed after the step; None if the steps after it do not apply."""
        match step:
            case Apply(rule):
                return await self._apply(seen, rule)
            case Finish(provider_id):
                self._finish(seen.node, provider_id)
            case Warn(reason, message):
                self._tools.notices.warn(about_node(seen.node), reason, message)
            case Report():
                await self._report(seen.node, step)
            case Retry(error):
                raise error.with_traceback(None)  # several nodes may share it
            case Skip():
                self._skip(seen.node, step)
            case _:
                assert_never(step)
        return seen

    async def _apply(self, seen: Observation, rule: Rule) -> Observation | None:
        now = self._tools.clock.now()
        node, written = await self._tools.writer.bring(
            seen.node, lambda fresh: decide(rule, replace(seen, node=fresh), now)
        )
        left = replace(seen, node=node)
        if rule is not Rule.INITIAL_OBJECT:
            return left
        if not written:
            return None  # another process has initialized the node
        # Still uninitialized: its addresses had been changed meanwhile, and were written instead.
        return await self._apply(left, rule) if is_uninitialized(node) else left

    def _finish(self, node: Node, provider_id: str) -> None:
        delay = age(node, self._tools.clock.now())
        if delay is not None:
            self._tools.metrics.taint_removal_delay.observe(delay)
            self._tools.metrics.initial_node_sync_delay.observe(delay)
        log.info("Initialized node", node=node.metadata.name, provider_id=provider_id)
        self._tools.notices.announce(about_node(node), "Synced", "Node synced successfully")

    def _skip(self, node: Node, step: Skip) -> None:
        log.warning("Node not refreshed", node=node.metadata.name, err=step.error)
        if step.warns:
            reason, message = reason_of(step.error), message_of(step.error)
            self._tools.notices.warn(about_node(node), reason, message)

    async def _report(self, node: Node, step: Report) -> None:
        name = node.metadata.name
        self._failing.setdefault(name, _now())
        if step.wait > 0:
            return
        message = f"Node cannot be initialized: {step.message}"
        self._tools.notices.warn(about_node(node), step.reason, message)
        pacing = self._pacing.setdefault(name, Pacing())
        if step.write is None or not pacing.is_due(_now()):
            return
        try:
            await self._tools.nodes.write(node, step.write)
            pacing.succeeded()
        except KubeError as error:
            pacing.failed(error, _now())
            log.warning("Cannot write the condition of a node", node=name, err=error)


class NodeReconciler:
    """The key is the node's name."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._turns = asyncio.Semaphore(TURNS)
        self.performer = StepPerformer(tools)

    async def reconcile(self, key: str) -> Result:
        node = self._tools.nodes.node(key)
        if node is not None:
            try:
                await self._pass(node)
            except (NotFound, NodeReplaced) as error:
                log.info("Node was deleted during the pass", v=2, node=key, why=error)
        self.performer.forget(key)
        return DONE

    async def report(self, key: str, error: Exception) -> None:
        """Reports on the node that its pass timed out or raised an unexpected error."""
        node = self._tools.nodes.node(key)
        if node is not None and is_uninitialized(node):
            await self._report(self._tools.observation(node), error)

    async def _pass(self, node: Node) -> None:
        seen = await self._observe(node)
        if not is_uninitialized(node):
            await self._complete(node, seen)
            return
        with covered():  # the passes that have a turn make requests, which have deadlines
            await self._turns.acquire()
        try:
            await self._complete(node, seen)
        finally:
            self._turns.release()

    async def _complete(self, node: Node, seen: Observation) -> None:
        if isinstance(seen.answer, Facts) and not refused(seen):
            self._tools.accepted.accept(node, provider_id_of(node) or seen.answer.provider_id)
        try:
            left = await self.performer.perform(seen, plan(seen, self._tools.clock.now()))
            if left is not None and is_uninitialized(node) != is_uninitialized(left.node):
                # The answer of the API server may have more than the informer's node: the condition
                # that this process wrote while the watch was interrupted. And a node that was
                # refused gets its condition.
                await self.performer.perform(left, plan(left, self._tools.clock.now()))
        except NotFound:
            raise
        except ApiError as error:
            if is_uninitialized(node):
                await self._report(seen, error)
            raise

    async def _observe(self, node: Node) -> Observation:
        """Asks the cloud only about nodes that are not initialized, or not accepted yet."""
        seen = self._tools.observation(node)
        if not is_managed(seen) or not (is_uninitialized(node) or seen.is_claim):
            return seen
        answers = await look_up(self._tools.instances, [node])
        name = node.metadata.name
        failing_for = self.performer.failing_for(name)
        return replace(self._tools.observation(node, answers[name]), failing_for=failing_for)

    async def _report(self, seen: Observation, error: Exception) -> None:
        now = self._tools.clock.now()
        await self.performer.perform(seen, plan_report(seen, error, now))


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
                with part_of_pass():
                    await self._performer.perform(seen, steps)
            except (NotFound, NodeReplaced, Fenced) as error:
                log.info("Node not refreshed", v=2, node=name, why=error)
            except (NodeIpRefused, KubeError) as error:
                log.warning("Node not refreshed", node=name, err=error)
                self._tools.notices.warn(about_node(seen.node), reason_of(error), message_of(error))


def _now() -> float:
    return asyncio.get_running_loop().time()
