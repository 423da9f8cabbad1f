"""HTTP/1.1 to one server, over connections that are kept and used again.

    request ──▶ an idle connection, or a new one ──▶ head ──▶ body, as it comes ──▶ idle again

A client for any server does more than is needed here, for which every request pays: this one needs
a third of the processor time. Not supported: redirects, compression, cookies, pipelining.
"""

import asyncio
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import cast
from urllib.parse import SplitResult, unquote, urlsplit

from pileus.dataclass import dataclass
from pileus.http.connection import (
    LONGEST_HEAD,
    READ_SIZE,
    Answer,
    Closed,
    Connection,
    ConnectTimeout,
    NotConnected,
    ProxyRefused,
)

READS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods of requests that change nothing, and may be sent again."""
KEPT = 15.0
"""Seconds for which an idle connection is kept."""
KEEPALIVE_IDLE = 30
KEEPALIVE_INTERVAL = 10
KEEPALIVE_PROBES = 3

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PORTS = {"http": 80, "https": 443}
_CONNECTED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request as it is sent, and how long it may take."""

    method: str
    target: str
    """The path with its query, quoted."""
    headers: Iterable[tuple[str, str]]
    body: bytes | None = None
    timeout: float | None = None
    """Seconds for the whole answer, from when the request is sent."""
    idle_timeout: float | None = None
    """Seconds without a byte of the answer."""
    reads: bool = False
    """Whether the request changes nothing, whatever its method: it may be sent again."""
    guard: Callable[[], None] | None = None
    """Called right before the request is sent; raises if it must not be."""


class InvalidHeader(ValueError):
    """A header, or the target, has a control character: it could be read as two."""


