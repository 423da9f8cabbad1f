"""Objects by key, one version counter for all, and recent changes for watches.

Everything happens in memory and at once; a `Journal` behind it may need time to store a change.
Until it has, `Store.settled` has not reached the version of the change, no watch reports it, and it
can be undone.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from pileus_lab.apiserver.tree import Obj, grow

HISTORY = 10_000
"""Changes of one resource that are kept for watches and for pages of old lists."""


class Key(NamedTuple):
    namespace: str
    name: str


class _Labelled(msgspec.Struct):
    labels: dict[str, str] = {}


class _Labels(msgspec.Struct):
    metadata: _Labelled = msgspec.field(default_factory=_Labelled)


_labels = msgspec.json.Decoder(_Labels)
_objects = msgspec.json.Decoder(dict[str, object])
encode = msgspec.json.Encoder().encode


class Entry:
    """One version of one object, as the bytes that clients get."""

    __slots__ = ("_labels", "key", "raw", "version")

    def __init__(self, key: Key, version: int, raw: bytes) -> None:
        self.key = key
        self.version = version
        self.raw = raw
        self._labels: dict[str, str] | None = None

    @property
    def labels(self) -> dict[str, str]:
        if self._labels is None:
            self._labels = _labels.decode(self.raw).metadata.labels
        return self._labels

    def decode(self) -> Obj:
        """Returns a copy of the object."""
        return _objects.decode(self.raw)


class Change(NamedTuple):
    """One change of an object. Deleted: `after` is its last state, with the new version."""

    version: int
    before: Entry | None
    after: Entry
    gone: bool


class Observer(Protocol):
    def __call__(self, before: Entry | None, after: Entry | None, /) -> None:
        """Called with the old and the new state of an object (also when a change is undone)."""
        ...


class Journal(Protocol):
    """Stores changes."""

    def append(self, resource: str, change: Change) -> None:
        """Records the change; it is stored once `Store.settle` is called with its version."""
        ...


@dataclass(slots=True, eq=False)
class Shelf:
    """The objects of one resource."""

    name: str
    history_limit: int
    entries: dict[Key, Entry] = field(default_factory=dict[Key, Entry])
    keys: list[Key] = field(default_factory=list[Key])
    history: deque[Change] = field(default_factory=deque[Change])
    observers: list[Observer] = field(default_factory=list[Observer])
    waiters: dict[Callable[[], None], None] = field(default_factory=dict[Callable[[], None], None])
    """Subscribers to changes, in the order of subscription."""
    forgotten: int = 0
    """Changes up to this version are no longer known."""
    touched: int = 0
    """Version of the latest change."""

    def put(self, entry: Entry | None, key: Key) -> Entry | None:
        """Sets or removes the object at the key; returns the previous one."""
        before = self.entries.get(key)
        if entry is not None:
            if before is None:
                insort(self.keys, key)
            self.entries[key] = entry
        elif before is not None:
            del self.entries[key]
            del self.keys[bisect_left(self.keys, key)]
        for observe in self.observers:
            observe(before, entry)
        return before

    def remember(self, change: Change) -> None:
        self.history.append(change)
        self.touched = change.version
        while len(self.history) > self.history_limit:
            self.forgotten = self.history.popleft().version

    def since(self, version: int, until: int) -> Iterator[Change]:
        """Yields the changes with version < change.version <= until, oldest first."""
        found: list[Change] = []
        for change in reversed(self.history):
            if change.version <= version:
                break
            if change.version <= until:
                found.append(change)
        return reversed(found)

    def at(self, version: int) -> dict[Key, Entry | None]:
        """Returns the entries at that version that differ from now; None if there was none."""
        differing: dict[Key, Entry | None] = {}
        for change in reversed(self.history):
            if change.version <= version:
                break
            differing[change.after.key] = change.before
        return differing

    def wake(self) -> None:
        for waiter in tuple(self.waiters):
            waiter()


class Store:
    """All objects.

    `version` counts every change; `settled` is the version up to which they are stored.
    """

    def __init__(self, *, history: int = HISTORY, journal: Journal | None = None) -> None:
        self.version = 1
        self.settled = 1
        self._history = history
        self.journal = journal
        self._shelves: dict[str, Shelf] = {}

    def shelf(self, name: str) -> Shelf:
        if name not in self._shelves:
            self._shelves[name] = Shelf(name, self._history, forgotten=self.version)
        return self._shelves[name]

    def write(self, shelf: Shelf, key: Key, value: Obj) -> Entry:
        """Stores the object with a new version. The caller has checked everything else."""
        entry = self._stamped(key, value)
        before = shelf.put(entry, key)
        self._note(shelf, Change(entry.version, before, entry, gone=False))
        return entry

    def remove(self, shelf: Shelf, key: Key, last: Obj) -> Entry:
        """Removes the object; watches get its last state with a new version."""
        entry = self._stamped(key, last)
        before = shelf.put(None, key)
        self._note(shelf, Change(entry.version, before, entry, gone=True))
        return entry

    def restore(self, resource: str, key: Key, version: int, raw: bytes) -> None:
        """Restores an object of an earlier process."""
        self.shelf(resource).put(Entry(key, version, raw), key)

    def resume(self, version: int) -> None:
        """Continues counting from there; earlier changes are unknown."""
        self.version = self.settled = max(version, self.version)
        for shelf in self._shelves.values():
            shelf.forgotten = self.version

    def settle(self, version: int) -> None:
        """All changes up to this version are stored: notifies those who wait for them."""
        self.settled = max(self.settled, version)
        for shelf in self._shelves.values():
            if shelf.waiters:
                shelf.wake()

    def undo(self) -> None:
        """Undoes every change that is not settled. Their versions are never reused."""
        for shelf in self._shelves.values():
            while shelf.history and shelf.history[-1].version > self.settled:
                change = shelf.history.pop()
                shelf.put(change.before, change.after.key)
        self.settled = self.version

    def _stamped(self, key: Key, value: Obj) -> Entry:
        self.version += 1
        grow(value, "metadata")["resourceVersion"] = str(self.version)
        return Entry(key, self.version, encode(value))

    def _note(self, shelf: Shelf, change: Change) -> None:
        shelf.remember(change)
        if self.journal is None:
            self.settled = change.version
            shelf.wake()
        else:
            self.journal.append(shelf.name, change)
