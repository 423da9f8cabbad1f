"""An HTTP/1.1 server.

    bytes ──▶ head, checked ──▶ handler, which may read the body ──▶ response ──▶ next request

A connection handles one request at a time. Each phase has a deadline and a bound on its size, so
that a client cannot hold a connection, memory or the end of the server for long.
"""

import asyncio
import contextlib
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import cast

import h11

from pileus.clock import Clock, SystemClock
from pileus.http.messages import (
    END_OF_HEAD,
    LONGEST_HEAD,
    BadRequest,
    Refused,
    Request,
    Response,
    check_beginning,
    parse_head,
    render,
)
from pileus.telemetry.log import Log

log = Log(__name__)

HANDSHAKE = 10
"""Seconds for a TLS handshake."""
HEADERS = 32.0
"""Seconds for all headers of a request, from its first byte or the start of the connection."""
IDLE = 90.0
"""Seconds that a connection may stay open between two requests."""
BODY = 32.0
"""Seconds for the body of a request, from when the handler asks for it."""
TAKEN = 32.0
"""Seconds in which a client has to take a response."""
LINGER = 5.0
"""Seconds in which a client may send the rest of a request that was answered without it."""
READ_SIZE = 2**16
"""Bytes that are read at a time, and bytes that may wait while a request is handled."""
MOST_CONNECTIONS = 500
"""With more, the one that has been in its TLS handshake for the longest time is closed, or else the
one that has waited for a request for the longest time."""
MOST_HELD = 64 << 20
"""Bytes of all bodies in memory. A request whose body would exceed it is refused."""
SMALLEST_COMPRESSED = 1024
"""Bytes of a body that is worth compressing."""

Handler = Callable[[Request], Awaitable[Response]]


def plain(text: str, status: int) -> Response:
    """Returns a response of one text."""
    kind = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
    return Response(status, text.encode(), kind)