class Client:
    """The connections to one server. Idle ones are kept for a while, by TLS context."""

    def __init__(
        self,
        server: str,
        *,
        connect_timeout: float,
        server_name: str | None = None,
        proxy: str | None = None,
    ) -> None:
        """`server_name` is what its certificate has to name, if that is not its host."""
        self.buffer = memoryview(bytearray(READ_SIZE))
        self._server = urlsplit(server)
        self._is_secure = self._server.scheme == "https"
        self.host = host_of(self._server)
        """Host and port of the server, as requests name it."""
        self._server_name = server_name
        self._proxy = urlsplit(proxy) if proxy else None
        self._connect_timeout = connect_timeout
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._default: ssl.SSLContext | None = None
        self._last_address: tuple[object, ...] | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def open(self, sent: Sent, context: ssl.SSLContext | None) -> Answer:
        """Send a request. Returns its answer, with the body to come.

        A read is sent again if the server closed a connection that was used before: it may have
        closed it when the request was under way. A write is never sent again. Raises
        `InvalidHeader`, `NotConnected`, `ConnectTimeout`, `Closed`, `NotHttp`, `TimeoutError`.
        """
        text = self._text(sent)
        used = self.idle(context)
        answer = await _asked_again(used, sent, text) if used is not None else None
        return answer or await _asked(await self.new(context), sent, text)

    def _text(self, sent: Sent) -> bytes:
        """Returns the request as it is sent. Raises `InvalidHeader`."""
        target = sent.target
        forwards = self._proxy is not None and not self._is_secure
        if forwards:
            target = f"http://{self.host}{target}"
        lines = [f"{sent.method} {target} HTTP/1.1", f"Host: {self.host}"]
        lines.extend(map(": ".join, sent.headers))
        if sent.body is not None or sent.method not in READS:
            lines.append(f"Content-Length: {len(sent.body or b'')}")
        if forwards:
            lines.extend(_proxy_authorization(cast("SplitResult", self._proxy)))
        if _CONTROL.search("".join(lines)):
            raise InvalidHeader("a control character in a header")
        head = "\r\n".join(lines).encode("utf-8", "surrogateescape")
        return b"%b\r\n\r\n%b" % (head, sent.body or b"")

    def idle(self, context: ssl.SSLContext | None) -> Connection | None:
        """Returns the connection that was used last, of those with this context."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.context is context:
                return connection
            connection.abort()
        return None

    async def new(self, context: ssl.SSLContext | None) -> Connection:
        """Connect. Raises `NotConnected` or `ConnectTimeout`."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                return await self._connect(context)
        except NotConnected:
            raise
        except TimeoutError:
            raise ConnectTimeout from None
        except (OSError, ssl.SSLError) as error:
            raise NotConnected from error

    def keep(self, connection: Connection) -> None:
        self._idle.append(connection)
        if self._sweep is None:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(KEPT, self._close_unused)

    def forget(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in tuple(self._all):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)

    def _close_unused(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in tuple(self._idle):
            if now - connection.idle_since >= KEPT:
                self._idle.remove(connection)
                connection.close()
        oldest = min((each.idle_since for each in self._idle), default=None)
        self._sweep = None
        if oldest is not None:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(max(oldest + KEPT - now, 0.1), self._close_unused)

    async def _connect(self, context: ssl.SSLContext | None) -> Connection:
        loop = asyncio.get_running_loop()
        connection = Connection(self, context)
        made = await self._socket(loop)
        try:
            if self._proxy is None:
                await self._connect_directly(connection, made)
            else:
                await self._connect_by_proxy(connection, made, self._proxy)
        except BaseException:
            made.close()
            raise
        self._all.add(connection)
        return connection

    async def _connect_directly(self, connection: Connection, made: socket.socket) -> None:
        used = self._context(connection.context)
        await asyncio.get_running_loop().create_connection(
            lambda: connection,
            sock=made,
            ssl=used,
            server_hostname=self._tls_name if used else None,
        )

    async def _connect_by_proxy(
        self, connection: Connection, made: socket.socket, proxy: SplitResult
    ) -> None:
        """Let the proxy forward requests; for HTTPS, let it open a tunnel."""
        loop = asyncio.get_running_loop()
        to_proxy = self._trusted(connection.context) if proxy.scheme == "https" else None
        name = (proxy.hostname or "") if to_proxy else None
        used = self._context(connection.context)
        if used is None:
            await loop.create_connection(
                lambda: connection, sock=made, ssl=to_proxy, server_hostname=name
            )
            return
        tunnel = _Tunnel()
        outer, _ = await loop.create_connection(
            lambda: tunnel, sock=made, ssl=to_proxy, server_hostname=name
        )
        try:
            outer.write(self._connect_text(proxy))
            await tunnel.opened
            inner = await loop.start_tls(outer, connection, used, server_hostname=self._tls_name)
        except BaseException:
            outer.abort()
            raise
        connection.connection_made(cast("asyncio.Transport", inner))

    def _connect_text(self, proxy: SplitResult) -> bytes:
        host = self._server.hostname or ""
        target = f"{f'[{host}]' if ':' in host else host}:{port_of(self._server)}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", *_proxy_authorization(proxy)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    @property
    def _tls_name(self) -> str:
        return self._server_name or self._server.hostname or ""

    def _context(self, context: ssl.SSLContext | None) -> ssl.SSLContext | None:
        return self._trusted(context) if self._is_secure else None

    def _trusted(self, context: ssl.SSLContext | None) -> ssl.SSLContext:
        if context is None and self._default is None:
            self._default = ssl.create_default_context()
        return context or cast("ssl.SSLContext", self._default)

    async def _socket(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        """Returns a connected socket: to the last address that answered, or the first that does."""
        peer = self._proxy or self._server
        host, port = peer.hostname or "", port_of(peer)
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found.sort(key=lambda each: each[4] != self._last_address)
        for number, info in enumerate(found, 1):
            made = new_socket(info[0])
            try:
                share = self._connect_timeout / 2 if number < len(found) else None
                async with asyncio.timeout(share):
                    await loop.sock_connect(made, info[4])
            except (OSError, TimeoutError):
                made.close()
                if number == len(found):
                    raise
            except BaseException:
                made.close()
                raise
            else:
                self._last_address = info[4]
                return made
        raise OSError(f"{host} has no address")


class _Tunnel(asyncio.Protocol):
    """Waits for the answer of a proxy to CONNECT."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self.opened.done():
            return
        if b"\r\n\r\n" in self._head:
            self._judge()
        elif len(self._head) > LONGEST_HEAD:
            self.opened.set_exception(ProxyRefused("its answer is not HTTP"))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- the protocol's
        if not self.opened.done():
            self.opened.set_exception(ProxyRefused("it closed the connection"))

    def _judge(self) -> None:
        line, _, _ = self._head.partition(b"\r\n")
        version, _, rest = line.decode("utf-8", "replace").partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or not code.isdecimal():
            self.opened.set_exception(ProxyRefused("its answer is not HTTP"))
        elif int(code) != _CONNECTED:
            printable = "".join(each for each in rest[:100] if each.isprintable())
            self.opened.set_exception(ProxyRefused(printable))
        else:
            self.opened.set_result(None)


async def _asked_again(connection: Connection, sent: Sent, text: bytes) -> Answer | None:
    """Use a connection that was used before. Returns None if the request can be sent again."""
    try:
        return await _asked(connection, sent, text)
    except Closed as error:
        if error.heard or not (sent.reads or sent.method in READS):
            raise
        return None


async def _asked(connection: Connection, sent: Sent, text: bytes) -> Answer:
    try:
        if sent.guard:  # connecting may have taken its time
            sent.guard()
        return await connection.ask(
            text,
            has_body=sent.method != "HEAD",
            timeout=sent.timeout,
            idle=sent.idle_timeout,
        )
    except BaseException:
        connection.abort()
        raise


def _proxy_authorization(proxy: SplitResult) -> Iterable[str]:
    if proxy.username is None and proxy.password is None:
        return ()
    pair = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}"
    return (f"Proxy-Authorization: Basic {b64encode(pair.encode()).decode()}",)


def host_of(server: SplitResult) -> str:
    """Returns host and port of a server, without user, as the header `Host` has them."""
    return server.netloc.rpartition("@")[2]


def port_of(server: SplitResult) -> int:
    return server.port or _PORTS[server.scheme]


def new_socket(family: int) -> socket.socket:
    """Returns a socket on which the system finds dead peers."""
    made = socket.socket(family, socket.SOCK_STREAM)
    made.settimeout(0)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, option):  # not all systems have all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
