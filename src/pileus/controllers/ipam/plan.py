"""Which node has which pod ranges, which it is to get, and what is odd about them. No I/O.

The nodes themselves are the record: this is only what was read off them, and what is promised to
nodes whose write is under way. A promise stays with its node until the node has ranges or is gone,
so a write that may or may not have taken effect never lets two nodes have one range.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from pileus.controllers.ipam.blocks import Blocks
from pileus.controllers.ipam.sizes import Sizes
from pileus.kube.model.core_v1 import Node
from pileus.objects.ranges import Range, parse_range, pod_ranges_of

SERVICES = "the services"

FULL = "CIDRNotAvailable"
FAILED = "CIDRAssignmentFailed"
ODD = "PodCIDRUnexpected"
"""The reasons of events."""


class Tally(Protocol):
    """Is told what happens to blocks."""

    def changed(self, blocks: Blocks, *, taken: int = 0, released: int = 0) -> None: ...
    def searched(self, blocks: Blocks, tries: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Holding:
    uid: str
    ranges: tuple[Range, ...]


class Holdings:
    """Who holds what. Nothing here waits, so what is read and taken in one go is consistent."""

    def __init__(self, sizes: Sizes, tally: Tally | None = None) -> None:
        self._pools = tuple(Blocks(pool) for pool in sizes.pools)
        self._tally = tally
        self._held: dict[str, Holding] = {}
        for each in sizes.services:
            for blocks in self._pools:
                blocks.hold(each, SERVICES)
        for blocks in self._pools:
            self._count(blocks)

    def uid_of(self, name: str) -> str | None:
        held = self._held.get(name)
        return held.uid if held else None

    def know(self, node: Node) -> tuple[str, ...]:
        """The node has ranges: they are its own. Returns what is wrong with them."""
        name, texts = node.metadata.name, pod_ranges_of(node)
        problems: list[str] = []
        ranges: list[Range] = []
        for text in texts:
            try:
                ranges.append(parse_range(text))
            except ValueError as error:
                problems.append(f"its pod range {error}")
        before = self._held.get(name)
        after = Holding(node.metadata.uid, tuple(ranges))
        self._held[name] = after
        for each in after.ranges:
            problems += self._hold(each, name)
        if before is not None:
            self._release(name, (each for each in before.ranges if each not in after.ranges))
        return tuple(problems)

    def promise(self, node: Node) -> tuple[Range, ...] | None:
        """One free block of each pool, or None; the same ones each time, until the node has any."""
        name, uid = node.metadata.name, node.metadata.uid
        held = self._held.get(name)
        if held is not None and held.uid == uid:
            return held.ranges
        self.forget(name)
        ranges: list[Range] = []
        for blocks in self._pools:
            found = blocks.find()
            if found is None:
                self._release(name, ranges)
                return None
            self._hold(found.range, name)
            if self._tally:
                self._tally.searched(blocks, found.tries)
            ranges.append(found.range)
        self._held[name] = Holding(uid, tuple(ranges))
        return tuple(ranges)

    def forget(self, name: str) -> None:
        """The node is gone."""
        held = self._held.pop(name, None)
        if held is not None:
            self._release(name, held.ranges)

    def _hold(self, wanted: Range, name: str) -> list[str]:
        """Take it, wherever it lies; returns what is wrong with it."""
        pools = [blocks for blocks in self._pools if blocks.has(wanted)]
        if not pools:
            return [f"its pod range {wanted} is not in --cluster-cidr"]
        others: set[str] = set()
        for blocks in pools:
            before = blocks.used
            others |= blocks.hold(wanted, name)
            self._count(blocks, taken=blocks.used - before)
        owners = ", ".join(f"node {each}" if each != SERVICES else each for each in sorted(others))
        return [f"its pod range {wanted} overlaps that of {owners}"] if others else []

    def _release(self, name: str, ranges: Iterable[Range]) -> None:
        for each in ranges:
            for blocks in self._pools:
                before = blocks.used
                blocks.release(each, name)
                self._count(blocks, released=before - blocks.used)

    def _count(self, blocks: Blocks, *, taken: int = 0, released: int = 0) -> None:
        if self._tally:
            self._tally.changed(blocks, taken=taken, released=released)


def status_text(node: Node, reason: str) -> str:
    """As the Go program says it."""
    return f"Node {node.metadata.name} status is now: {reason}"


def wants_ranges(node: Node) -> bool:
    """Whether the node is to be given pod ranges."""
    return not pod_ranges_of(node) and not node.metadata.deletion_timestamp
