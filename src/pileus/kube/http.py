"""The HTTP transport, with deadlines and credentials on every request."""

import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode, urlsplit

from multidict import CIMultiDict

from pileus.http.client import Client, InvalidHeader, Sent
from pileus.http.connection import (
    Answer,
    ConnectTimeout,
    NotConnected,
    ProxyRefused,
    Silent,
    TooMuch,
)
from pileus.kube.access import Access
from pileus.kube.errors import CredentialsError, TooLong, Unreachable, Unreadable
from pileus.kube.transport import READS, Reply, Request

CONNECT_TIMEOUT = 10.0
UNAUTHORIZED = 401
_FAULTS = (OSError, ssl.SSLError)  # OSError includes TimeoutError


class HttpTransport:
    """Requests to one API server over a pool of connections, which `async with` closes.

    A 401 is answered once with renewed credentials. When `credentials.tls()` gives another
    context, new connections use it; old ones finish what they are at, and are closed when idle.
    Redirects are not followed, environment proxies not used, answers not compressed (which would
    double the API server's CPU).
    """

    def __init__(self, access: Access, *, connect_timeout: float = CONNECT_TIMEOUT) -> None:
        if access.proxy and urlsplit(access.proxy).scheme not in {"http", "https"}:
            raise CredentialsError("the proxy of an API server must be http:// or https://")
        self._access = access
        self._connect_timeout = connect_timeout
        where = urlsplit(access.server)
        self._host = where.netloc.rpartition("@")[2]
        self._prefix = where.path
        self._http: Client | None = None
        self._closed = False

    @property
    def host(self) -> str:
        """Host and port of the API server, as the metrics name it."""
        return self._host

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        http, self._http, self._closed = self._http, None, True
        if http:
            await http.close()

    def send(self, request: Request) -> AbstractAsyncContextManager[Reply]:
        return _Sending(self, request)

    async def answer(self, request: Request) -> Answer:
        """Send the request. Returns its answer, with the body to come."""
        answer = await self._open(request)
        if answer.status == UNAUTHORIZED:
            # Nothing was done, so that even a write can be sent again.
            answer.release()
            self._access.credentials.rejected()
            answer = await self._open(request)
        _refuse_compression(request, answer)
        return answer

    async def _open(self, request: Request) -> Answer:
        """Send the request. Raises `Unreachable` or `CredentialsError`."""
        http = self._opened()
        headers = CIMultiDict({"Accept-Encoding": "identity", **request.headers})
        headers.extend(await self._access.credentials.headers())
        context = self._access.credentials.tls()
        if request.guard:
            request.guard()
        query = f"?{urlencode(request.query)}" if request.query else ""
        sent = Sent(
            method=request.method,
            target=f"{self._prefix}{quote(request.path)}{query}",
            headers=headers.items(),
            body=request.body,
            timeout=request.timeout,
            idle_timeout=request.idle_timeout,
            guard=request.guard,
        )
        try:
            return await http.open(sent, context)
        except InvalidHeader as error:
            raise CredentialsError("a control character in a token or user name") from error
        except _FAULTS as error:
            raise _unreachable(request, self._host, error, self._access.trust) from error

    def _opened(self) -> Client:
        if self._closed:
            raise RuntimeError("HttpTransport is used after its `async with` block")
        if self._http is None:
            access = self._access
            self._http = Client(
                access.server,
                connect_timeout=self._connect_timeout,
                server_name=access.server_name,
                proxy=access.proxy,
            )
        return self._http


class _Sending:
    """The block of one request. Not a generator: there are several in every pass."""

    __slots__ = ("_answer", "_request", "_transport")

    def __init__(self, transport: HttpTransport, request: Request) -> None:
        self._transport = transport
        self._request = request
        self._answer: Answer | None = None

    async def __aenter__(self) -> Reply:
        self._answer = await self._transport.answer(self._request)
        return _HttpReply(self._answer, self._request, self._transport.host)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._answer is not None:
            self._answer.release()


class _HttpReply:
    def __init__(self, answer: Answer, request: Request, host: str) -> None:
        self._answer = answer
        self._request = request
        self._host = host

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._answer.headers

    async def read(self) -> bytes:
        limit = self._request.limit
        try:
            return await self._answer.read(limit)
        except TooMuch as error:
            what = f"{_named(self._request)}: the answer has more than {limit} bytes"
            raise TooLong(what) from error
        except _FAULTS as error:
            raise _unreachable(self._request, self._host, error) from error

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._answer.chunks(self._request.gather):
                yield chunk
        except _FAULTS as error:
            raise _unreachable(self._request, self._host, error) from error


def _named(request: Request) -> str:
    return f"{request.method} {request.path}"


def _refuse_compression(request: Request, answer: Answer) -> None:
    """Raise if the body is compressed: a few bytes could decompress to more than memory holds."""
    encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in {"", "identity"}:
        return
    answer.close()
    raise Unreadable(
        f"{_named(request)}: the answer is compressed ({encoding[:20]!r}), though the request asks "
        "for identity; if a proxy compresses answers, turn that off for the API server"
    )


def _unreachable(request: Request, host: str, error: OSError, trust: str = "") -> Unreachable:
    unsent = isinstance(error, NotConnected | ConnectTimeout)
    return Unreachable(
        _named(request),
        host,
        _cause(error, trust),
        timed_out=isinstance(error, TimeoutError),
        may_have_acted=request.method not in READS and not unsent,
        untrusted=isinstance(error.__cause__ or error, ssl.SSLCertVerificationError),
    )


def _cause(error: BaseException, trust: str) -> str:
    """Returns the cause in words that help to fix it."""
    match error:
        case ConnectTimeout():
            return "no connection in time"
        case Silent():
            return "no byte came for too long"
        case TimeoutError():
            return "no whole answer in time"
        case NotConnected():
            return _not_connected(error.__cause__ or error, trust)
        case OSError() if error.errno and not isinstance(error, ssl.SSLError):
            return os.strerror(error.errno)
        case _:
            return str(error) or type(error).__name__


def _not_connected(error: BaseException, trust: str) -> str:
    match error:
        case ProxyRefused():
            return f"the proxy refuses: {error}"
        case socket.gaierror():
            return "its name does not resolve"
        case ssl.SSLCertVerificationError():
            against = f"; trusted is {trust}" if trust else ""
            return f"its certificate is not trusted: {error}{against}"
        case _:
            return f"cannot connect: {_cause(error, trust)}"
