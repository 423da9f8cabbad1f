"""Credentials of requests: fixed ones, token files, and values that are renewed when due."""

import asyncio
import base64
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from multidict import CIMultiDict, CIMultiDictProxy

from pileus.clock import Clock
from pileus.dataclass import dataclass
from pileus.key_pair import KeyPair
from pileus.kube.config.errors import reason
from pileus.kube.config.tls import TlsContexts
from pileus.kube.errors import CredentialsError
from pileus.telemetry.log import Log

_HEADER_SAFE = re.compile(r"[\x21-\x7e]+")


class Authorization(Protocol):
    """The identity of one user, without the TLS settings of the server."""

    async def header(self) -> str | None:
        """The value of the Authorization header, if there is to be one."""
        ...

    def issued(self) -> KeyPair | None:
        """The client certificate that came with the last header, if one did."""
        ...

    def rejected(self) -> None: ...


class Fixed:
    """A token or password from the configuration, or none."""

    def __init__(self, header: str | None) -> None:
        self._header = header

    async def header(self) -> str | None:
        return self._header

    def issued(self) -> KeyPair | None:
        return None

    def rejected(self) -> None:
        """Nothing can be fetched again."""


ANONYMOUS = Fixed(None)


def bearer(token: str, origin: str) -> str:
    """Return the header for a token. Errors: `CredentialsError` if it cannot be one."""
    if not _HEADER_SAFE.fullmatch(token):
        what = "holds blanks or characters that no token has" if token else "is empty"
        raise CredentialsError(f"{origin}: the token {what}")
    return f"Bearer {token}"


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


class ConfiguredCredentials:
    """`pileus.kube.access.Credentials` put together from a configuration's parts."""

    def __init__(
        self,
        authorization: Authorization,
        tls: TlsContexts | None,
        impersonation: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._authorization = authorization
        self._tls = tls
        self._impersonation = tuple(impersonation)

    async def headers(self) -> Mapping[str, str]:
        """A multidict: the header Impersonate-Group occurs once for each group."""
        headers = CIMultiDict(self._impersonation)
        if value := await self._authorization.header():
            headers["Authorization"] = value
        return CIMultiDictProxy(headers)

    def tls(self) -> ssl.SSLContext | None:
        return self._tls.current(self._authorization.issued()) if self._tls else None

    def rejected(self) -> None:
        self._authorization.rejected()


READ_EVERY = timedelta(seconds=10)

_log = Log(__name__)


class TokenFile:
    """Read again when ten seconds have passed, and after the server has rejected the token."""

    def __init__(self, path: Path, clock: Clock, fallback: str = "") -> None:
        """Errors: `CredentialsError` if the file is unreadable and there is no fallback."""
        self._path = path
        self._clock = clock
        self._header = bearer(fallback, "token") if fallback else ""
        self._read_at: datetime | None = None
        self._refresh()

    async def header(self) -> str | None:
        now = self._clock.now()
        if self._read_at is None or abs(now - self._read_at) >= READ_EVERY:
            self._refresh()
        return self._header

    def issued(self) -> KeyPair | None:
        return None

    def rejected(self) -> None:
        self._read_at = None

    def _refresh(self) -> None:
        """Read the token file; keep the last valid token if that fails."""
        try:
            self._header = bearer(self._token(), f"token file {self._path}")
        except CredentialsError as e:
            if not self._header:
                raise
            _log.error("Keeping the last token, because no new one can be read", error=e)
        self._read_at = self._clock.now()

    def _token(self) -> str:
        try:
            return self._path.read_text("ascii").strip()
        except OSError as e:
            raise CredentialsError(f"cannot read token file {self._path}: {reason(e)}") from None
        except UnicodeDecodeError:
            raise CredentialsError(f"token file {self._path} holds no token (not ASCII)") from None


PAUSE = timedelta(seconds=5)
"""Seconds between two fetches, also if the server rejects every value."""

FAILURE_LASTS = timedelta(seconds=1)
"""How long callers get the last failure instead of each trying in turn."""

T = TypeVar("T")


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
        """Raises `CredentialsError` if no usable value can be fetched."""
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
            _log.error(
                "Cannot renew credentials, keeping the last ones, which are still valid", error=e
            )
            return usable
        self._rejected = False
        self._failure = None
        return self._last
