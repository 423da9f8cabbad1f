"""Which pod ranges are allocated to which node. No I/O.

The nodes themselves are the record: the allocator holds what was read from them, and what is
reserved for nodes whose write is under way. A reservation stays with its node until the node has
ranges or is deleted, so that a write with an unknown result never gives one range to two nodes.
"""

from collections.abc import Iterable
from ipaddress import ip_network
from typing import NamedTuple

from pileus.controllers.ipam.settings import Pool, Sizes
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node
from pileus.objects.ranges import Range, parse_range, pod_ranges_of
from pileus.telemetry.metrics import Metrics

SERVICES = "the services"


@dataclass(frozen=True, slots=True)
class Allocation:
    """The ranges of one node: those that it has, or those that are reserved for it."""

    uid: str
    ranges: tuple[Range, ...]


class Allocator:
    """Allocates blocks of the cluster's ranges. No method awaits: each takes effect at once."""

    def __init__(self, sizes: Sizes, metrics: Metrics | None = None) -> None:
        """Without `metrics`, nothing is counted."""
        self._pools = tuple(Blocks(pool) for pool in sizes.pools)
        self._metrics = metrics
        self._allocated: dict[str, Allocation] = {}
        for each in sizes.services:
            for blocks in self._pools:
                blocks.hold(each, SERVICES)
        for blocks in self._pools:
            self._count(blocks)

    def uid_of(self, name: str) -> str | None:
        """Returns the UID of the node with an allocation under this name."""
        allocation = self._allocated.get(name)
        return allocation.uid if allocation else None

    def record(self, node: Node) -> tuple[str, ...]:
        """Record the ranges that the node has. Returns what is wrong with them."""
        name, texts = node.metadata.name, pod_ranges_of(node)
        problems: list[str] = []
        ranges: list[Range] = []
        for text in texts:
            try:
                ranges.append(parse_range(text))
            except ValueError as error:
                problems.append(f"its pod range {error}")
        before = self._allocated.get(name)
        after = self._allocated[name] = Allocation(node.metadata.uid, tuple(ranges))
        for each in after.ranges:
            problems += self._hold(each, name)
        if before is not None:
            self._give_back(name, (each for each in before.ranges if each not in after.ranges))
        return tuple(problems)

    def reserve(self, node: Node) -> tuple[Range, ...] | None:
        """Reserve a free block of each pool. Returns None if one pool is full.

        Returns the same blocks again for the same node until it has ranges or is released.
        """
        name, uid = node.metadata.name, node.metadata.uid
        allocation = self._allocated.get(name)
        if allocation is not None and allocation.uid == uid:
            return allocation.ranges
        self.release(name)
        ranges: list[Range] = []
        for blocks in self._pools:
            found = blocks.find()
            if found is None:
                self._give_back(name, ranges)
                return None
            self._hold(found.range, name)
            if self._metrics:
                self._metrics.range_tries.labels(str(blocks.range)).observe(found.tries)
            ranges.append(found.range)
        self._allocated[name] = Allocation(uid, tuple(ranges))
        return tuple(ranges)

    def release(self, name: str) -> None:
        """Give back what the node had: it is deleted."""
        allocation = self._allocated.pop(name, None)
        if allocation is not None:
            self._give_back(name, allocation.ranges)

    def _hold(self, wanted: Range, name: str) -> list[str]:
        """Take the range in every pool that it overlaps. Returns what is wrong with it."""
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

    def _give_back(self, name: str, ranges: Iterable[Range]) -> None:
        for each in ranges:
            for blocks in self._pools:
                before = blocks.used
                blocks.release(each, name)
                self._count(blocks, released=before - blocks.used)

    def _count(self, blocks: "Blocks", *, taken: int = 0, released: int = 0) -> None:
        if self._metrics is None:
            return
        label = str(blocks.range)
        self._metrics.ranges_taken.labels(label).inc(taken)
        self._metrics.ranges_released.labels(label).inc(released)
        self._metrics.ranges_most.labels(label).set(blocks.count)
        self._metrics.ranges_usage.labels(label).set(blocks.used / blocks.count)


class Found(NamedTuple):
    """A free block."""

    range: Range
    tries: int
    """The number of blocks in use that were skipped, as the Go program counts them."""


class Blocks:
    """One of the cluster's ranges in blocks of equal size, and the holders of each block.

    A block is free if it has no holder. There is one byte per block, so that searching for a free
    block is one call even with millions of them.
    """

    def __init__(self, pool: Pool) -> None:
        self.range = pool.range
        self._mask = pool.mask
        self._bits = pool.range.max_prefixlen - pool.mask
        self._first = int(pool.range.network_address)
        self._last = int(pool.range.broadcast_address)
        self.count = 1 << (pool.mask - pool.range.prefixlen)
        self._taken = bytearray(self.count)
        self._holders: dict[int, tuple[str, ...]] = {}
        self._next = 0

    @property
    def used(self) -> int:
        """The number of blocks that have a holder."""
        return len(self._holders)

    def find(self) -> Found | None:
        """Returns the next free block after the one found last; None if there is none."""
        start = self._next
        place = self._taken.find(0, start)
        if place < 0:
            place = self._taken.find(0, 0, start)
        if place < 0:
            return None
        self._next = (place + 1) % self.count
        return Found(self._at(place), (place - start) % self.count)

    def has(self, wanted: Range) -> bool:
        """Returns whether the range overlaps this one."""
        first, last = int(wanted.network_address), int(wanted.broadcast_address)
        return wanted.version == self.range.version and first <= self._last and self._first <= last

    def hold(self, wanted: Range, holder: str) -> frozenset[str]:
        """Take all blocks that `wanted` overlaps. Returns their other holders."""
        others: set[str] = set()
        for place in self._places(wanted):
            present = self._holders.get(place, ())
            if holder not in present:
                others.update(present)
                self._holders[place] = (*present, holder)
                self._taken[place] = 1
        return frozenset(others)

    def release(self, held: Range, holder: str) -> None:
        """Give back all blocks that `held` overlaps."""
        for place in self._places(held):
            left = tuple(each for each in self._holders.get(place, ()) if each != holder)
            if left:
                self._holders[place] = left
            else:
                self._holders.pop(place, None)
                self._taken[place] = 0

    def _places(self, wanted: Range) -> range:
        if not self.has(wanted):
            return range(0)
        first = (int(wanted.network_address) - self._first) >> self._bits
        last = (int(wanted.broadcast_address) - self._first) >> self._bits
        return range(max(first, 0), min(last, self.count - 1) + 1)

    def _at(self, place: int) -> Range:
        start = self._first + (place << self._bits)
        kind = type(self.range.network_address)
        return ip_network((kind(start), self._mask))
