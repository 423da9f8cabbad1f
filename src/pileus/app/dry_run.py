"""`--dry-run`: a manager that plans and reports changes, but makes none.

    change observed ──▶ short delay ──▶ plan of everything ──▶ log, events, metrics ──▶ pause

No controller runs, so nothing waits for the effect of a write that was not made. Only events are
written; the transport of every client refuses all other writes.
"""

import asyncio
import random
from collections.abc import Mapping

from msgspec.structs import replace

from pileus.app.background import background
from pileus.app.context import ManagerContext
from pileus.app.plan import Plan, Planner, started_context
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node, ObjectReference
from pileus.kube.model.meta import KubeObject
from pileus.objects.events import REPEAT_AFTER
from pileus.objects.preview import EVERYTHING, Planned, title
from pileus.runtime.controller import Limits
from pileus.runtime.events import Recorder
from pileus.runtime.periodic import Periodic
from pileus.server.health import Health
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

ROUND = "dry-run"
REASON, TROUBLE = "Planned", "PlanTrouble"
GATHER = 1.0
"""Seconds between a change and the plan: further changes are included in it."""
SHORTEST_PAUSE = 5.0
SHARE = 20
"""Seconds of rest per second that a plan took: plans must not load the cloud."""
PERIOD = 300.0
"""Seconds between plans if the cluster does not change; the cloud may have changed."""
STUCK = 600.0
"""Seconds after which an unfinished plan makes the process unhealthy."""
LIMITS = Limits(deadline=2 * STUCK)

KUBE_SYSTEM = ObjectReference(api_version="v1", kind="Namespace", name="kube-system")
"""Events about objects that are deleted already are recorded on this namespace."""

Line = tuple[str, str]
"""Type and text of an event, without details and remaining time: they do not make a new line."""


async def run_dry(context: ManagerContext, health: Health, events: Recorder) -> None:
    """Make and report plans until cancelled. Raises Fatal like the leader's start."""
    log.info("Dry run: no changes are made, no lease is taken")
    if context.clouds is not None:
        context.clouds.report_to(health)
    async with started_context(context) as ready:
        reporter = PlanReporter(events, ready.metrics)
        dry_run = DryRun(Planner(ready), reporter, ready.random)
        health.add("dry-run", dry_run.stuck)
        health.add("dry-run-rounds", dry_run.rounds.failing, live=False)
        health.add("informers", ready.informers.ill, ready=False)
        health.add("informers-synced", ready.informers.not_ready, live=False)
        async with background(_subscribe(ready, dry_run)):
            await dry_run.run()


class DryRun:
    def __init__(self, planner: Planner, reporter: "PlanReporter", chance: random.Random) -> None:
        self._planner = planner
        self._reporter = reporter
        self.rounds = Periodic(ROUND, self._plan, reporter.metrics, chance, LIMITS)

    def notice(self) -> None:
        """Make a plan soon, because an object has changed."""
        self.rounds.wake(GATHER)

    async def run(self) -> None:
        """Make plans until cancelled."""
        await self.rounds.run()

    async def _plan(self) -> float:
        """Make one plan and report it. Returns the seconds until the next one without a change."""
        now = asyncio.get_running_loop().time
        began = now()
        self._reporter.report(await self._planner.plan(EVERYTHING))
        pause = max(SHORTEST_PAUSE, SHARE * (now() - began))
        self.rounds.rest(pause)
        return PERIOD + pause

    def stuck(self) -> str | None:
        """Returns the message for a health check if a plan takes too long; called in a thread."""
        return self.rounds.stuck(STUCK)


@dataclass(frozen=True, slots=True)
class _Announced:
    lines: frozenset[Line]
    at: float


class PlanReporter:
    """Reports what is new in a plan: in the log, in one event per object, and in metrics."""

    def __init__(self, events: Recorder, metrics: Metrics) -> None:
        self._events = events
        self.metrics = metrics
        self._known: frozenset[tuple[str, ObjectReference, str]] = frozenset()
        self._announced: dict[ObjectReference, _Announced] = {}

    def report(self, plan: Plan) -> None:
        self._count(plan)
        self._announce(plan)
        for controller, why in plan.failures.items():
            log.warning("No plan", controller=controller, err=why)

    def _count(self, plan: Plan) -> None:
        known: set[tuple[str, ObjectReference, str]] = set()
        self.metrics.planned_changes_open.clear()
        for controller, change in plan.changes:
            labels = (controller, change.place.value, change.effect.name.lower())
            self.metrics.planned_changes_open.labels(*labels).inc()
            line = (controller, change.about, text_of(change))
            known.add(line)
            if line not in self._known:
                self.metrics.planned_changes_total.labels(*labels).inc()
                log.info(
                    "Planned",
                    controller=controller,
                    object=title(change.about),
                    change=text_of(change),
                    details=list(change.details),
                    waits_for=change.waits_for,
                )
        self._known = frozenset(known)

    def _announce(self, plan: Plan) -> None:
        lines: dict[ObjectReference, dict[Line, None]] = {}
        for _, change in plan.changes:
            about = change.about if change.about.name else KUBE_SYSTEM
            lines.setdefault(about, {})["Normal", text_of(change)] = None
        for _, trouble in plan.troubles:
            text = f"{trouble.reason}: {trouble.message}"
            lines.setdefault(trouble.about, {})["Warning", text] = None
        self._announced = {about: last for about, last in self._announced.items() if about in lines}
        for about, texts in lines.items():
            self._announce_one(about, texts)

    def _announce_one(self, about: ObjectReference, lines: Mapping[Line, None]) -> None:
        now, last = asyncio.get_running_loop().time(), self._announced.get(about)
        if last and last.lines == frozenset(lines) and now - last.at < REPEAT_AFTER:
            return
        self._announced[about] = _Announced(frozenset(lines), now)
        for kind, reason in (("Normal", REASON), ("Warning", TROUBLE)):
            if texts := [text for its_kind, text in lines if its_kind == kind]:
                self._events.record(about, kind, reason, f"dry run: {'; '.join(texts)}")


def text_of(change: Planned) -> str:
    return f"{change.effect} {change.summary} ({change.place})"


async def _subscribe(context: ManagerContext, dry_run: DryRun) -> None:
    """Make a plan when an object changes that an enabled controller watches."""
    kinds = dict.fromkeys(kind for each in context.enabled() for kind in each.kinds)
    for kind in kinds:
        informer = context.informers.of(kind)
        await informer.wait_synced()
        informer.subscribe(_Changes(dry_run))
    await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class _Changes:
    dry_run: DryRun

    def added(self, _: KubeObject, /) -> None:
        self.dry_run.notice()

    def updated(self, old: KubeObject, new: KubeObject, /) -> None:
        if old is not new and not _is_heartbeat(old, new):
            self.dry_run.notice()

    def deleted(self, _: KubeObject, /) -> None:
        self.dry_run.notice()


def _is_heartbeat(old: KubeObject, new: KubeObject) -> bool:
    if not isinstance(old, Node) or not isinstance(new, Node):
        return False
    return _without_heartbeats(old) == _without_heartbeats(new)


def _without_heartbeats(node: Node) -> tuple[Node, object]:
    """Returns the parts of a node that can change a plan, without the kubelet's heartbeats."""
    conditions = (node.status and node.status.conditions) or ()
    bare = replace(
        node,
        metadata=replace(node.metadata, resource_version=""),
        status=node.status and replace(node.status, conditions=None),
    )
    return bare, {each.type: (each.status, each.reason) for each in conditions}
