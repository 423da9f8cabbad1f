"""A work queue of keys: each waits at most once and is held by at most one worker.

add ──▶ waiting (urgent before refresh) ──take──▶ held ──done──▶ forgotten, or waiting again
                    ▲                                                      │
                    └───── if it was added while it was held or paused ◀───┘
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from contextvars import copy_context
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from pileus.telemetry.metrics import Metrics

Key = TypeVar("Key", bound=Hashable)


class _Timer(NamedTuple):
    due: float
    """Kept here: the handle of uvloop does not know it if the timer is due at once."""
    handle: asyncio.Handle


_Timers = dict[Key, _Timer]


class Priority(IntEnum):
    """Which keys are taken first; within one priority, the key that waits longest."""

    URGENT = 0
    """An object was created or changed, or its pass failed."""
    REFRESH = 1
    """Nothing is known to have changed: a resync, a periodic check."""


class QueueClosed(Exception):
    """No more keys can be taken: the process, or its time as leader, is ending."""


class _Entry(NamedTuple):
    since: float
    priority: Priority


class WorkQueue(Generic[Key]):
    """Created and used on one running event loop. Only `take` and `drain` wait.

    Guarantees: an added key is taken at least once after the latest `add`, unless the queue is
    closed. No two workers hold the same key at the same time.
    """

    def __init__(self, name: str, metrics: Metrics) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: dict[Priority, OrderedDict[Key, float]] = {p: OrderedDict() for p in Priority}
        self._again: dict[Key, _Entry] = {}
        self._held: dict[Key, float] = {}
        self._timers: _Timers[Key] = {}
        self._next: _Timers[Key] = {}
        self._pauses: _Timers[Key] = {}
        self._context = copy_context()
        """Of timers: in that of the pass that sets a timer, the timer would keep the pass."""
        self._changed = asyncio.Event()
        self._closed = False
        self._adds = metrics.queue_adds.labels(name)
        self._retries = metrics.queue_retries.labels(name)
        self._wait = metrics.queue_wait.labels(name)
        self._work = metrics.queue_work.labels(name)
        metrics.queue_depth.labels(name).set_function(lambda: len(self))
        metrics.queue_keys.labels(name).set_function(self.keys)
        metrics.queue_unfinished.labels(name).set_function(lambda: sum(self._ages()))
        metrics.queue_longest.labels(name).set_function(self.oldest_work)

    def __len__(self) -> int:
        """Returns the number of keys that wait to be taken now."""
        return sum(len(line) for line in self._lines.values())

    def is_held(self, key: Key) -> bool:
        """Returns whether a worker has taken `key` and has not called `done` yet."""
        return key in self._held

    def keys(self) -> int:
        """Returns the number of keys that wait, are held, or are scheduled for later."""
        return len(self.known())

    def known(self) -> frozenset[Key]:
        """Returns the keys that wait, are held, or are scheduled for later."""
        timers = (self._timers, self._next, self._pauses)
        return frozenset[Key]().union(*self._lines.values(), self._again, self._held, *timers)

    def add(self, key: Key, priority: Priority = Priority.URGENT) -> None:
        """Queue `key` for a pass.

        While a worker holds it, the pass waits for `done`; during a `pause`, for its end.
        """
        if self._closed:
            return
        known = self._entry(key)
        if known is None:
            self._adds.inc()
            self._put(key, _Entry(self._loop.time(), priority))
        elif priority < known.priority:
            self._lines[known.priority].pop(key, None)
            self._put(key, _Entry(known.since, priority))

    def add_after(self, key: Key, delay: float, priority: Priority = Priority.URGENT) -> None:
        """Add `key` after `delay` seconds; of several calls the earliest time counts."""
        self._plan(self._timers, key, delay, priority)

    def next_pass(
        self, key: Key, delay: float, priority: Priority = Priority.URGENT, *, retry: bool = False
    ) -> None:
        """Schedule the next pass over `key` after `delay` seconds, as the last pass asked for.

        The schedule is dropped if the key is taken earlier for another reason: then the result of
        that pass counts. `retry` means that the last pass failed, which is counted in the metrics.
        """
        if retry and not self._closed:
            self._retries.inc()
        self._plan(self._next, key, delay, priority)

    def pause(self, key: Key, seconds: float) -> None:
        """Start no pass over `key` within `seconds` from now, even if it is added.

        Called while the key is held. Of several calls the latest end counts.
        """
        due = self._loop.time() + seconds
        planned = self._pauses.get(key)
        if self._closed or (planned is not None and planned.due >= due):
            return
        if planned is not None:
            planned.handle.cancel()
        handle = self._loop.call_at(due, self._end_pause, key, context=self._context)
        self._pauses[key] = _Timer(due, handle)

    async def take(self) -> Key:
        """Wait for a key and return it; the caller holds it until `done`.

        Raises `QueueClosed` if the queue is closed.
        """
        while not self._closed:
            for line in self._lines.values():
                if line:
                    return self._hold(*line.popitem(last=False))
            self._changed.clear()
            await self._changed.wait()
        raise QueueClosed

    def done(self, key: Key) -> None:
        """Release `key`. It waits again if it was added meanwhile."""
        self._work.observe(self._loop.time() - self._held.pop(key))
        self._queue_again(key)
        if self._closed:
            self._changed.set()

    def oldest_work(self) -> float:
        """Returns for how many seconds the oldest held key has been held; 0 if there is none."""
        return max(self._ages(), default=0.0)

    def close(self) -> None:
        """Accept and return no more keys, and forget those that wait.

        Nothing is lost: the next process derives its work from the state of cluster and cloud.
        """
        self._closed = True
        for timers in (self._timers, self._next, self._pauses):
            for timer in timers.values():
                timer.handle.cancel()
            timers.clear()
        self._again.clear()
        for line in self._lines.values():
            line.clear()
        self._changed.set()

    async def drain(self) -> None:
        """Close the queue and wait until no key is held."""
        self.close()
        while self._held:
            self._changed.clear()
            await self._changed.wait()

    def _ages(self) -> list[float]:
        now = self._loop.time()
        return [now - since for since in list(self._held.values())]

    def _entry(self, key: Key) -> _Entry | None:
        for priority, line in self._lines.items():
            if key in line:
                return _Entry(line[key], priority)
        return self._again.get(key)

    def _put(self, key: Key, entry: _Entry) -> None:
        if key in self._held or key in self._pauses:
            self._again[key] = entry
        else:
            self._lines[entry.priority][key] = entry.since
            self._changed.set()

    def _queue_again(self, key: Key) -> None:
        again = self._again.pop(key, None)
        if again is not None:
            self._put(key, again)

    def _end_pause(self, key: Key) -> None:
        del self._pauses[key]
        self._queue_again(key)

    def _hold(self, key: Key, since: float) -> Key:
        now = self._loop.time()
        self._wait.observe(now - since)
        self._held[key] = now
        planned = self._next.pop(key, None)
        if planned is not None:
            planned.handle.cancel()
        return key

    def _plan(self, timers: _Timers[Key], key: Key, delay: float, priority: Priority) -> None:
        if self._closed:
            return
        due = self._loop.time() + max(delay, 0.0)
        planned = timers.get(key)
        if planned is not None and planned.due <= due:
            return
        if planned is not None:
            planned.handle.cancel()
        handle = self._loop.call_at(
            due, self._fall_due, timers, key, priority, context=self._context
        )
        timers[key] = _Timer(due, handle)

    def _fall_due(self, timers: _Timers[Key], key: Key, priority: Priority) -> None:
        del timers[key]
        self.add(key, priority)
