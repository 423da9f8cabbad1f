"""Merges concurrent calls of one method into few, and gives every caller its own answer.

The first caller waits a moment for others, then one call is made for all. While calls are running,
later callers are collected for the next one. A thousand callers with one node each become a
handful of calls. Calls whose `Batch.mode` differs (fresh and cached, quick and full) are never
merged.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Any, Generic, TypeVar, cast

from pileus.cloud.abilities import Batches
from pileus.cloud.errors import (
    Conflict,
    NotFound,
    QuotaExceeded,
    Rejected,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.methods import METHODS, AnyFunction, Batch, Method, rebuilt
from pileus.dataclass import dataclass
from pileus.deadline import covered
from pileus.telemetry.passes import Pass, current_passes, on_behalf_of

K = TypeVar("K")
Q = TypeVar("Q")
A = TypeVar("A")


@asynccontextmanager
async def batched(
    cloud: Cloud, batches: Batches, methods: Sequence[Method] = METHODS
) -> AsyncGenerator[Cloud]:
    """The cloud with the batched methods of the table merged, while the block lasts.

    Guarantees: an answer or error reaches exactly the callers that asked for it; cancelling one
    caller cancels no other. A caller that still waits at the end of the block gets `Unavailable`.
    """
    batchers: list[Batcher[Any, Any, Any]] = []

    def make(method: Method, function: AnyFunction) -> AnyFunction:
        if method.batch is None:
            return function
        batchers.append(Batcher(_merged(method.batch, function), batches))
        return _asking(method, method.batch, batchers[-1])

    raised: Exception | None = None
    async with asyncio.TaskGroup() as group:
        merged = rebuilt(cloud, make, methods)
        runners = [group.create_task(batcher.run()) for batcher in batchers]
        try:
            yield merged
        except Exception as error:  # noqa: BLE001 -- raised below, without the group's wrapping
            raised = error
        finally:
            for batcher, runner in zip(batchers, runners, strict=True):
                batcher.close()
                runner.cancel()
    if raised is not None:
        raise raised


def _merged(batch: Batch, function: AnyFunction) -> AnyFunction:
    def call(items: Sequence[object], mode: bool) -> Awaitable[Mapping[Any, Any]]:  # noqa: FBT001 -- by position
        return function(items, **{batch.mode: mode})

    return call


def _asking(method: Method, batch: Batch, batcher: "Batcher[Any, Any, Any]") -> AnyFunction:
    async def call(*arguments: object, **named: object) -> Mapping[Any, Any]:
        items = cast("Sequence[object]", method.asked(arguments, named))
        mode = cast("bool", named[batch.mode])
        return await batcher.ask({batch.key(each): each for each in items}, mode=mode)

    return call


@dataclass(eq=False, slots=True)
class _Caller(Generic[K, Q, A]):
    """One caller, until all its items are answered or one call failed."""

    items: Mapping[K, Q]
    mode: bool
    done: asyncio.Future[None]
    waiting_for: set[K]
    answer: dict[K, A] = field(default_factory=dict[K, A])
    error: Exception | None = None
    passes: tuple[Pass, ...] = field(default_factory=current_passes)
    """The passes that the call belongs to."""

    def in_common(self, batch: Mapping[K, Q]) -> list[K]:
        return [
            key for key in self.waiting_for if key in batch and is_same(batch[key], self.items[key])
        ]

    def receive(self, batch: Mapping[K, Q], answer: Mapping[K, A]) -> None:
        for key in self.in_common(batch):
            self.waiting_for.remove(key)
            if key in answer:
                self.answer[key] = answer[key]
        if not self.waiting_for:
            self._finish()

    def fail(self, error: Exception) -> None:
        self.error = error
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Batcher(Generic[K, Q, A]):
    """Merges the calls of one method. Every item has a key, under which its outcome is answered.

    Guarantees: an answer or error reaches exactly the callers of its items; cancelling one caller
    cancels no other; two different items with one key are never in one call, nor are items of
    callers with different modes.
    """

    def __init__(
        self, call: Callable[[Sequence[Q], bool], Awaitable[Mapping[K, A]]], batches: Batches
    ) -> None:
        self._call = call
        self._batches = batches
        self._collected: list[_Caller[K, Q, A]] = []
        self._open: set[_Caller[K, Q, A]] = set()
        self._asked = asyncio.Event()
        self._slots = asyncio.Semaphore(batches.at_once)
        self._is_closed = False

    async def ask(self, items: Mapping[K, Q], *, mode: bool) -> Mapping[K, A]:
        """Raises what the call raised; `Unavailable` after `close`."""
        if self._is_closed:
            raise _stopping()
        if not items:
            return {}
        done = asyncio.get_running_loop().create_future()
        caller: _Caller[K, Q, A] = _Caller(items, mode, done, set(items))
        self._collected.append(caller)
        self._open.add(caller)
        self._asked.set()
        try:
            with covered():
                await caller.done
        finally:
            self._open.discard(caller)
        if caller.error is not None:
            # Shared with other callers: without their frames.
            raise caller.error.with_traceback(None)
        return caller.answer

    async def run(self) -> None:
        """Make the calls until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._asked.wait()
                await asyncio.sleep(self._batches.window)
                await self._send(group)

    def close(self) -> None:
        """End the wait of all callers, and refuse later ones."""
        self._is_closed = True
        for caller in self._open:
            caller.fail(_stopping())

    async def _send(self, group: asyncio.TaskGroup) -> None:
        """Wait until a call may be made, then make those for all callers collected meanwhile."""
        await self._slots.acquire()
        self._slots.release()
        self._asked.clear()
        callers, self._collected = [c for c in self._collected if not c.done.done()], []
        for mode in (False, True):
            alike = [caller for caller in callers if caller.mode is mode]
            items = [item for caller in alike for item in caller.items.items()]
            for batch in pack(items, self._batches.size):
                passengers = [caller for caller in alike if caller.in_common(batch)]
                await self._slots.acquire()
                group.create_task(self._make(batch, passengers, mode=mode))

    async def _make(
        self, batch: Mapping[K, Q], callers: Sequence[_Caller[K, Q, A]], *, mode: bool
    ) -> None:
        try:
            await self._answer(batch, callers, mode=mode)
        finally:
            self._slots.release()

    async def _answer(
        self, batch: Mapping[K, Q], callers: Sequence[_Caller[K, Q, A]], *, mode: bool
    ) -> None:
        """Make the call. If one item may have made it fail, repeat it by halves to find which."""
        try:
            with on_behalf_of(caller.passes for caller in callers):
                answer = await self._call(tuple(batch.values()), mode)
        except Exception as error:  # noqa: BLE001 -- belongs to the callers, not to this task
            if len(batch) > 1 and may_be_of_one(error):
                for half in _halves(batch):
                    concerned = [caller for caller in callers if caller.in_common(half)]
                    await self._answer(half, concerned, mode=mode)
                return
            for caller in callers:
                caller.fail(error)
        else:
            for caller in callers:
                caller.receive(batch, answer)


