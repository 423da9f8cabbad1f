"""Which events are worth writing: the same ones are counted, floods of similar ones are folded.

Pure but for its bounded memory; the rules and figures are those of the Go framework.

    happening ──▶ fold similar ones ──▶ count the same ones ──▶ limit per object
                  (10 within 600 s)                            (25, then 1 in 300 s)
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar

from pileus.bucket import Bucket
from pileus.kube.model.core_v1 import ObjectReference

FOLDED_PREFIX = "(combined from similar events): "
MOST_SIMILAR = 10
SIMILAR_WITHIN = 600.0
BURST = 25
SECONDS_PER_EVENT = 300.0
REMEMBERED = 4096
LONGEST_NAME = 253 - len(".") - 16
LONGEST_MESSAGE = 1024

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Happening:
    """What somebody wants to be told about an object."""

    about: ObjectReference
    kind: str
    reason: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Tally:
    """An event as it is to be read in the cluster: what happened, since when, how often."""

    name: str
    happening: Happening
    first: datetime
    count: int


class Memory(Generic[Key, Value]):
    """Remembers the values used last, and no more than its size."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)

    def __len__(self) -> int:
        return len(self._values)


_Similar = tuple[ObjectReference, str, str]
_Same = tuple[ObjectReference, str, str, str]
_ANY_MESSAGE = "\0"


class Correlator:
    """The memory of one source of events."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._buckets: Memory[ObjectReference, Bucket] = Memory(size)
        self._similar: Memory[_Similar, tuple[float, frozenset[str]]] = Memory(size)
        self._tallies: Memory[_Same, Tally] = Memory(size)
        self._last_stamp = 0

    def tally(self, happening: Happening) -> Tally | None:
        """How it is to be read in the cluster; None if the object has had its share of events.

        What is left out is counted all the same.
        """
        now = happening.at.timestamp()
        same = self._fold(happening, now)
        if same[-1] == _ANY_MESSAGE:
            happening = replace(happening, message=FOLDED_PREFIX + happening.message)
        happening = replace(happening, message=happening.message[:LONGEST_MESSAGE])
        before = self._tallies.get(same)
        if before is None:
            tally = Tally(self._new_name(happening), happening, happening.at, 1)
        else:
            tally = replace(before, happening=happening, count=before.count + 1)
        self._tallies.put(same, tally)
        return tally if self._within_limit(happening.about, now) else None

    def _fold(self, happening: Happening, now: float) -> _Same:
        """What makes it the same as another; the message no longer does once there are many."""
        similar = (happening.about, happening.kind, happening.reason)
        latest, messages = self._similar.get(similar) or (now, frozenset[str]())
        if now - latest > SIMILAR_WITHIN:
            messages = frozenset[str]()
        if len(messages) < MOST_SIMILAR:
            messages |= {happening.message}
        self._similar.put(similar, (now, messages))
        return (*similar, happening.message if len(messages) < MOST_SIMILAR else _ANY_MESSAGE)

    def _within_limit(self, about: ObjectReference, now: float) -> bool:
        full = Bucket.full(1 / SECONDS_PER_EVENT, BURST, now)
        wait, left = (self._buckets.get(about) or full).reserve(now)
        if wait > 0:
            return False
        self._buckets.put(about, left)
        return True

    def _new_name(self, happening: Happening) -> str:
        """As client-go names events; two at the same moment differ all the same."""
        self._last_stamp = max(int(happening.at.timestamp() * 1e9), self._last_stamp + 1)
        return f"{happening.about.name[:LONGEST_NAME]}.{self._last_stamp:x}"
