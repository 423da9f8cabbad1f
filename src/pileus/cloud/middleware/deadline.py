"""Ends calls that take too long, so that a provider that hangs does not hold up other work."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from math import inf
from typing import TypeVar

from pileus.cloud.abilities import Deadlines
from pileus.cloud.errors import Unavailable
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.calls import Call, wrap
from pileus.deadline import covered

T = TypeVar("T")

GRACE = 60.0
"""Seconds that a call has for ending after it was cancelled."""


class Overdue:
    """Calls that were cancelled at their deadline and have not ended since.

    Such a provider swallows cancellation. Its calls hold their slots of the budget for good, so
    the process has to be replaced: health checks fail.
    """

    def __init__(self) -> None:
        self._due: dict[object, tuple[float, str]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def watched(self, call: Call, seconds: float) -> Generator[None]:
        self._loop = asyncio.get_running_loop()
        token = object()
        due = self._loop.time() + seconds
        self._due[token] = (due, f'cloud provider "{call.provider}": {call.name}')
        try:
            yield
        finally:
            del self._due[token]

    def health(self) -> str | None:
        """What to tell a health check; None while all calls end in time."""
        due, what = min(list(self._due.values()), default=(inf, ""))  # from a thread, hence a copy
        late = self._loop.time() - due if self._loop else -inf
        return f"{what} was cancelled {late:.0f} s ago and has not ended" if late > GRACE else None


def with_deadline(cloud: Cloud, deadlines: Deadlines, overdue: Overdue | None = None) -> Cloud:
    """Raises `Unavailable`, naming provider and method, for a call that took too long."""
    ends = overdue or Overdue()

    async def around(call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        seconds = deadlines.of_call(writes=call.writes, items=call.items)
        scope = asyncio.timeout(seconds)
        try:
            with covered(), ends.watched(call, seconds):
                async with scope:
                    return await proceed()
        except TimeoutError:
            if not scope.expired():
                raise
            raise Unavailable(
                f'cloud provider "{call.provider}" did not answer {call.name} in {seconds:g} s'
            ) from None

    return wrap(cloud, around)
