"""Deadlines of calls: a provider that hangs does not block other work."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from math import inf

from pileus.cloud.abilities import Deadlines
from pileus.cloud.errors import Unavailable
from pileus.cloud.middleware.methods import Call
from pileus.deadline import covered

GRACE = 60.0
"""Seconds that a call has to end after it was cancelled."""


class Overdue:
    """Calls that were cancelled at their deadline and have not ended since.

    The provider of such a call ignores cancellation. The call keeps its slot of the budget, so
    only a restart of the process helps, and the health check fails.
    """

    def __init__(self) -> None:
        self._due: dict[object, tuple[float, str]] = {}
        self._of_providers: dict[object, Callable[[], str | None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def limited(self, call: Call, deadlines: Deadlines) -> AsyncGenerator[None]:
        """Cancel the block at the deadline of the call.

        Raises `Unavailable` then, with the names of the provider and the method. A `TimeoutError`
        that the block raises itself passes.
        """
        seconds = deadlines.of_call(writes=call.method.writes, items=call.items)
        scope = asyncio.timeout(seconds)
        try:
            with covered(), self._watched(call, seconds):
                async with scope:
                    yield
        except TimeoutError:
            if not scope.expired():
                raise
            raise Unavailable(
                f'cloud provider "{call.provider}" did not answer {call.name} in {seconds:g} s'
            ) from None

    @contextmanager
    def _watched(self, call: Call, seconds: float) -> Generator[None]:
        self._loop = asyncio.get_running_loop()
        token = object()
        due = self._loop.time() + seconds
        self._due[token] = (due, f'cloud provider "{call.provider}": {call.name}')
        try:
            yield
        finally:
            del self._due[token]

    def include(self, key: object, health: Callable[[], str | None]) -> None:
        """Report the health of a provider, too. The key is the provider's function, once each."""
        self._of_providers[key] = health

    def health(self) -> str | None:
        """Returns the message for a health check; None while all calls end in time."""
        answers = (self._late(), *(health() for health in self._of_providers.values()))
        return next((answer for answer in answers if answer is not None), None)

    def _late(self) -> str | None:
        due, what = min(list(self._due.values()), default=(inf, ""))  # from a thread, hence a copy
        late = self._loop.time() - due if self._loop else -inf
        return f"{what} was cancelled {late:.0f} s ago and has not ended" if late > GRACE else None
