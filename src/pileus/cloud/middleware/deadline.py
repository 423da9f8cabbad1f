"""Ends calls that take too long, so that a hanging provider stops nobody for ever."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from pileus.cloud.errors import Unavailable
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.calls import Call, wrap

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds that a call may take."""

    read: float = 60
    write: float = 600
    """Longer: ending a write leaves open what it did, and some clouds take minutes."""
    per_item: float = 0.2
    """Added for each node, wish or route beyond the first: some clouds must ask one by one."""

    def of(self, call: Call) -> float:
        base = self.write if call.writes else self.read
        return base + self.per_item * max(0, call.items - 1)


def with_deadline(cloud: Cloud, deadlines: Deadlines) -> Cloud:
    """Errors: `Unavailable`, naming provider and method, for a call that took too long."""

    async def around(call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        seconds = deadlines.of(call)
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                return await proceed()
        except TimeoutError:
            if not scope.expired():
                raise
            raise Unavailable(
                f'cloud provider "{call.provider}" did not answer {call.name} in {seconds:g} s'
            ) from None

    return wrap(cloud, around)
