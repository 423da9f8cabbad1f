"""Calls of a ported provider's methods: plain ones in bounded threads, async ones in the loop."""

import inspect
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar, cast

from pileus.classic.errors import is_unexpected, translated
from pileus.classic.interface import Maybe
from pileus.cloud.permission import pass_on
from pileus.cloud.threads import LIMIT, Blocking
from pileus.telemetry.log import Log

log = Log(__name__)
P = ParamSpec("P")
T = TypeVar("T")


class Calls:
    """The limit counts plain and async methods, and calls that were abandoned."""

    def __init__(self, at_once: int = LIMIT) -> None:
        self._blocking = Blocking(at_once)
        self._logged: set[tuple[str, type]] = set()

    async def make(self, method: Callable[P, Maybe[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns what the method returns. Raises what it raises, and as `Blocking.call`."""
        return await self._made(None, method, partial(method, *args, **kwargs))

    async def make_alone(
        self, key: str, method: Callable[P, Maybe[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `make`, but never at the same time as another call with that key.

        Raises `Conflict` while one is running, even if its caller was cancelled.
        """
        return await self._made(key, method, partial(method, *args, **kwargs))

    def health(self) -> str | None:
        return self._blocking.health()

    async def _made(self, key: str | None, method: object, call: Callable[[], Maybe[T]]) -> T:
        name = getattr(method, "__qualname__", repr(method))
        if inspect.iscoroutinefunction(method):
            async with self._blocking.reserved(name, key):
                return await self._awaited(name, cast("Awaitable[T]", call()))
        answer = await self._blocking.run(name, key, partial(self._called, name, call))
        if inspect.isawaitable(answer):
            return await self._awaited(name, answer)
        return cast("T", answer)

    def _called(self, name: str, call: Callable[[], Maybe[T]]) -> Maybe[T]:
        with self._passing_on(name):
            return call()

    async def _awaited(self, name: str, answer: Awaitable[T]) -> T:
        with self._passing_on(name):
            return await answer

    @contextmanager
    def _passing_on(self, name: str) -> Generator[None]:
        """Lookups of many nodes run concurrently: if the cloud asks one to wait, all wait."""
        try:
            yield
        except Exception as error:
            if is_unexpected(error):
                self._log(name, error)
            pass_on(translated(error))
            raise

    def _log(self, name: str, error: Exception) -> None:
        """Log the traceback, once for each method and class of exception."""
        if (name, type(error)) in self._logged:
            return
        self._logged.add((name, type(error)))
        log.exception(  # noqa: LOG004 -- called where it is caught
            "Cloud provider raised an unexpected exception", error=error, method=name
        )
