"""One connection of the HTTP client, and the answers that come over it."""

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from http import HTTPStatus
from itertools import islice
from typing import Protocol, cast

from multidict import CIMultiDict

LONGEST_HEAD = 64 * 1024
"""Bytes of the status line and all headers of an answer."""
READ_SIZE = 2**16
"""Bytes that are read at a time."""
READ_AHEAD = 2**18
"""Bytes of a body that are read ahead; more means fewer pauses with many events."""

_NO_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = re.compile(r"[0-9]{1,15}")
_CHUNK_LENGTH = re.compile(rb"[0-9A-Fa-f]{1,15}")
_SUCCESS = 200


class NotConnected(OSError):
    """There is no connection, and nothing was sent. The cause says why."""


class ProxyRefused(NotConnected):
    """The proxy does not connect us; the text says why."""


class ConnectTimeout(TimeoutError):
    """There is no connection in time, and nothing was sent."""


class Silent(TimeoutError):
    """No byte came for too long."""


class Closed(ConnectionError):
    """The server closed the connection before or in the middle of its answer."""

    def __init__(self, text: str, *, heard: bool) -> None:
        super().__init__(text)
        self.heard = heard
        """Whether a part of the answer came."""


class NotHttp(ConnectionError):
    """The answer is not HTTP."""


class TooMuch(Exception):
    """The body of an answer has more bytes than the caller takes."""


class Answer:
    """The answer to one request: its head, and its body as it comes."""

    def __init__(self, connection: "Connection", head: bytes, *, has_body: bool) -> None:
        """Raises `NotHttp`."""
        lines = head.decode("utf-8", "surrogateescape").split("\r\n")
        version, _, rest = lines[0].partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or not code.isdecimal():
            raise NotHttp("the answer is not HTTP/1.1")
        self.status = int(code)
        self.headers: CIMultiDict[str] = CIMultiDict(_headers(lines))
        self._connection = connection
        self._is_released = False
        self.is_chunked, self.length = self._framing(has_body)
        options = self.headers.get("Connection", "").lower()
        self.keeps_alive = version == "HTTP/1.1" and "close" not in options

    def _framing(self, has_body: bool) -> tuple[bool, int | None]:  # noqa: FBT001 -- private
        """Returns whether the body comes in chunks, and its length if that is known."""
        if not has_body or self.status in _NO_BODY or self.status < _SUCCESS:
            return False, 0
        if codings := self.headers.getall("Transfer-Encoding", ()):
            if [each.strip().lower() for each in codings] != ["chunked"]:
                raise NotHttp("the answer has a Transfer-Encoding other than chunked")
            return True, None
        lengths = set(self.headers.getall("Content-Length", ()))
        if not lengths:
            return False, None
        if len(lengths) > 1 or not _LENGTH.fullmatch(length := lengths.pop().strip()):
            raise NotHttp("the answer has no valid Content-Length")
        return False, int(length)

    async def read(self, limit: int) -> bytes:
        """Returns the whole body. Raises `Closed`, `TimeoutError`, `NotHttp`.

        Raises `TooMuch` as soon as it has more than `limit` bytes.
        """
        parts: list[bytes] = []
        size = 0
        while part := await self._connection.next_part():
            parts.append(part)
            size += len(part)
            if size > limit:
                self.close()
                raise TooMuch
        return b"".join(parts)

    async def chunks(self, gather: float = 0.0) -> AsyncIterator[bytes]:
        """The body as it comes in, cut anywhere. Raises `Closed`, `TimeoutError`, `NotHttp`.

        What comes within `gather` seconds after a part is one part, unless it is a lot: a stream of
        many small parts does not wake the process for each of them.
        """
        while chunk := await self._connection.next_part():
            yield chunk
            if gather:
                await self._connection.gather(gather)

    def release(self) -> None:
        """The caller has read what it needs. A connection with more to come is closed."""
        if not self._is_released:
            self._is_released = True
            self._connection.release()

    def close(self) -> None:
        """Read nothing more."""
        if not self._is_released:
            self._is_released = True
            self._connection.abort()


