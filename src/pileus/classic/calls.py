"""How a ported provider's methods are called: plain ones in threads, async ones as they are.

So many at once and no more; who waited long for its turn may no longer write, or has to leave the
cloud alone. A thread that nobody awaits any more keeps its slot until it ends.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar, cast

from pileus.classic.errors import is_unexpected, translated
from pileus.classic.interface import Maybe
from pileus.classic.thread import in_thread
from pileus.cloud.errors import CloudError, Conflict
from pileus.cloud.permission import check_permission, pass_on
from pileus.telemetry.log import Log

log = Log(__name__)
P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 16


class Calls:
    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._busy: set[str] = set()
        self._logged: set[tuple[str, type]] = set()

    async def make(self, method: Callable[P, Maybe[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it and await its end. Errors: whatever it raises; those of `check_permission`."""
        return await self._made(partial(method, *args, **kwargs), method, lambda: None)

    async def make_alone(
        self, key: str, method: Callable[P, Maybe[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `make`, but never beside another call of that key, even one nobody awaits any more.

        Errors: `Conflict` while that one still runs.
        """
        if key in self._busy:
            raise Conflict("an earlier call for it still runs in the provider; look again later")
        self._busy.add(key)
        release = partial(self._busy.discard, key)
        return await self._made(partial(method, *args, **kwargs), method, release)

    async def _made(
        self, call: Callable[[], Maybe[T]], method: object, ended: Callable[[], None]
    ) -> T:
        is_async = inspect.iscoroutinefunction(method)
        try:
            await self._slots.acquire()
        except BaseException:
            ended()
            raise
        try:
            check_permission()
        except CloudError:
            self._end(ended)
            raise
        with self._passing_on(method):
            if is_async:
                with self._held(ended):
                    return await cast("Awaitable[T]", call())
            answer = await in_thread(call, partial(self._end, ended))
            return await answer if inspect.isawaitable(answer) else cast("T", answer)

    @contextmanager
    def _held(self, ended: Callable[[], None]) -> Generator[None]:
        try:
            yield
        finally:
            self._end(ended)

    def _end(self, ended: Callable[[], None]) -> None:
        self._slots.release()
        ended()

    @contextmanager
    def _passing_on(self, method: object) -> Generator[None]:
        """Lookups of many nodes run concurrently: if the cloud asks one to wait, all wait."""
        try:
            yield
        except Exception as error:
            if is_unexpected(error):
                self._log(method, error)
            pass_on(translated(error))
            raise

    def _log(self, method: object, error: Exception) -> None:
        """Log the traceback, once for each method and class of exception."""
        name = getattr(method, "__qualname__", repr(method))
        if (name, type(error)) in self._logged:
            return
        self._logged.add((name, type(error)))
        log.exception(  # noqa: LOG004 -- called by those who caught it
            "Cloud provider raised an unexpected exception", error=error, method=name
        )
