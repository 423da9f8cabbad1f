"""A server with a handler that notes requests, and clients without a network."""

import asyncio
from collections.abc import Awaitable, Callable

from pileus.http.messages import Request, Response
from pileus.http.server import Connection, Server
from tests.unit.http.client import Client

LIMIT = 1000
GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


class Site:
    """A server that answers with what it was asked, and the requests that reached its handler."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []
        self.answer: Callable[[Request], Awaitable[Response]] = self.echo
        self.server = Server(self._handle)

    async def _handle(self, request: Request) -> Response:
        return await self.answer(request)

    async def echo(self, request: Request) -> Response:
        body = await request.read(LIMIT)
        self.seen.append((request.method, request.path, body))
        return Response(200, request.path.encode() + b"\n", {"Content-Type": "text/plain"})

    def connect(self) -> tuple[Client, Connection]:
        client, connection = Client(), self.server()
        connection.connection_made(client)
        return client, connection

    async def exchange(self, *pieces: bytes) -> Client:
        """Send these one after another."""
        client, connection = self.connect()
        for piece in pieces:
            connection.data_received(piece)
            await asyncio.sleep(0.01)
        return client


def sent(method: str = "POST", *headers: str, body: bytes = b"") -> bytes:
    lines = (f"{method} /a HTTP/1.1", "Host: x", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


CHUNKED = sent("POST", "Transfer-Encoding: chunked")
