"""Questions to the API server on who asks and what they may: the seams, and their patience."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from prometheus_client import Counter, Histogram

from pileus.server.identity import User

R = TypeVar("R")

DEADLINE = 10.0
"""Seconds for one question, with all its tries."""
TRIES = 5
FIRST_PAUSE = 0.5
GROWTH = 1.5


class ReviewFailed(Exception):
    """The API server gave no answer. `code` is the HTTP status, or 0 if there was none."""

    def __init__(self, message: str, *, code: int = 0, passing: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.passing = passing
        """Whether another try may help."""


class TokenReviews(Protocol):
    async def review(self, token: str) -> User | None:
        """The user whose token this is; None if it is nobody's. Errors: `ReviewFailed`."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    reason: str = ""


class AccessReviews(Protocol):
    async def review(self, user: User, verb: str, path: str) -> Verdict:
        """Whether the user may do this with a path of ours. Errors: `ReviewFailed`."""
        ...


class AuthenticationSettings(Protocol):
    """The ConfigMap `kube-system/extension-apiserver-authentication`."""

    async def read(self) -> Mapping[str, str]:
        """Its data now. Errors: `ReviewFailed`."""
        ...

    async def follow(self, use: Callable[[Mapping[str, str]], None]) -> None:
        """Call `use` with its data whenever it changes, for ever; outages are survived."""
        ...


@dataclass(frozen=True, slots=True)
class Delegates:
    """What is delegated to the API server; None where there are no credentials for it."""

    tokens: TokenReviews | None = None
    access: AccessReviews | None = None
    settings: AuthenticationSettings | None = None


NO_DELEGATES = Delegates()


@dataclass(frozen=True, slots=True)
class Meter:
    """Counts tries by their code and measures how long they take."""

    count: Counter
    duration: Histogram

    def observe(self, code: str, seconds: float) -> None:
        self.count.labels(code).inc()
        self.duration.labels(code).observe(seconds)


async def persistently(ask: Callable[[], Awaitable[R]], meter: Meter) -> R:
    """Ask until there is an answer: a few times, with growing pauses, all within `DEADLINE`.

    Errors: `ReviewFailed`.
    """
    try:
        async with asyncio.timeout(DEADLINE):
            return await _repeatedly(ask, meter)
    except TimeoutError as error:
        raise ReviewFailed(f"no answer from the API server within {DEADLINE:g} s") from error


async def _repeatedly(ask: Callable[[], Awaitable[R]], meter: Meter) -> R:
    pause = FIRST_PAUSE
    for _ in range(TRIES - 1):
        try:
            return await _once(ask, meter)
        except ReviewFailed as error:
            if not error.passing:
                raise
        await asyncio.sleep(pause)
        pause *= GROWTH
    return await _once(ask, meter)


async def _once(ask: Callable[[], Awaitable[R]], meter: Meter) -> R:
    loop = asyncio.get_running_loop()
    start, code = loop.time(), "<error>"
    try:
        answer = await ask()
        code = "201"
    except ReviewFailed as error:
        code = str(error.code or "<error>")
        raise
    else:
        return answer
    finally:
        meter.observe(code, loop.time() - start)
