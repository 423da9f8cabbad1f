"""Which routes to create and delete, and what to report on nodes. Pure.

    nodes ──claims──▶ desired ─┐
                               ├─ plan ─▶ delete ▸ create ▸ report
    cloud ──list────▶ routes ──┘

A route is deleted only if it belongs to this cluster (see `ownership`) and no node needs it, or if
it is left over from a deleted node and another node with the same range gets its own.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from pileus.cloud.model import NodeName, Route
from pileus.controllers.route.ownership import (
    Claim,
    DeletedNode,
    KnownNodes,
    Rules,
    claims,
    destination_of,
    is_left_over,
    is_ours,
)
from pileus.controllers.route.record import NOTHING, PATIENCE, Recorded
from pileus.dataclass import dataclass, replace
from pileus.kube.model.core_v1 import Node, NodeCondition
from pileus.objects.nodes import (
    addresses_of,
    condition_of,
    is_unchecked_claim,
    is_uninitialized,
    provider_id_of,
    reference,
)
from pileus.objects.ranges import Range, pod_ranges_of

CHUNK = 100
"""Routes per call to the cloud."""
CONDITION = "NetworkUnavailable"
GOOD = ("False", "RouteCreated", "RouteController created a route")
BAD = ("True", "NoRouteCreated", "RouteController failed to create a route")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one pass knows about nodes and routes."""

    nodes: tuple[Node, ...]
    routes: tuple[Route, ...]
    """Every route that the cloud lists."""
    recorded: Recorded = NOTHING
    date: datetime | None = None
    """None: not known; every node is taken to be old."""
    unreadable: frozenset[str] = frozenset()
    """Names of nodes that exist and cannot be decoded."""
    nodes_error: Exception | None = None
    """Why the nodes could not be listed from the API server; no route is deleted then."""

    def may_exist(self, target: NodeName | None) -> bool:
        """Returns whether a route's target may be an existing node that is not in `nodes`."""
        if self.nodes_error is not None:
            return True
        return bool(self.unreadable) and (target is None or target in self.unreadable)


@dataclass(frozen=True, slots=True)
class DeleteRoutes:
    """Delete these routes, in one call to the cloud. Comes before any route is created."""

    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class KeepRoutes:
    """Keep these routes for now although no known node needs them: their nodes may exist."""

    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class CreateRoutes:
    """Create these routes, in one call to the cloud."""

    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class ReportNode:
    """Report on a node whether its pod ranges have routes: by its condition and by events."""

    node: Node
    create: tuple[Route, ...] = ()
    """Its routes that an earlier step creates: the report depends on the outcome."""
    problems: tuple[str, ...] = ()
    """Why it gets no routes to some of its ranges."""


UNCHECKED = (
    "the node came with a provider ID that was not checked yet: it gets a route when it is "
    "initialized. Its condition CloudProviderUninitialized says what is missing"
)
Step = DeleteRoutes | KeepRoutes | CreateRoutes | ReportNode


def plan(observed: Observation, rules: Rules) -> tuple[Step, ...]:
    """Returns the steps of a pass, in order. Empty: cluster and cloud match the desired state."""
    routing = _Routing(observed, rules)
    reports = tuple(routing.reports())
    unwanted = tuple(routing.unwanted())
    keep = tuple(each for each in unwanted if observed.may_exist(each.target))
    delete = [each for each in unwanted if each not in keep]
    return (
        *(DeleteRoutes(chunk) for chunk in _chunks(delete)),
        *((KeepRoutes(keep),) if keep else ()),
        *_creations(reports),
    )


def _creations(reports: Sequence[ReportNode]) -> Iterator[CreateRoutes | ReportNode]:
    """Yields the creations, each followed by the reports on the nodes that then have all routes."""
    waiting = deque(each for each in reports if _is_worth_reporting(each))
    left = 0  # routes that were created for nodes that are not reported yet
    for chunk in _chunks([route for each in reports for route in each.create]):
        yield CreateRoutes(chunk)
        left += len(chunk)
        while waiting and len(waiting[0].create) <= left:
            left -= len(waiting[0].create)
            yield waiting.popleft()
    yield from waiting


def waits_for(observed: Observation, rules: Rules) -> float | None:
    """Returns in how many seconds the first of the new nodes gets its routes in any case.

    None: the plan leaves out no node because it is new.
    """
    new = (each for each in observed.nodes if rules.is_managed(each) and pod_ranges_of(each))
    return min((_patience(each, observed) for each in new if _is_new(each, observed)), default=None)


