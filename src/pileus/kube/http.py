"""The HTTP transport, with deadlines and credentials on every request."""

import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from multidict import CIMultiDict

from pileus.kube.access import Access
from pileus.kube.errors import CredentialsError, TooLong, Unreachable, Unreadable
from pileus.kube.transport import READS, Reply, Request

CONNECT_TIMEOUT = 10.0
KEEPALIVE_IDLE = 30
KEEPALIVE_INTERVAL = 10
KEEPALIVE_PROBES = 3
BUFFER = 2**18
"""Bytes of a stream that are read ahead; more means fewer pauses with many events."""
UNAUTHORIZED = 401

_FAULTS = (aiohttp.ClientError, ssl.SSLError, OSError)  # OSError includes TimeoutError


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
        self._host = urlsplit(access.server).netloc.rpartition("@")[2]
        self._session: aiohttp.ClientSession | None = None
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
        session, self._session, self._closed = self._session, None, True
        if session:
            await session.close()

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[Reply]:
        response = await self._open(request)
        if response.status == UNAUTHORIZED:
            # Nothing was done, so that even a write can be sent again.
            response.release()
            self._access.credentials.rejected()
            response = await self._open(request)
        _refuse_compression(request, response)
        try:
            yield _HttpReply(response, request, self._host)
        finally:
            response.release()

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("HttpTransport is used after its `async with` block")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, socket_factory=_socket),
                cookie_jar=aiohttp.DummyCookieJar(),
                middlewares=(self._never_repeat_writes,),
                read_bufsize=BUFFER,
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    async def _open(self, request: Request) -> aiohttp.ClientResponse:
        session = self._opened()
        headers = CIMultiDict({"Accept-Encoding": "identity", **request.headers})
        headers.extend(await self._access.credentials.headers())
        context = self._access.credentials.tls()
        if request.guard:
            request.guard()
        try:
            return await session.request(
                request.method,
                self._url(request),
                headers=headers,
                data=request.body,
                timeout=self._deadlines(request),
                ssl=context if context is not None else True,
                server_hostname=self._access.server_name,
                proxy=self._access.proxy,
                allow_redirects=False,
            )
        except _FAULTS as error:
            raise _unreachable(request, self._host, error, self._access.trust) from error
        except ValueError as error:
            raise CredentialsError("a control character in a token or user name") from error

    async def _never_repeat_writes(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Keep aiohttp from sending a PUT or DELETE again when a connection was lost under it."""
        try:
            return await handler(request)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            if request.method in READS:
                raise
            sent = Request(method=request.method, path=request.url.path)
            raise _unreachable(sent, self._host, error, self._access.trust) from error

    def _url(self, request: Request) -> str:
        query = f"?{urlencode(request.query)}" if request.query else ""
        return f"{self._access.server}{quote(request.path)}{query}"

    def _deadlines(self, request: Request) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(
            total=request.timeout,
            connect=self._connect_timeout,
            sock_connect=self._connect_timeout,
            sock_read=request.idle_timeout,
        )


class _HttpReply:
    def __init__(self, response: aiohttp.ClientResponse, request: Request, host: str) -> None:
        self._response = response
        self._request = request
        self._host = host

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def read(self) -> bytes:
        limit = self._request.limit
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > limit:
                self._response.close()
                raise TooLong(f"{_named(self._request)}: the answer has more than {limit} bytes")
        return bytes(body)

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except _FAULTS as error:
            raise _unreachable(self._request, self._host, error) from error


def _socket(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    made = socket.socket(*address[:3])
    made.settimeout(0)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, option):  # not all systems have all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _named(request: Request) -> str:
    return f"{request.method} {request.path}"


def _refuse_compression(request: Request, response: aiohttp.ClientResponse) -> None:
    """Raise if the body is compressed: a few bytes could decompress to more than memory holds."""
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in {"", "identity"}:
        return
    response.close()
    raise Unreadable(
        f"{_named(request)}: the answer is compressed ({encoding[:20]!r}), though the request asks "
        "for identity; if a proxy compresses answers, turn that off for the API server"
    )


def _unreachable(request: Request, host: str, error: Exception, trust: str = "") -> Unreachable:
    unsent = isinstance(
        error,
        aiohttp.ClientConnectorError
        | aiohttp.ConnectionTimeoutError
        | aiohttp.ClientHttpProxyError,
    )
    return Unreachable(
        _named(request),
        host,
        _cause(error, trust),
        timed_out=isinstance(error, TimeoutError),
        may_have_acted=request.method not in READS and not unsent,
    )


_CAUSES: tuple[tuple[type[Exception], str], ...] = (
    (aiohttp.ClientConnectorDNSError, "its name does not resolve"),
    (aiohttp.ConnectionTimeoutError, "no connection in time"),
    (aiohttp.SocketTimeoutError, "no byte came for too long"),
    (aiohttp.ServerDisconnectedError, "it closed the connection in the middle of the exchange"),
    (aiohttp.ClientPayloadError, "it closed the connection in the middle of the answer"),
    (TimeoutError, "no whole answer in time"),
)


def _cause(error: Exception, trust: str) -> str:
    """Returns the cause in words that help to fix it."""
    for kind, text in _CAUSES:
        if isinstance(error, kind):
            return text
    match error:
        case aiohttp.ClientConnectorCertificateError():
            against = f"; trusted is {trust}" if trust else ""
            return f"its certificate is not trusted: {error.certificate_error}{against}"
        case aiohttp.ClientConnectorError():
            return f"cannot connect: {_system_text(error.os_error)}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy refuses: {error.status} {error.message}"
        case _:
            return str(error) or type(error).__name__


def _system_text(error: OSError) -> str:
    if isinstance(error, ssl.SSLError) or not error.errno:
        return str(error)
    return os.strerror(error.errno)
