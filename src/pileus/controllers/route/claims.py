"""Which node may have a route to which of its pod ranges. Pure.

Two routes to one address would split or steal traffic, so no two nodes get ranges that overlap:
who has a route keeps it, then the older node goes first. All others are served as usual.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pileus.kube.model.core_v1 import Node
from pileus.objects.ranges import Range, parse_range, pod_ranges_of


@dataclass(frozen=True, slots=True)
class Claim:
    """What one pod range of a node comes to."""

    text: str
    """As the node has it."""
    range: Range | None = None
    problem: str = ""
    """Why no route is made to it; empty if one is."""


@dataclass(frozen=True, slots=True)
class _Holding:
    start: int
    end: int
    range: Range
    node: str

    def __lt__(self, other: "_Holding") -> bool:
        return self.start < other.start


class _Holdings:
    """Ranges of one family that do not overlap, each with its node."""

    def __init__(self) -> None:
        self._held: list[_Holding] = []

    def take(self, wanted: Range, node: str) -> _Holding | None:
        """Take it; or else tell which holding is in the way."""
        start, end = int(wanted.network_address), int(wanted.broadcast_address)
        new = _Holding(start, end, wanted, node)
        place = bisect_left(self._held, new)
        for near in self._held[max(place - 1, 0) : place + 1]:
            if near.start <= end and start <= near.end:
                return None if (near.range, near.node) == (wanted, node) else near
        insort(self._held, new)
        return None


def claims(
    nodes: Sequence[Node],
    has_route: Callable[[str, Range], bool],
    is_allowed: Callable[[Range], bool],
) -> dict[str, tuple[Claim, ...]]:
    """What every node's ranges come to, by the node's name."""
    parsed = {node.metadata.name: [_parsed(text) for text in pod_ranges_of(node)] for node in nodes}
    made: dict[str, dict[str, Claim]] = {name: {} for name in parsed}
    families = {4: _Holdings(), 6: _Holdings()}
    for name, claim in _in_order(nodes, parsed, has_route):
        made[name][claim.text] = _settled(name, claim, families, is_allowed)
    return {name: tuple(made[name][each.text] for each in found) for name, found in parsed.items()}


def _parsed(text: str) -> Claim:
    try:
        return Claim(text, parse_range(text))
    except ValueError as error:
        return Claim(text, problem=f"its pod range {error}")


def _in_order(
    nodes: Iterable[Node],
    parsed: dict[str, list[Claim]],
    has_route: Callable[[str, Range], bool],
) -> list[tuple[str, Claim]]:
    """All claims, those that come first in front."""

    def rank(node: Node, claim: Claim) -> tuple[bool, float, str]:
        name, born = node.metadata.name, node.metadata.creation_timestamp
        routed = claim.range is not None and has_route(name, claim.range)
        return not routed, born.timestamp() if born else float("inf"), name

    ranked = [(rank(node, claim), claim) for node in nodes for claim in parsed[node.metadata.name]]
    ranked.sort(key=lambda each: each[0])
    return [(place[-1], claim) for place, claim in ranked]


def _settled(
    name: str,
    claim: Claim,
    families: dict[int, _Holdings],
    is_allowed: Callable[[Range], bool],
) -> Claim:
    if claim.range is None:
        return claim
    if not is_allowed(claim.range):
        return replace(claim, problem=f"its pod range {claim.text} is not in --cluster-cidr")
    near = families[claim.range.version].take(claim.range, name)
    if near is None:
        return claim
    told = f"its pod range {claim.text} overlaps {near.range} of node {near.node}"
    return replace(claim, problem=told)