class _Routing:
    """The desired routes compared with those that exist."""

    def __init__(self, observed: Observation, rules: Rules) -> None:
        self._observed = observed
        self._rules = rules
        self._managed = tuple(filter(rules.is_managed, observed.nodes))
        self._known = KnownNodes(observed.nodes, observed.recorded.deleted, rules)
        ours = {each.metadata.name for each in self._managed}
        self._foreign = {each.metadata.name for each in observed.nodes} - ours
        self._table: dict[Range, list[Route]] = {}
        self._kept: set[Route] = set()
        self._replaced: set[Route] = set()
        for route in with_targets(observed.routes, observed.nodes, observed.recorded.deleted):
            destination = destination_of(route.destination)
            if destination is not None:
                self._table.setdefault(destination, []).append(route)

    def reports(self) -> Iterable[ReportNode]:
        """Returns a report for each node of this cloud that has pod ranges, or routes of ours."""
        made = claims(self._managed, self._has_route, self._rules.allows)
        routed = {
            route.target
            for destination, routes in self._table.items()
            for route in routes
            if self._is_ours(route, destination)
        }
        for node in self._managed:
            if not pod_ranges_of(node) and node.metadata.name not in routed:
                continue
            if _is_new(node, self._observed):  # its routes wait for its addresses
                ranges = (each.range for each in made[node.metadata.name] if each.range)
                self._kept.update(own for each in ranges for own in self._own(node, each))
            else:
                yield self._report(node, made[node.metadata.name])

    def unwanted(self) -> Iterable[Route]:
        """Returns the routes to delete. Call `reports` first."""
        for destination, routes in self._table.items():
            for route in routes:
                if route in self._replaced or self._is_unwanted(route, destination):
                    yield route

    def _has_route(self, name: str, destination: Range) -> bool:
        listed = any(route.target == name for route in self._table.get(destination, ()))
        return listed or (name, destination) in self._observed.recorded.created

    def _report(self, node: Node, made: Sequence[Claim]) -> ReportNode:
        create: list[Route] = []
        problems: list[str] = []
        for claim in made:
            if claim.range is None:
                problems.append(claim.problem)
                continue
            is_missing = not self._is_in_place(node, claim.range)
            problem = claim.problem or self._contested(node, claim.range)
            is_unchecked = self._rules.checks_claims and is_unchecked_claim(node)
            if not problem and is_missing and is_unchecked:
                problem = UNCHECKED
            if problem:
                problems.append(problem)
            elif is_missing:
                create.append(route_to(node, claim.range))
                self._replaced.update(self._left_over(claim.range))
                own = self._own(node, claim.range)
                self._kept.update(each for each in own if _serves(each, node))  # to be completed
                continue
            self._kept.update(self._own(node, claim.range))
        return ReportNode(node, tuple(dict.fromkeys(create)), tuple(problems))

    def _own(self, node: Node, destination: Range) -> list[Route]:
        """The node's routes to the destination. They are deleted only if replaced."""
        routes = self._table.get(destination, ())
        return [route for route in routes if route.target == node.metadata.name]

    def _is_in_place(self, node: Node, destination: Range) -> bool:
        believed = (node.metadata.name, destination) in self._observed.recorded.created
        own = self._own(node, destination)
        return believed or any(_serves(each, node) and not each.missing_in for each in own)

    def _contested(self, node: Node, destination: Range) -> str:
        """Why the node gets no route: one that is not ours has the same destination.

        A second route would split the traffic.
        """
        if self._is_in_place(node, destination):
            return ""
        routes = self._table.get(destination, ())
        left_over = self._left_over(destination)
        others = (each for each in routes if each not in left_over)
        foreign = next((each for each in others if not self._is_ours(each, destination)), None)
        return _contested(destination, foreign) if foreign else ""

    def _left_over(self, destination: Range) -> list[Route]:
        return [
            route
            for route in self._table.get(destination, ())
            if is_left_over(route, destination, self._rules, self._known)
        ]

    def _is_unwanted(self, route: Route, destination: Range) -> bool:
        if route in self._kept or not self._is_ours(route, destination):
            return False
        return route.target not in self._foreign or destination in self._known.assigned

    def _is_ours(self, route: Route, destination: Range) -> bool:
        return is_ours(route, destination, self._rules, self._known)


def _is_new(node: Node, observed: Observation) -> bool:
    """Whether the node is about to be initialized: it has no addresses that a route could use.

    One that still has none after a while is reported.
    """
    is_waiting = is_uninitialized(node) and not addresses_of(node)
    return is_waiting and _patience(node, observed) > 0


