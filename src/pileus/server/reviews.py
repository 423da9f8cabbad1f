"""Token and access reviews by the API server, with retries, deadline and cache.

The clients must not be fenced: standby replicas serve requests, too.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

from pileus.dataclass import dataclass
from pileus.kube.client import Client, Selector
from pileus.kube.errors import (
    ApiError,
    InternalError,
    KubeError,
    ServerTimeout,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unreachable,
)
from pileus.kube.model.authentication_v1 import TOKEN_REVIEWS, TokenReview, TokenReviewSpec
from pileus.kube.model.authorization_v1 import (
    SUBJECT_ACCESS_REVIEWS,
    NonResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from pileus.kube.model.core_v1 import CONFIG_MAPS
from pileus.server.users import User
from pileus.telemetry.instruments import Counter, Histogram, Labelled
from pileus.telemetry.log import Log

log = Log(__name__)


R = TypeVar("R")

DEADLINE = 10.0
"""Seconds for one review, including its retries."""
TRIES = 5
FIRST_PAUSE = 0.5
GROWTH = 1.5


class ReviewFailed(Exception):
    """The API server gave no answer. `code` is the HTTP status, or 0 if there was none."""

    def __init__(self, message: str, *, code: int = 0, passing: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.passing = passing
        """Whether a retry may succeed."""


class TokenReviews(Protocol):
    async def review(self, token: str) -> User | None:
        """Returns the user of the token, or None if it is invalid. Raises `ReviewFailed`."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    reason: str = ""


class AccessReviews(Protocol):
    async def review(self, user: User, verb: str, path: str) -> Verdict:
        """Returns whether the user may do this with a path. Raises `ReviewFailed`."""
        ...


class AuthenticationSettings(Protocol):
    """The ConfigMap `kube-system/extension-apiserver-authentication`."""

    async def read(self) -> Mapping[str, str]:
        """Returns its current data. Raises `ReviewFailed`."""
        ...

    async def follow(self, use: Callable[[Mapping[str, str]], None]) -> None:
        """Call `use` with its data whenever it changes, until cancelled. Outages do not end it."""
        ...


@dataclass(frozen=True, slots=True)
class Delegates:
    """What the API server decides; None where there are no credentials for it."""

    tokens: TokenReviews | None = None
    access: AccessReviews | None = None
    settings: AuthenticationSettings | None = None


NO_DELEGATES = Delegates()


@dataclass(frozen=True, slots=True)
class Meter:
    """Counts attempts by status code and measures their duration."""

    count: Labelled[Counter]
    duration: Labelled[Histogram]

    def observe(self, code: str, seconds: float) -> None:
        self.count.labels(code).inc()
        self.duration.labels(code).observe(seconds)


async def persistently(ask: Callable[[], Awaitable[R]], meter: Meter) -> R:
    """Ask with a few retries and growing pauses, all within `DEADLINE`.

    Raises `ReviewFailed` if there is no answer.
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


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SIZE = 8192


@dataclass(frozen=True, slots=True)
class _Entry(Generic[V]):
    value: V
    until: float


class ReviewCache(Generic[K, V]):
    """Caches each answer for its own lifetime; evicts the least recently used.

    Guarantees: concurrent requests for one key become one. A failure is raised to all waiting
    callers and not cached. A caller that is cancelled does not affect the others.
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
        """Returns the cached answer, or what `ask` returns. Raises what `ask` raises."""
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
            flight.exception()  # retrieved: there may be no other caller
            raise
        else:
            self._remember(key, _Entry(value, loop.time() + self._lifetime(value)))
            flight.set_result(value)
            return value
        finally:
            del self._flights[key]
            flight.cancel()  # only if this caller was cancelled: the next one asks again

    def _remember(self, key: K, entry: _Entry[V]) -> None:
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)


NAMESPACE = "kube-system"
NAME = "extension-apiserver-authentication"
PAUSE = 5.0
"""Seconds between two watches of the settings."""

PASSING = (
    InternalError,
    ServerTimeout,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unreachable,
)


def delegates_of(authentication: Client | None, authorization: Client | None) -> Delegates:
    """Returns the reviews that these clients allow; each client may be None."""
    return Delegates(
        tokens=ClusterTokenReviews(authentication) if authentication else None,
        access=ClusterAccessReviews(authorization) if authorization else None,
        settings=ClusterSettings(authentication) if authentication else None,
    )


class ClusterTokenReviews:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def review(self, token: str) -> User | None:
        body = TokenReview(spec=TokenReviewSpec(token=token))
        status = (await _answer(self._client.create(TOKEN_REVIEWS, body))).status
        if status is None or not status.authenticated or status.user is None:
            if status is not None and status.error:
                raise ReviewFailed(status.error, code=201)
            return None
        user = status.user
        return User(
            user.username,
            uid=user.uid or "",
            groups=user.groups or (),
            extra=tuple(sorted((user.extra or {}).items())),
        )


class ClusterAccessReviews:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def review(self, user: User, verb: str, path: str) -> Verdict:
        spec = SubjectAccessReviewSpec(
            user=user.name,
            uid=user.uid or None,
            groups=user.groups,
            extra=dict(user.extra) or None,
            non_resource_attributes=NonResourceAttributes(path=path, verb=verb),
        )
        body = SubjectAccessReview(spec=spec)
        status = (await _answer(self._client.create(SUBJECT_ACCESS_REVIEWS, body))).status
        if status is None:
            raise ReviewFailed("the SubjectAccessReview of the API server has no status", code=201)
        return Verdict(bool(status.allowed) and not status.denied, status.reason or "")


class ClusterSettings:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self) -> Mapping[str, str]:
        found = await _answer(self._client.get(CONFIG_MAPS, NAME, namespace=NAMESPACE))
        return found.data or {}

    async def follow(self, use: Callable[[Mapping[str, str]], None]) -> None:
        while True:
            try:
                await self._watch(use)
            except KubeError as error:
                log.info("Watch of the authentication settings ended", v=2, err=error)
            await asyncio.sleep(PAUSE)

    async def _watch(self, use: Callable[[Mapping[str, str]], None]) -> None:
        only = Selector(fields=f"metadata.name={NAME}")
        watch = self._client.watch(CONFIG_MAPS, namespace=NAMESPACE, selector=only)
        async with aclosing(watch) as events:
            async for event in events:
                # A deletion changes nothing: the last known CAs stay trusted.
                if event.type in {"ADDED", "MODIFIED"}:
                    use(event.object.data or {})


async def _answer(asked: Awaitable[R]) -> R:
    try:
        return await asked
    except KubeError as error:
        code = error.status if isinstance(error, ApiError) else 0
        passing = isinstance(error, PASSING)
        raise ReviewFailed(str(error), code=code, passing=passing) from error
