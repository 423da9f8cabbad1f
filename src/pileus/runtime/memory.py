"""What a process remembers of single objects: every such map is counted, and ends with its object.

One rule for all of them: a map whose keys are objects is a `PerObject`. Each is counted by
`pileus_remembered_objects`, so that a map that grows is seen; the simulation and the soak check
that each returns to the number of objects that exist. Entries of a map that is declared with
`ends_with_object` are dropped a while after their object was deleted. The others hold work that
outlives the object, and are emptied by the passes that do that work.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from pileus.kube.model.meta import KubeObject
from pileus.telemetry.metrics import Metrics

LINGER = 30.0
"""Seconds between the deletion of an object and the end of what is remembered of it: what was
under way then may still report on it."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class PerObject(dict[Key, Value]):
    """A map by object: by UID, name or a key of a queue. Belongs to the process that makes it."""

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
        """Forget all but these."""
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
        """By name; of several maps of one name the longest."""
        return {name: max(map(len, maps)) for name, maps in self._maps.items()}

    def forget(self, uid: str) -> None:
        for maps in self._maps.values():
            for one in maps:
                if one.ends_with_object:
                    one.pop(uid, None)


class ForgetsDeleted:
    """An informer's handler: what is remembered of a deleted object ends a while later.

    An object that is back by then was lost by one view only, and is not forgotten.
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
    """Maps that are made in the block, and in tasks that it starts, are counted together."""
    memories = Memories(metrics)
    token = _CURRENT.set(memories)
    try:
        yield memories
    finally:
        _CURRENT.reset(token)
