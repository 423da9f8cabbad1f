"""Something that is valid for a while: fetched when due, by one caller for all."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from pileus.clock import Clock
from pileus.kube.errors import CredentialsError
from pileus.telemetry.log import Log

PAUSE = timedelta(seconds=5)
"""Between two fetches, so that a server that rejects everything is no storm of them."""

FAILURE_LASTS = timedelta(seconds=1)
"""How long callers get the last failure instead of each trying in turn."""

T = TypeVar("T")

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Issued(Generic[T]):
    value: T = field(repr=False)
    at: datetime
    renew: datetime | None = None
    """From then on a new one is looked for; None: never."""
    expires: datetime | None = None
    """From then on it is of no use; None: never."""


@dataclass(frozen=True, slots=True)
class _Failure:
    error: CredentialsError
    at: datetime


class Renewing(Generic[T]):
    """The present value, fetched by one caller while the others wait or use the last one.

    If a renewal fails while the last value is still of use, that one is given and the failure
    logged; the next try comes after a pause.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Issued[T]]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._turn = asyncio.Lock()
        self._last: Issued[T] | None = None
        self._rejected = False
        self._failure: _Failure | None = None

    @property
    def last(self) -> T | None:
        return self._last.value if self._last else None

    async def value(self) -> T:
        """Errors: `CredentialsError` if there is no usable value to be had."""
        if (fresh := self._fresh()) is not None:
            return fresh.value
        if self._turn.locked() and (usable := self._usable()) is not None:
            return usable.value
        async with self._turn:
            return (self._fresh() or await self._renewed()).value

    def reject(self) -> None:
        """The value was not accepted: fetch another one, unless this one was fetched just now."""
        if self._last and self._clock.now() - self._last.at >= PAUSE:
            self._rejected = True

    def _fresh(self) -> Issued[T] | None:
        last = self._usable()
        if last is None or last.renew is None or self._clock.now() < last.renew:
            return last
        failed = self._failure
        return last if failed and self._clock.now() - failed.at < PAUSE else None

    def _usable(self) -> Issued[T] | None:
        last = self._last
        if last is None or self._rejected:
            return None
        return last if last.expires is None or self._clock.now() < last.expires else None

    async def _renewed(self) -> Issued[T]:
        failed = self._failure
        if failed and self._clock.now() - failed.at < FAILURE_LASTS:
            raise CredentialsError(str(failed.error)) from failed.error
        try:
            self._last = await self._fetch()
        except CredentialsError as e:
            self._failure = _Failure(e, self._clock.now())
            if (usable := self._usable()) is None:
                raise
            _log.error("Renewal failed; the last credentials are still valid", error=e)
            return usable
        self._rejected = False
        self._failure = None
        return self._last
