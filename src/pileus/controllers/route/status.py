"""What users read about routes: conditions and events on nodes, and the lines of a plan."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import assert_never

import msgspec

from pileus.cloud.balancer import Effect
from pileus.cloud.errors import CloudError
from pileus.cloud.model import Route
from pileus.controllers.route.plan import (
    CONDITION,
    CreateRoutes,
    DeleteRoutes,
    KeepRoutes,
    ReportNode,
    Step,
    condition,
    is_available,
)
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node, NodeCondition, ObjectReference
from pileus.kube.patch import StrategicPatch
from pileus.objects.events import ObjectEvents, shortened
from pileus.objects.nodes import about_node, condition_of
from pileus.objects.preview import Place, Planned, Scope, Trouble, condition_detail

FAILED = "FailedToCreateRoute"
REFUSED = "PodCIDRNotRouted"


@dataclass(slots=True)
class Outcome:
    """What became of the steps of a pass."""

    failed: dict[Route, CloudError] = field(default_factory=dict[Route, CloudError])
    untried: set[Route] = field(default_factory=set[Route])
    done: int = 0
    """Routes created and deleted."""
    errors: list[Exception] = field(default_factory=list[Exception])
    """Errors that are not about single routes."""

    @property
    def label(self) -> str:
        """The label of the metric."""
        if self.failed or self.errors:
            return "error"
        return "changed" if self.done else "noop"


Warnings = Mapping[tuple[str, str], str]
"""The texts of events, by reason and destination of the route; "": about all ranges of the node."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What to write about the routes of one node."""

    condition: NodeCondition | None
    """None: the node has it already, or it is not known yet."""
    warnings: Warnings


def status_of(report: ReportNode, outcome: Outcome, now: datetime) -> NodeStatus:
    """Returns what to write about the node, given what became of the steps before."""
    warnings = {
        (FAILED, each.destination): _could_not_create(report.node, each, outcome.failed[each])
        for each in report.create
        if each in outcome.failed
    }
    if report.problems:
        warnings[REFUSED, ""] = _refused(report)
    available = is_available(report, outcome.failed.keys(), outcome.untried)
    if available is None:
        return NodeStatus(None, warnings)
    return NodeStatus(condition(report.node, available=available, now=now), warnings)


def condition_patch(node: Node, condition: NodeCondition) -> tuple[StrategicPatch, str]:
    """Returns the patch of the condition and its subresource. Conditions are merged by type.

    The API server rejects it for a node of the same name with another UID.
    """
    body: dict[str, object] = {"status": {"conditions": [msgspec.to_builtins(condition)]}}
    if node.metadata.uid:
        body["metadata"] = {"uid": node.metadata.uid}
    return StrategicPatch(body), "status"


class NodeWarnings:
    """Publishes warnings as events: again if the text changes, returns, or an hour has passed."""

    def __init__(self, events: ObjectEvents) -> None:
        self._events = events
        self._texts: dict[tuple[ObjectReference, str, str], str] = {}

    def publish(self, node: Node, warnings: Warnings) -> None:
        about = about_node(node)
        for (reason, part), text in warnings.items():
            if text != self._texts.get((about, reason, part)):
                self._events.forget(about, reason, part=part)
            self._texts[about, reason, part] = text
            self._events.warn(about, reason, text, part=part)

    def keep(self, current: Iterable[tuple[Node, Warnings]]) -> None:
        """Forget all warnings but these: the problem is solved, or the node is deleted."""
        keys = {(about_node(node), *each) for node, warnings in current for each in warnings}
        for about, reason, part in self._texts.keys() - keys:
            del self._texts[about, reason, part]
            self._events.forget(about, reason, part=part)


def lines(steps: Sequence[Step], scope: Scope, now: datetime) -> Sequence[Planned | Trouble]:
    """Returns the steps as lines of a plan, if everything succeeds."""
    return [line for step in steps for line in _lines(step, now) if scope.has(line.about)]


def _lines(step: Step, now: datetime) -> Iterator[Planned | Trouble]:
    match step:
        case DeleteRoutes(routes):
            yield from (_route_line(Effect.DELETE, route) for route in routes)
        case CreateRoutes(routes):
            yield from (_route_line(Effect.CREATE, route) for route in routes)
        case ReportNode():
            yield from _report_lines(step, status_of(step, Outcome(), now))
        case KeepRoutes():
            pass
        case _:
            assert_never(step)


def _route_line(effect: Effect, route: Route) -> Planned:
    about = ObjectReference(api_version="v1", kind="Node", name=route.target or "")
    if effect is Effect.CREATE:
        about = msgspec.structs.replace(about, uid=route.name)
    summary = f"route {route.destination} to {route.target or 'an unknown machine'}"
    return Planned(about=about, place=Place.CLOUD, effect=effect, summary=summary)


def _report_lines(report: ReportNode, status: NodeStatus) -> Iterator[Planned | Trouble]:
    about = about_node(report.node)
    for (reason, _), text in status.warnings.items():
        yield Trouble(about, reason, text)
    if status.condition is None:
        return
    present = condition_of(report.node, CONDITION)
    yield Planned(
        about=about,
        place=Place.CLUSTER,
        effect=Effect.UPDATE if present else Effect.CREATE,
        summary=f"condition {CONDITION} of node {report.node.metadata.name}",
        details=(condition_detail(CONDITION, present, status.condition),),
        waits_for="the routes" if report.create else "",
    )


def _could_not_create(node: Node, route: Route, error: CloudError) -> str:
    """The text of the Go framework, without a duration, which kept events from being merged."""
    what = f"{node.metadata.uid} {route.destination} for node {node.metadata.name}"
    return shortened(f"Could not create route {what}: {str(error) or type(error).__name__}")


def _refused(report: ReportNode) -> str:
    why = "; ".join(report.problems)
    return shortened(f"No route for node {report.node.metadata.name}: {why}")