def _patience(node: Node, observed: Observation) -> float:
    """The seconds that the node has left for getting addresses; none if it is not positive.

    The clock of this process may be hours ahead of that of the API server, or behind. It does not
    count for a node that was created while this process watched, nor for one that it has known for
    a while.
    """
    uid, recorded = node.metadata.uid, observed.recorded
    known = recorded.known_for.get(uid, 0.0)
    if uid in recorded.appeared:
        return PATIENCE - known
    born, now = node.metadata.creation_timestamp, observed.date
    age = (now - born).total_seconds() if now is not None and born is not None else PATIENCE
    return PATIENCE - max(age, known)


def route_to(node: Node, destination: Range) -> Route:
    """Returns the route to create. Its name is the node's UID, which tells whose it is."""
    return Route(
        destination=str(destination),
        target=NodeName(node.metadata.name),
        provider_id=provider_id_of(node),
        name=node.metadata.uid,
        addresses=reference(node).addresses,
    )


def with_targets(
    routes: Iterable[Route], nodes: Iterable[Node], deleted: Iterable[DeletedNode] = ()
) -> Iterable[Route]:
    """Returns the routes, each with its node if the cloud knows only the ID of the machine.

    The machine of a deleted node may still exist: its routes are known by the record. The provider
    ID of a route is then in the form that its node has.
    """
    names = {each.machine: NodeName(each.node) for each in deleted}
    names |= {provider_id_of(node): NodeName(node.metadata.name) for node in nodes}
    names.pop("", None)
    for route in routes:
        forms = (each for each in (route.provider_id, *sorted(route.aliases)) if each in names)
        known = next(forms, None)
        if known is None:
            yield route
        else:
            yield replace(route, target=route.target or names[known], provider_id=known)


def deletes(steps: Iterable[Step]) -> bool:
    """Returns whether a step deletes routes."""
    return any(isinstance(each, DeleteRoutes) for each in steps)


def is_available(
    report: ReportNode, failed: AbstractSet[Route], untried: AbstractSet[Route]
) -> bool | None:
    """Returns whether all pod ranges of the node have routes; None: not known yet."""
    if report.problems or not failed.isdisjoint(report.create):
        return False
    if not untried.isdisjoint(report.create):
        return None
    return bool(pod_ranges_of(report.node))


def condition(node: Node, *, available: bool, now: datetime) -> NodeCondition | None:
    """Returns the condition to write on the node; None if it has it already."""
    if _has_condition(node, available=available):
        return None
    status, reason, message = GOOD if available else BAD
    now = now.replace(microsecond=0)
    return NodeCondition(
        type=CONDITION,
        status=status,
        reason=reason,
        message=message,
        last_heartbeat_time=now,
        last_transition_time=now,
    )


def is_worth_a_round(old: Node | None, new: Node | None) -> bool:
    """Returns whether a change of a node may change its routes. None: it does not exist."""
    before, after = _relevant(old), _relevant(new)
    return before != after and bool(before[0] or after[0])


def _relevant(node: Node | None) -> tuple[tuple[str, ...], object]:
    if node is None:
        return (), ()
    return pod_ranges_of(node), (addresses_of(node), provider_id_of(node))


def _is_worth_reporting(report: ReportNode) -> bool:
    if report.create or report.problems:
        return True
    available = bool(is_available(report, frozenset(), frozenset()))
    return not _has_condition(report.node, available=available)


def _has_condition(node: Node, *, available: bool) -> bool:
    present = condition_of(node, CONDITION)
    return (
        present is not None and (present.status, present.reason) == (GOOD if available else BAD)[:2]
    )


def _chunks(routes: Sequence[Route]) -> Iterable[tuple[Route, ...]]:
    for start in range(0, len(routes), CHUNK):
        yield tuple(routes[start : start + CHUNK])


def _serves(route: Route, node: Node) -> bool:
    """Whether the route leads to the node's machine at its current addresses."""
    carried, machine = route.addresses, provider_id_of(node)
    current = carried is None or set(carried) == set(reference(node).addresses)
    is_same = not route.provider_id or not machine or route.provider_id == machine
    return current and is_same and not route.blackhole


def _contested(destination: Range, route: Route) -> str:
    where = f"leads to {route.target}" if route.target else "leads elsewhere"
    return (
        f"the cloud has a route to {destination} that {where} and is not known to be this "
        "cluster's; delete it there, or start with --route-ownership=cluster-cidr"
    )
