"""Which routes are to be created and deleted, and what is said of the nodes. Pure.

    nodes ──claims──▶ wanted ─┐
                              ├─plan─▶ create · delete · how each node stands
    cloud ──list────▶ listed ─┘

A route is deleted only if it is ours (see `ownership`) and no node wants it, or if it is left over
from a deleted node and a node that has the same range now gets its own.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime

from pileus.cloud.model import NodeName, Route
from pileus.controllers.route.claims import Claim, claims
from pileus.controllers.route.ownership import (
    Departed,
    Records,
    Rules,
    destination_of,
    is_left_over,
    is_ours,
)
from pileus.kube.model.core_v1 import Node, NodeCondition
from pileus.objects.nodes import addresses_of, condition_of, provider_id_of, reference
from pileus.objects.ranges import Range, pod_ranges_of

CONDITION = "NetworkUnavailable"
GOOD = ("False", "RouteCreated", "RouteController created a route")
BAD = ("True", "NoRouteCreated", "RouteController failed to create a route")


@dataclass(frozen=True, slots=True)
class Memory:
    """What a round knows that neither the cluster nor the cloud's list shows."""

    departed: frozenset[Departed] = frozenset()
    created: frozenset[tuple[str, Range]] = frozenset()
    """Node and range of routes that we created so recently that a list may lack them."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How one node stands: the routes that it lacks, and why it cannot have others."""

    node: Node
    create: tuple[Route, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    delete: tuple[Route, ...]
    """They go first: a route may have to make room."""
    standings: tuple[Standing, ...]
    """Of all nodes that have pod ranges, or routes of ours."""
    spared: tuple[Route, ...] = ()
    """Not wanted, but not deleted now either, because of doubts about their nodes."""

    @property
    def create(self) -> tuple[Route, ...]:
        return tuple(route for each in self.standings for route in each.create)


def plan(nodes: Sequence[Node], listed: Iterable[Route], memory: Memory, rules: Rules) -> Plan:
    """What is to be done. Nothing is ever created or deleted that the cloud has as it should be."""
    return _Round(nodes, listed, memory, rules).plan()


class _Round:
    def __init__(
        self, nodes: Sequence[Node], listed: Iterable[Route], memory: Memory, rules: Rules
    ) -> None:
        self._nodes = nodes
        self._memory = memory
        self._rules = rules
        self._records = Records(nodes, memory.departed, rules)
        self._foreign = {each.metadata.name for each in nodes if not rules.is_managed(each)}
        self._table: dict[Range, list[Route]] = {}
        self._kept: set[Route] = set()
        self._replaced: set[Route] = set()
        for route in with_targets(listed, nodes):
            destination = destination_of(route.destination)
            if destination is not None:
                self._table.setdefault(destination, []).append(route)

    def plan(self) -> Plan:
        made = claims(self._nodes, self._has_route, self._rules.allows)
        routed = {
            route.target
            for destination, routes in self._table.items()
            for route in routes
            if self._is_ours(route, destination)
        }
        standings = tuple(
            self._standing(node, made[node.metadata.name])
            for node in self._nodes
            if self._rules.is_managed(node)
            and (pod_ranges_of(node) or node.metadata.name in routed)
        )
        return Plan(tuple(self._unwanted()), standings)

    def _has_route(self, name: str, destination: Range) -> bool:
        return any(route.target == name for route in self._table.get(destination, ()))

    def _standing(self, node: Node, made: Sequence[Claim]) -> Standing:
        create: list[Route] = []
        problems: list[str] = []
        for claim in made:
            if claim.range is None:
                problems.append(claim.problem)
                continue
            problem = claim.problem or self._contested(node, claim.range)
            if problem:
                problems.append(problem)
            elif not self._is_in_place(node, claim.range):
                create.append(route_to(node, claim.range))
                self._replaced.update(self._left_over(claim.range))
                own = self._own(node, claim.range)
                self._kept.update(each for each in own if _serves(each, node))  # to be completed
                continue
            self._kept.update(self._own(node, claim.range))
        return Standing(node, tuple(dict.fromkeys(create)), tuple(problems))

    def _own(self, node: Node, destination: Range) -> list[Route]:
        """The node's routes to there. They go only if a new one takes their place."""
        routes = self._table.get(destination, ())
        return [route for route in routes if route.target == node.metadata.name]

    def _is_in_place(self, node: Node, destination: Range) -> bool:
        believed = (node.metadata.name, destination) in self._memory.created
        own = self._own(node, destination)
        return believed or any(_serves(each, node) and not each.missing_in for each in own)

    def _contested(self, node: Node, destination: Range) -> str:
        """What to say if the node lacks a route and somebody else's leads there already.

        A second one would split its traffic.
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
            if is_left_over(route, destination, self._rules, self._records)
        ]

    def _unwanted(self) -> Iterable[Route]:
        for destination, routes in self._table.items():
            for route in routes:
                if route in self._replaced or self._is_unwanted(route, destination):
                    yield route

    def _is_unwanted(self, route: Route, destination: Range) -> bool:
        if route in self._kept or not self._is_ours(route, destination):
            return False
        return route.target not in self._foreign or destination in self._records.assigned

    def _is_ours(self, route: Route, destination: Range) -> bool:
        return is_ours(route, destination, self._rules, self._records)


def route_to(node: Node, destination: Range) -> Route:
    """The route as it is to be created; its name is a hint that tells whose it is."""
    return Route(
        destination=str(destination),
        target=NodeName(node.metadata.name),
        provider_id=provider_id_of(node),
        name=node.metadata.uid,
        addresses=reference(node).addresses,
    )


def with_targets(listed: Iterable[Route], nodes: Iterable[Node]) -> Iterable[Route]:
    """Yields the routes, each with its node where the cloud only knows the ID of the machine."""
    names = {provider_id_of(node): NodeName(node.metadata.name) for node in nodes}
    for route in listed:
        known = names.get(route.provider_id) if route.provider_id else None
        yield replace(route, target=known) if route.target is None and known else route


def sparing(made: Plan, is_doubtful: Callable[[NodeName | None], bool]) -> Plan:
    """The plan without deletions of routes whose target may be a node after all."""
    spared = tuple(each for each in made.delete if is_doubtful(each.target))
    return Plan(tuple(each for each in made.delete if each not in spared), made.standings, spared)


def is_available(
    standing: Standing, failed: AbstractSet[Route], untried: AbstractSet[Route]
) -> bool | None:
    """Whether all the node's ranges have their routes; None: not known yet."""
    if standing.problems or not failed.isdisjoint(standing.create):
        return False
    if not untried.isdisjoint(standing.create):
        return None
    return bool(pod_ranges_of(standing.node))


def condition(node: Node, *, available: bool, now: datetime) -> NodeCondition | None:
    """What is to be written about the node's network; None if it says so already."""
    status, reason, message = GOOD if available else BAD
    present = condition_of(node, CONDITION)
    if present is not None and (present.status, present.reason) == (status, reason):
        return None
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
    """Whether a change of a node (None: it was not there, or is no more) may change its routes."""
    before, after = _looked_at(old), _looked_at(new)
    return before != after and bool(before[0] or after[0])


def _looked_at(node: Node | None) -> tuple[tuple[str, ...], object]:
    if node is None:
        return (), ()
    return pod_ranges_of(node), (addresses_of(node), provider_id_of(node))


def _serves(route: Route, node: Node) -> bool:
    """Whether the route leads to the node as it is now."""
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
