"""Writes of this process to objects that it also watches.

    write sent ──▶ answer ──▶ the watch delivers it         the usual order
    write sent ──▶ the watch delivers it ──▶ answer         common on a loaded machine

Later passes read a write before the watch delivers it: otherwise the next pass would read the old
state and write again. When the watch delivers the write, handlers are not called for it: otherwise
a write would queue the next pass, and cut short a backoff or a delay that the cloud asked for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextvars import copy_context
from dataclasses import field
from typing import Generic, TypeVar

from pileus.dataclass import dataclass
from pileus.kube.informer import Handler
from pileus.kube.model.meta import KubeObject
from pileus.runtime.memory import PerObject

CATCH_UP = 30.0
"""Seconds for which a write is kept that the watch does not deliver; then the watch counts."""
MOST = 16
"""The largest number of writes to one object that are kept until the watch delivers them.
Dropping one costs at most one additional pass."""

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T", bound=KubeObject)
OnUpdate = Callable[[T, T], None]
"""Called with the object before and after an update."""


@dataclass(frozen=True, slots=True)
class _Write(Generic[T]):
    answer: T
    leaves: Callable[[T], T]
    """Returns the object after this write, given the object before it."""


@dataclass(slots=True, eq=False)
class _Memory(Generic[T]):
    """Own writes to one object that the watch has not delivered yet."""

    shown: T | None = None
    until: float = 0.0
    timer: asyncio.TimerHandle | None = None
    under_way: int = 0
    """Number of writes without an answer."""
    kept_back: list[tuple[T, T, OnUpdate[T]]] = field(
        default_factory=list[tuple[T, T, OnUpdate[T]]]
    )
    """Updates that arrived meanwhile; the answer shows which of them are own writes."""
    writes: list[_Write[T]] = field(default_factory=list[_Write[T]])
    """Answered writes that the watch has not delivered yet, oldest first."""

    def is_needed(self) -> bool:
        return bool(self.under_way or self.writes or self.shown is not None)

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class OwnWrites(Generic[Key, T]):
    """The answers to writes of this process, by the object's key.

    Guarantees: handlers are called for every change by another process, even if it arrives in the
    same update as an own write (after a relist). A write is kept until the watch has delivered it
    or the object is deleted, and for `CATCH_UP` seconds at most.
    """

    def __init__(self, view: Callable[[Key], T | None]) -> None:
        """`view` returns the object as the watch delivered it last."""
        self._view = view
        self._memories = PerObject[Key, _Memory[T]]("objects/own-writes")
        self._context = copy_context()
        """Of timers: in that of the pass that sets a timer, the timer would keep the pass."""

    def __len__(self) -> int:
        """Returns the number of objects with entries."""
        return len(self._memories)

    def note(self, key: Key, found: T) -> T:
        """Record `found`, an answer of the API server, until the watch has delivered it."""
        loop = asyncio.get_running_loop()
        memory = self._memory(key)
        memory.shown, memory.until = found, loop.time() + CATCH_UP
        self._tidy(key)
        if self._memories.get(key) is memory:
            memory.stop_timer()
            memory.timer = loop.call_at(
                memory.until, self._expire, key, memory, context=self._context
            )
        return found

    def newest(self, key: Key, seen: T | None) -> T | None:
        """Returns the own write if it is newer than what the watch delivered, otherwise `seen`."""
        memory = self._memories.get(key)
        if memory is None or memory.shown is None:
            return seen
        late = asyncio.get_running_loop().time() > memory.until
        if seen is None or late or not is_older(seen, memory.shown):
            memory.shown = None
            self._tidy(key)
            return seen
        return memory.shown

    def shown(self) -> list[tuple[Key, T]]:
        """Returns the own writes that the watch may not have delivered yet, by key."""
        found = self._memories.items()
        return [(key, one.shown) for key, one in found if one.shown is not None]

    async def write(self, key: Key, request: Awaitable[T], leaves: Callable[[T], T]) -> T:
        """Make the request and record its answer. Updates are kept back until the answer.

        A failed write may have taken effect: the updates are then passed on unchanged.
        """
        memory = self._memory(key)
        memory.under_way += 1
        try:
            answer = await request
        except BaseException:
            self._answered(key, memory)
            raise
        memory.writes = [*memory.writes, _Write(answer, leaves)][-MOST:]
        self._answered(key, memory)
        return self.note(key, answer) if self._memories.get(key) is memory else answer

    def update(self, key: Key, old: T, new: T, on_update: OnUpdate[T]) -> None:
        """Pass on an update of the watch; own writes count as part of the object before it."""
        memory = self._memories.get(key)
        if memory is None:
            on_update(old, new)
        elif memory.under_way:
            memory.kept_back.append((old, new, on_update))
        else:
            on_update(_with_own_writes(memory, old, new), new)
            self._tidy(key)

    def forget(self, key: Key) -> None:
        """Drop the entries of a deleted object."""
        memory = self._memories.pop(key, None)
        if memory is not None:
            memory.stop_timer()

    def _memory(self, key: Key) -> _Memory[T]:
        memory = self._memories.get(key)
        if memory is None:
            memory = self._memories[key] = _Memory()
        return memory

    def _answered(self, key: Key, memory: _Memory[T]) -> None:
        memory.under_way -= 1
        if memory.under_way:
            return
        kept_back, memory.kept_back = memory.kept_back, []
        if self._memories.get(key) is not memory:  # deleted meanwhile
            return
        for old, new, on_update in kept_back:
            on_update(_with_own_writes(memory, old, new), new)
        self._tidy(key)

    def _expire(self, key: Key, memory: _Memory[T]) -> None:
        is_renewed = asyncio.get_running_loop().time() < memory.until
        if is_renewed or self._memories.get(key) is not memory:
            return
        memory.shown, memory.writes = None, []
        self._tidy(key)

    def _tidy(self, key: Key) -> None:
        memory, seen = self._memories.get(key), self._view(key)
        if memory is None:
            return
        memory.writes = [one for one in memory.writes if seen and is_older(seen, one.answer)]
        if memory.shown is not None and (seen is None or not is_older(seen, memory.shown)):
            memory.shown = None
        if not memory.is_needed():
            memory.stop_timer()
            del self._memories[key]


class WithoutEchoes(Generic[Key, T]):
    """A handler that passes on all changes except for own writes."""

    def __init__(
        self, handler: Handler[T], written: OwnWrites[Key, T], key_of: Callable[[T], Key]
    ) -> None:
        self._handler = handler
        self._written = written
        self._key_of = key_of

    def added(self, new: T, /) -> None:
        self._handler.added(new)

    def updated(self, old: T, new: T, /) -> None:
        if old is new:
            self._handler.updated(old, new)
        else:
            self._written.update(self._key_of(new), old, new, self._handler.updated)

    def deleted(self, old: T, /) -> None:
        self._written.forget(self._key_of(old))
        self._handler.deleted(old)


def is_older(seen: KubeObject, written: KubeObject) -> bool:
    """Returns whether both are the same object and `written` is the later version."""
    before, after = seen.metadata.resource_version, written.metadata.resource_version
    if before == after or seen.metadata.uid != written.metadata.uid:
        return False
    return before.isdecimal() and after.isdecimal() and int(before) < int(after)


def _with_own_writes(memory: _Memory[T], old: T, new: T) -> T:
    """Returns the object before the update, with the own writes in the update applied to it."""
    for one in memory.writes:
        if is_older(old, one.answer) and not is_older(new, one.answer):
            old = one.leaves(old)
    return old