def may_be_of_one(error: Exception) -> bool:
    """Whether a call with many items may have failed because of one of them.

    Providers should answer with a `Failure` for it. If one raises instead, the other items must
    not be affected.
    """
    if isinstance(error, Unauthorized | QuotaExceeded):
        return False
    return isinstance(error, Rejected | Unsupported | NotFound | Conflict)


def _halves(batch: Mapping[K, Q]) -> Iterator[Mapping[K, Q]]:
    items = list(batch.items())
    middle = len(items) // 2
    yield dict(items[:middle])
    yield dict(items[middle:])


def pack(items: Sequence[tuple[K, Q]], size: int) -> Iterator[Mapping[K, Q]]:
    """Split items into batches. Two different items with one key are never in one batch.

    Outcomes are answered by key, so the two could not be distinguished. An item that is asked for
    several times is in one batch once.
    """
    left = list(items)
    while left:
        batch: dict[K, Q] = {}
        later: list[tuple[K, Q]] = []
        for key, item in left:
            if key not in batch and len(batch) < size:
                batch[key] = item
            elif key not in batch or not is_same(batch[key], item):
                later.append((key, item))
        yield batch
        left = later


def is_same(one: object, other: object) -> bool:
    """Whether they are equal; the same object is, without comparing its thousand members."""
    return one is other or one == other


def _stopping() -> Unavailable:
    return Unavailable("the lookup was cancelled: the manager is stopping")