class _Chunks:
    """Takes the payload out of a chunked body."""

    def __init__(self) -> None:
        self._line = b""
        self._left = 0
        self._is_data = self._is_trailer = False
        self.is_whole = False
        self.rest = b""
        """What follows the whole body."""

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Returns the payload. Raises `NotHttp`."""
        position, end = 0, len(data)
        while position < end and not self.is_whole:
            if self._is_data:
                part = data[position : position + self._left]
                position += len(part)
                self._left -= len(part)
                self._is_data = self._left > 0
                yield part
                continue
            newline = data.find(b"\n", position)
            if newline < 0:
                self._line += data[position:]
                self._check_length()
                return
            line, self._line = self._line + data[position:newline], b""
            position = newline + 1
            self._take(line.strip())
        self.rest = data[position:]

    def _check_length(self) -> None:
        if len(self._line) > LONGEST_HEAD:
            raise NotHttp("the answer has a chunk without an end")

    def _take(self, line: bytes) -> None:
        """Take a line between two chunks: a length, the empty one after data, or a trailer."""
        if self._is_trailer:
            self.is_whole = not line
            return
        if not line:
            return
        length = line.partition(b";")[0].strip()
        if not _CHUNK_LENGTH.fullmatch(length):  # int() takes signs, 0x and underscores
            raise NotHttp("the answer has a chunk without a length")
        self._left = int(length, 16)
        self._is_data, self._is_trailer = self._left > 0, self._left == 0


class Pool(Protocol):
    """What keeps connections that are not used."""

    @property
    def buffer(self) -> memoryview: ...
    def keep(self, connection: "Connection") -> None: ...
    def forget(self, connection: "Connection") -> None: ...


class Connection(asyncio.BufferedProtocol):
    """One connection, which carries one request at a time."""

    def __init__(self, pool: Pool, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.idle_since = 0.0
        self.is_open = True
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", None)
        self._buffer = bytearray()
        self._answer: Answer | None = None
        self._chunks: _Chunks | None = None
        self._left: int | None = 0
        """Bytes of the body that are still to come; None: unknown."""
        self._parts: list[bytes] = []
        self._size = 0
        self._is_whole = True
        self._is_paused = False
        self._has_body = True
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._last_byte = 0.0

    async def ask(
        self, text: bytes, *, has_body: bool, timeout: float | None, idle: float | None
    ) -> Answer:
        """Send a request and return its answer, with the body to come."""
        if not self.is_open:
            raise NotConnected from ConnectionResetError(errno.ECONNRESET, "")
        self._is_whole, self._has_body, self._answer, self._chunks = False, has_body, None, None
        if timeout is not None:
            late = self._loop.call_later(timeout, self._fail, TimeoutError())
            self._timers.append(late)
        if idle is not None:
            self._last_byte = self._loop.time()
            self._timers.append(self._loop.call_later(idle, self._check_silence, idle))
        self._transport.write(text)
        while self._answer is None:
            await self._wait()
        return self._answer

    async def next_part(self) -> bytes:
        """Returns what came of the body since the last part; b"" at its end."""
        while not self._parts:
            if self._is_whole:
                return b""
            await self._wait()
        part = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return part

    async def gather(self, seconds: float) -> None:
        """Wait for so long, until `READ_SIZE` bytes came, or until the body ends."""
        if self._is_whole or self._error is not None or self._size >= READ_SIZE:
            return
        self._wake_for(READ_SIZE)
        timer = self._loop.call_later(seconds, self._wake)
        try:
            await self._wait()
        finally:
            timer.cancel()
            self._wake_for(1)

    def _wake_for(self, size: int) -> None:
        """Let the system wake the process when so many bytes came, or the connection ends."""
        used = self._transport.get_extra_info("socket")
        if used is not None:
            with suppress(OSError):  # it is closed, or the system cannot do that
                used.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def release(self) -> None:
        self._stop_timers()
        answer, self._answer = self._answer, None
        is_usable = self._is_whole and self._error is None and not self._buffer
        if answer is None or not (is_usable and answer.keeps_alive and self.is_open):
            self.abort()
            return
        self._parts.clear()
        self._size = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        self.idle_since = self._loop.time()
        self._pool.keep(self)

    def abort(self) -> None:
        """Close the connection at once."""
        self._stop_timers()
        self.is_open = False
        self._pool.forget(self)
        if self._transport is not None:  # pyright: ignore[reportUnnecessaryComparison]
            self._transport.abort()

    def close(self) -> None:
        """Close an idle connection."""
        self.is_open = False
        self._transport.close()

    # The protocol, called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- the protocol's
        """Shared by all connections: what is read is taken out of it at once."""
        return self._pool.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received(bytes(self._pool.buffer[:nbytes]))

    def _received(self, data: bytes) -> None:
        self._last_byte = self._loop.time()
        if self._is_whole:  # nothing was asked
            self.abort()
            return
        try:
            self._receive(data)
        except NotHttp as error:
            self._fail(error)
        self._wake()

    def eof_received(self) -> bool:
        self.is_open = False  # with TLS, `connection_lost` follows some turns of the loop later
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._pool.forget(self)
        if self._is_whole or self._error is not None:
            return
        if self._answer is not None and self._left is None and self._chunks is None and not exc:
            self._is_whole = True  # the body ends with the connection
        else:
            where = "exchange" if self._answer is None else "answer"
            heard = self._answer is not None or bool(self._buffer)
            text = f"it closed the connection in the middle of the {where}"
            self._error = Closed(text, heard=heard)
        self._wake()

    def _receive(self, data: bytes) -> None:
        if self._answer is None:
            self._buffer += data
            data = self._take_head()
        if self._answer is not None and data:
            self._take_body(data)

    def _take_head(self) -> bytes:
        """Take the head out of the buffer, and return what follows it. Raises `NotHttp`."""
        while (end := self._buffer.find(_END_OF_HEAD)) >= 0:
            head = bytes(self._buffer[:end])
            rest = bytes(self._buffer[end + len(_END_OF_HEAD) :])
            self._buffer.clear()
            answer = Answer(self, head, has_body=self._has_body)
            if answer.status < _SUCCESS:  # such as 100: the answer itself follows
                self._buffer += rest
                continue
            self._answer, self._left = answer, answer.length
            self._chunks = _Chunks() if answer.is_chunked else None
            self._is_whole = self._left == 0
            if self._is_whole:
                self._buffer += rest  # nothing should follow; such a connection is not used again
                return b""
            return rest
        if len(self._buffer) > LONGEST_HEAD:
            raise NotHttp("the answer has too long headers")
        return b""

    def _take_body(self, data: bytes) -> None:
        if self._chunks is not None:
            for part in self._chunks.feed(data):
                self._add(part)
            self._is_whole = self._chunks.is_whole
            self._buffer += self._chunks.rest  # such a connection is not used again
            return
        if self._left is not None:
            if len(data) > self._left:
                self._buffer += data[self._left :]
                data = data[: self._left]
            self._left -= len(data)
            self._is_whole = self._left == 0
        self._add(data)

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > READ_AHEAD and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _check_silence(self, idle: float) -> None:
        left = self._last_byte + idle - self._loop.time()
        if left > 0 or self._is_paused:  # a reader that is slow is not a silent server
            self._timers[-1] = self._loop.call_later(max(left, 1.0), self._check_silence, idle)
        else:
            self._fail(Silent())

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self.abort()
        self._wake()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._error is not None and not self._parts:
            raise self._error

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


def _headers(lines: list[str]) -> list[tuple[str, str]]:
    """Returns the names and values of all lines but the first. Raises `NotHttp`."""
    found: list[tuple[str, str]] = []
    for line in islice(lines, 1, None):
        name, separator, value = line.partition(":")
        if not separator or not name or name != name.strip():
            raise NotHttp("the answer has an invalid header")
        found.append((name, value.strip(" \t")))
    return found
