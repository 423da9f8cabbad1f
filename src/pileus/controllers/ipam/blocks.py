"""One of the cluster's ranges, cut into blocks of equal size: which are held, and by whom."""

from ipaddress import ip_network
from typing import NamedTuple

from pileus.controllers.ipam.sizes import Pool
from pileus.objects.ranges import Range


class Found(NamedTuple):
    range: Range
    tries: int
    """How many blocks in use were skipped, as the Go program counts; 0 if the next was free."""


class Blocks:
    """A block is free if and only if nobody holds it.

    Searching is quick also among many: there is a byte for each, so that finding is not a loop.
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
        return len(self._holders)

    def find(self) -> Found | None:
        """The next free block, after the one that was found last; None if all are held."""
        start = self._next
        place = self._taken.find(0, start)
        if place < 0:
            place = self._taken.find(0, 0, start)
        if place < 0:
            return None
        self._next = (place + 1) % self.count
        return Found(self._at(place), (place - start) % self.count)

    def has(self, wanted: Range) -> bool:
        """Whether any part of `wanted` is in here."""
        first, last = int(wanted.network_address), int(wanted.broadcast_address)
        return wanted.version == self.range.version and first <= self._last and self._first <= last

    def hold(self, wanted: Range, holder: str) -> frozenset[str]:
        """Take all blocks that `wanted` touches; the answer names others who hold one too."""
        others: set[str] = set()
        for place in self._places(wanted):
            present = self._holders.get(place, ())
            if holder not in present:
                others.update(present)
                self._holders[place] = (*present, holder)
                self._taken[place] = 1
        return frozenset(others)

    def release(self, held: Range, holder: str) -> None:
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
