"""Maps of what a process remembers about single objects: counted, and emptied after deletion.

Every map whose keys are objects is a `PerObject`. Its size is a series of
`pileus_remembered_objects`, so that a growing map is noticed; the simulation and the soak test
check that each returns to the number of existing objects. Entries of a map with `ends_with_object`
are dropped a while after their object is deleted. The other maps are about work that outlives the
object, and are emptied by the passes that do this work.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from pileus.kube.model.meta import KubeObject
from pileus.telemetry.metrics import Metrics

LINGER = 30.0
"""Seconds after the deletion of an object for which its entries are kept: passes that were running
may still report on it."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class PerObject(dict[Key, Value]):
    """A map by object: its keys are UIDs, names or keys of a queue."""

    def __init__(self, name: str, *, ends_with_object: bool = False) -> None:
        """`name` is a label of the metric, such as `services/notes`.

        With `ends_with_object` the keys are UIDs, and are dropped `LINGER` seconds after the
        deletion of their objects.
        """
        super().__init__()
        self.name = name
        self.ends_with_object = ends_with_object
        memories = _CURRENT.get()
        if memories is not None:
            memories.add(self)

    def keep(self, keys: "set[Key]") -> None:
        """Delete all entries but these."""
        for key in self.keys() - keys:
            del self[key]


class Memories:
    """All maps of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._maps: dict[str, list[PerObject[object, object]]] = {}

    def add(self, one: "PerObject[Key, Value]") -> None:
        known = self._maps.setdefault(one.name, [])
        known.append(one)  # type: ignore[arg-type]
        gauge = self._metrics.remembered_objects.labels(one.name)
        gauge.set_function(lambda: max(map(len, known)))

    def sizes(self) -> dict[str, int]:
        """Returns the sizes by name; of several maps with one name the largest."""
        return {name: max(map(len, maps)) for name, maps in self._maps.items()}

    def forget(self, uid: str) -> None:
        for maps in self._maps.values():
            for one in maps:
                if one.ends_with_object:
                    one.pop(uid, None)


class ForgetsDeleted:
    """A handler of an informer that drops the entries of deleted objects after a while.

    The entries of an object that exists again by then, because one list lacked it, are kept.
    """

    def __init__(self) -> None:
        self._memories = _CURRENT.get()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def added(self, new: KubeObject, /) -> None:
        timer = self._timers.pop(new.metadata.uid, None)
        if timer is not None:
            timer.cancel()

    def updated(self, old: KubeObject, new: KubeObject, /) -> None:
        """It exists."""

    def deleted(self, old: KubeObject, /) -> None:
        if self._memories is not None:
            uid, loop = old.metadata.uid, asyncio.get_running_loop()
            self._timers[uid] = loop.call_later(LINGER, self._forget, self._memories, uid)

    def _forget(self, memories: Memories, uid: str) -> None:
        self._timers.pop(uid, None)
        memories.forget(uid)


_CURRENT: ContextVar[Memories | None] = ContextVar("memories", default=None)


@contextmanager
def remembering(metrics: Metrics) -> Generator[Memories]:
    """Count all maps that are created in the block, and in tasks that it starts."""
    memories = Memories(metrics)
    token = _CURRENT.set(memories)
    try:
        yield memories
    finally:
        _CURRENT.reset(token)
