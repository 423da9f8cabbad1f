"""One connection of the port: how long a request may take to arrive, and how a bad one is refused.

Request bodies are never decompressed, and answers do not name the server's software.
"""

import asyncio
from http import HTTPStatus

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from pileus.server import answer
from pileus.telemetry.log import Log

IDLE = 90.0
"""Seconds that a connection may stay open between two requests."""
HEADERS = 32.0
"""Seconds for all headers of a request, from its first byte or the start of the connection."""

log = Log(__name__)


class Request(web.BaseRequest):
    """A request whose answer has no `Server` header."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        response.headers.pop(hdrs.SERVER, None)


class Connection(RequestHandler):
    """Closes itself when the headers of a request do not arrive in time."""

    __slots__ = ("_headers_due",)

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own way to switch it off
            keepalive_timeout=IDLE,
            auto_decompress=False,
        )
        self._headers_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        before = self._request_count
        super().data_received(data)
        if self._request_count > before:
            self._stop_waiting()
        elif not self._request_in_progress:
            self._expect_headers()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Refuse what is not HTTP in one log line; anything else here is a bug."""
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        log.info("Bad request", v=2, source=request.remote, err=type(exc).__name__)
        response = answer.text("400 Bad Request\n", status=HTTPStatus.BAD_REQUEST)
        response.force_close()
        return response

    def _expect_headers(self) -> None:
        if self._headers_due is None:
            self._headers_due = self._loop.call_later(HEADERS, self._close_if_waiting)

    def _stop_waiting(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _close_if_waiting(self) -> None:
        self._headers_due = None
        if self._waiter is not None:
            self.force_close()


class Server(web.Server):
    """Makes a `Connection` for each client."""

    def __call__(self) -> RequestHandler:
        return Connection(self, self._loop)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        return Request(message, payload, protocol, writer, task, self._loop)