class Connection(asyncio.BufferedProtocol):
    """One client. Its bytes wait here until they belong to the request that is handled."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self.transport = cast("asyncio.Transport", None)
        self.remote = ""
        self.task: asyncio.Task[None] | None = None
        """Handles a request; None while the connection waits for one."""
        self._protocol = h11.Connection(h11.SERVER)
        self._buffer = bytearray()
        self._searched = 0
        """Bytes at the start of the buffer in which there is no end of a head."""
        self._has_begun = True
        """Whether the time for headers is running."""
        self._held = 0
        """Bytes of the body in memory, until the request is answered."""
        self._is_open = True
        self._is_lingering = False
        self._is_reading = True
        self._is_writable = True
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None

    # The protocol, called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        peer: object = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.remote = str(cast("tuple[object, ...]", peer)[0])
        self._close_after(HEADERS)
        self._server.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- the protocol's
        """Shared by all connections: what is read is taken out of it at once."""
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._server.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        if self._is_lingering or not self._is_open:
            return
        self._buffer += data
        if self.task is None:
            self._take_head()
        elif len(self._buffer) > READ_SIZE and self._is_reading:
            self._is_reading = False
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- the protocol's
        self._is_open = False
        self._stop_timer()
        self._server.forget(self)
        self._wake()

    # One request after another.

    def _take_head(self) -> None:
        """Start the next request if its head is complete."""
        while self._buffer.startswith(b"\r\n"):  # allowed before a request line
            del self._buffer[:2]
        if self._buffer and not self._has_begun:
            self._has_begun = True
            self._close_after(HEADERS)
        try:
            request = self._next_request()
        except BadRequest as error:
            log.info("Bad request", v=2, source=self.remote, err=str(error))
            self._refuse("400 Bad Request\n")
            return
        if request is not None:
            self._stop_timer()
            self.task = self._loop.create_task(self._serve(request))

    def _next_request(self) -> Request | None:
        """Returns the next request if its head is complete. Raises `BadRequest`."""
        end = self._buffer.find(END_OF_HEAD, max(self._searched - len(END_OF_HEAD), 0))
        if end < 0:
            check_beginning(self._buffer, self._searched)
            self._searched = len(self._buffer)
            if len(self._buffer) > LONGEST_HEAD:
                raise BadRequest("the head is too long")
            return None
        end += len(END_OF_HEAD)
        head = bytes(self._buffer[:end])
        del self._buffer[:end]
        self._searched = 0
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=LONGEST_HEAD)
        return Request(parse_head(self._protocol, head), self)

    async def _serve(self, request: Request) -> None:
        try:
            await self._exchange(request)
        except Exception as error:  # a bug here must not leave a connection without a deadline
            log.exception("A connection failed", error=error, method=request.method)
            self.transport.abort()

    async def _exchange(self, request: Request) -> None:
        try:
            response = await self._answer(request)
        finally:
            self._server.held -= self._held
            self._held = 0
        is_whole = self._skip_body()
        response.closes = response.closes or not is_whole or self._server.is_closing
        if response.compresses and request.accepts_gzip:
            await _compress(response)
        if not self._is_open:
            return
        self.transport.write(self._rendered(request, response))
        await self._written()
        if not self._is_open:
            return
        if response.closes or self._protocol.our_state is not h11.DONE:
            self._hang_up(lingers=not is_whole)
            return
        self.task, self._has_begun = None, False
        self._server.waits(self)
        self._close_after(IDLE)
        self._resume_reading()
        if self._buffer:
            self._take_head()

    async def _answer(self, request: Request) -> Response:
        if request.headers.get("Expect", "100-continue").lower() != "100-continue":
            return plain("417 Expectation Failed\n", HTTPStatus.EXPECTATION_FAILED)
        try:
            return await self._server.handler(request)
        except Refused as refusal:
            return plain(f"{refusal}\n", refusal.status)
        except Exception as error:  # a bug in one handler must not stop the server
            log.exception("A request failed", error=error, method=request.method)
            return plain("internal error; see the log\n", HTTPStatus.INTERNAL_SERVER_ERROR)

    def _rendered(self, request: Request, response: Response) -> bytes:
        try:
            return render(self._protocol, response, method=request.method, now=self._server.now())
        except h11.LocalProtocolError as error:
            log.exception("A response is invalid", error=error, method=request.method)
            return self._failure("internal error; see the log\n", 500)

    # The body of the request.

    async def read_body(self, limit: int) -> bytes:
        """Returns the whole body. Raises `Refused`."""
        if self._protocol.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[], reason="Continue")
            self.transport.write(self._protocol.send(go_on) or b"")
        try:
            async with asyncio.timeout(BODY):
                return await self._whole_body(limit)
        except TimeoutError:
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, "the body came too slowly") from None

    async def _whole_body(self, limit: int) -> bytes:
        parts: list[bytes] = []
        while part := await self._next_part():
            parts.append(part)
            self._held += len(part)
            self._server.held += len(part)
            if self._held > limit:
                too_large = f"the body has more than {limit} bytes"
                raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, too_large)
            if self._server.held > MOST_HELD:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests with bodies")
        return b"".join(parts)

    async def _next_part(self) -> bytes:
        """Returns the next part of the body; b"" at its end. Raises `Refused`."""
        while True:
            match self._body_event():
                case h11.Data(data=data):
                    return bytes(data)
                case h11.NEED_DATA:
                    await self._wait()
                case _:
                    return b""

    def _body_event(self) -> object:
        """Returns what h11 makes of the bytes that have come. Raises `Refused`."""
        if self._protocol.their_state is not h11.SEND_BODY:
            return None
        if self._buffer:
            self._protocol.receive_data(bytes(self._buffer))
            self._buffer.clear()
            self._resume_reading()
        try:
            event = self._protocol.next_event()
        except h11.RemoteProtocolError as error:
            log.info("Bad request", v=2, source=self.remote, err=str(error))
            raise Refused(HTTPStatus.BAD_REQUEST, "400 Bad Request: invalid body") from error
        if isinstance(event, h11.EndOfMessage):
            self._buffer[:0] = self._protocol.trailing_data[0]
        if event is h11.NEED_DATA and not self._is_open:
            raise Refused(HTTPStatus.BAD_REQUEST, "the connection was closed")
        return event

    def _skip_body(self) -> bool:
        """Drop what has come of the body. Returns whether nothing more of it will come."""
        if self._protocol.they_are_waiting_for_100_continue:
            return False
        with contextlib.suppress(Refused):
            while isinstance(self._body_event(), h11.Data):
                pass
        return self._protocol.their_state not in {h11.SEND_BODY, h11.ERROR}

    # The end of a connection.

    def close(self) -> None:
        """Close the connection once its last bytes are sent, or are not taken."""
        self._is_lingering = True
        self.transport.close()
        self._stop_timer()
        if self._is_open:
            self._timer = self._loop.call_later(LINGER, self.transport.abort)

    def _refuse(self, text: str) -> None:
        self.transport.write(self._failure(text, HTTPStatus.BAD_REQUEST))
        self._hang_up(lingers=True)

    def _failure(self, text: str, status: int) -> bytes:
        response = plain(text, status)
        response.closes = True
        now = self._server.now()
        return render(h11.Connection(h11.SERVER), response, method="GET", now=now)

    def _hang_up(self, *, lingers: bool) -> None:
        """Close the connection; after a while if bytes on their way would reset it."""
        self._buffer.clear()
        self._resume_reading()
        if lingers and self._is_open:
            self._is_lingering = True
            self._close_after(LINGER)
        else:
            self.close()

    # Waiting.

    def _close_after(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _written(self) -> None:
        """Wait until the client has taken the response, or too long."""
        try:
            async with asyncio.timeout(TAKEN):
                while self._is_open and not self._is_writable:
                    await self._wait()
        except TimeoutError:
            self.transport.abort()

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _resume_reading(self) -> None:
        if not self._is_reading and self._is_open:
            self._is_reading = True
            self.transport.resume_reading()


class Server:
    """Creates a `Connection` for each client, and calls `handler` with each request."""

    def __init__(self, handler: Handler, clock: Clock | None = None) -> None:
        self.handler = handler
        self.now = (clock or SystemClock()).now
        self.buffer = memoryview(bytearray(READ_SIZE))
        self.is_closing = False
        self.held = 0
        """Bytes of the bodies of all requests that are being read and handled."""
        self._connections: dict[Connection, None] = {}
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._accepting: asyncio.Task[None] | None = None
        self._listening: asyncio.Server | None = None

    def __call__(self) -> Connection:
        return Connection(self)

    async def start(self, listener: socket.socket, context: ssl.SSLContext | None = None) -> None:
        """Accept connections of a listening socket; without a context, by plain HTTP."""
        loop = asyncio.get_running_loop()
        if context is None:
            self._listening = await loop.create_server(self, sock=listener)
        else:
            listener.settimeout(0)
            self._accepting = loop.create_task(self._accept(listener, context))

    async def _accept(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        """The loop's own server would not say which connections are in their handshake."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as error:  # such as too many open files
                log.warning("Cannot accept a connection", err=error)
                await asyncio.sleep(1)
                continue
            task = loop.create_task(self._shake(client, context))
            self._handshakes[task] = None
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))
            self._make_room(len(self._connections) + len(self._handshakes))
            await asyncio.sleep(0)  # it begins, so that it closes its socket when it is cancelled

    async def _shake(self, client: socket.socket, context: ssl.SSLContext) -> None:
        """A handshake that fails, or is cancelled to make room, concerns no one but its client."""
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                self, client, ssl=context, ssl_handshake_timeout=HANDSHAKE
            )

    async def close(self, patience: float) -> None:
        """Accept nothing more, and end all connections; requests have `patience` seconds."""
        self.is_closing = True
        if self._listening is not None:
            self._listening.close()
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.sleep(0)
        for task in tuple(self._handshakes):
            task.cancel()
        for connection in tuple(self._connections):
            if connection.task is None:
                connection.close()
        tasks = {each.task for each in self._connections if each.task is not None}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=patience)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await asyncio.sleep(0)  # for connections that are closing
        for connection in tuple(self._connections):
            connection.transport.abort()
        await asyncio.sleep(0)

    def add(self, connection: Connection) -> None:
        self._connections[connection] = None
        if self.is_closing:
            connection.transport.abort()
        else:
            is_secured = connection.transport.get_extra_info("sslcontext") is not None
            others = len(self._handshakes) - is_secured  # its own is about to end
            self._make_room(len(self._connections) + max(others, 0))

    def _make_room(self, count: int) -> None:
        """Close a connection if there are too many. One that is handling a request stays."""
        if count <= MOST_CONNECTIONS:
            return
        if self._handshakes:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
            return
        waiting = (each for each in self._connections if each.task is None)
        next(waiting, next(reversed(self._connections))).transport.abort()

    def waits(self, connection: Connection) -> None:
        """The connection waits for its next request: it is the last to be closed."""
        self._connections[connection] = self._connections.pop(connection, None)

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)


async def _compress(response: Response) -> None:
    if len(response.body) < SMALLEST_COMPRESSED:
        return
    response.body = await asyncio.to_thread(_gzipped, response.body)
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"


def _gzipped(body: bytes) -> bytes:
    work = zlib.compressobj(wbits=31)  # the format of gzip
    return work.compress(body) + work.flush()
