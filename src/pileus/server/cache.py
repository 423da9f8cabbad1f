"""Answers remembered for a while: bounded, and asked for only once at a time."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SIZE = 8192


@dataclass(frozen=True, slots=True)
class _Entry(Generic[V]):
    value: V
    until: float


class ReviewCache(Generic[K, V]):
    """Remembers each answer for its own time; the least recently used ones go first.

    Guarantees: concurrent questions with one key become one; a failure reaches all who wait for
    it and is not remembered; who gives up waiting does not take the others' answer away.
    """

    def __init__(self, lifetime: Callable[[V], float], *, size: int = SIZE) -> None:
        self._lifetime = lifetime
        self._size = size
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._flights: dict[K, asyncio.Future[V]] = {}

    def known(self, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.until > asyncio.get_running_loop().time()

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The remembered answer, or what `ask` returns. Errors: those of `ask`."""
        while not self.known(key):
            flight = self._flights.get(key)
            if flight is None:
                return await self._lead(key, ask)
            # wait() neither cancels the flight with us, nor us with the flight.
            await asyncio.wait([flight])
            if not flight.cancelled():
                return flight.result()
        self._entries.move_to_end(key)
        return self._entries[key].value

    async def _lead(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        loop = asyncio.get_running_loop()
        flight = self._flights[key] = loop.create_future()
        try:
            value = await ask()
        except Exception as error:
            flight.set_exception(error)
            flight.exception()  # looked at: nobody may be waiting
            raise
        else:
            self._remember(key, _Entry(value, loop.time() + self._lifetime(value)))
            flight.set_result(value)
            return value
        finally:
            del self._flights[key]
            flight.cancel()  # only if the asker was cancelled; the next who waits asks anew

    def _remember(self, key: K, entry: _Entry[V]) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)
