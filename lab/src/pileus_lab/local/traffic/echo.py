"""An instance at its node ports: an HTTP, line and datagram echo that names the instance."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import cast

from pileus.cloud.balancer import Transport
from pileus_lab.local.traffic import proxy_protocol
from pileus_lab.local.traffic.desired import Answering
from pileus_lab.local.traffic.sockets import Wires, server_at

LONGEST = 64 * 1024


class Echo:
    """One open node port."""

    def __init__(self, answering: Answering, wires: Wires, tasks: asyncio.TaskGroup) -> None:
        self.answering = answering
        self._wires = wires
        self._tasks = tasks
        self._server: asyncio.Server | asyncio.DatagramTransport | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._is_retired = False

    async def open(self) -> None:
        """Raises `OSError` if the port is not available."""
        place = self.answering.place
        bound = self._wires.at_instance(place)
        if place.transport is Transport.UDP:
            loop = asyncio.get_running_loop()
            self._server, _ = await loop.create_datagram_endpoint(
                lambda: _Datagrams(self), sock=bound
            )
        else:
            self._server = await server_at(bound, self._connected, longest_line=LONGEST)
            await self._server.start_serving()

    @property
    def is_talking(self) -> bool:
        return bool(self._open)

    def retire(self) -> None:
        """Accepts no more connections; existing ones continue."""
        self._is_retired = True
        if self._server:
            self._server.close()

    def cut(self) -> None:
        """Closes everything at once, as when the machine is switched off."""
        self.retire()
        for writer in self._open:
            writer.transport.abort()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_retired:  # accepted just before
            writer.transport.abort()
            return
        self._open.add(writer)
        self._tasks.create_task(self._converse(reader, writer))

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
                await _Conversation(self, reader, writer).hold()
        finally:
            self._open.discard(writer)
            writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    """Answers each datagram with the instance's name and the data."""

    def __init__(self, echo: Echo) -> None:
        self._echo = echo
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self._transport and data:  # an empty one is a health check
            self._transport.sendto(self._echo.answering.instance.encode() + b" " + data, addr)


@dataclass(slots=True)
class _Request:
    method: str
    path: str
    keeps: bool
    """Whether the client will send another request on the same connection."""
    length: int


class _Conversation:
    """One connection: HTTP requests, or lines."""

    def __init__(
        self, echo: Echo, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._echo = echo
        self._reader = reader
        self._writer = writer
        host, port = writer.get_extra_info("peername")[:2]
        self._client: tuple[str, int] = (host.removeprefix("::ffff:"), port)

    async def hold(self) -> None:
        line = await self._first_line()
        while line:
            words = line.decode("latin-1").split()
            if len(words) == 3 and words[2].startswith("HTTP/1."):  # noqa: PLR2004
                if not await self._answer(words):
                    return
            else:
                self._writer.write(self._echo.answering.instance.encode() + b" " + line)
                await self._writer.drain()
            line = await self._reader.readline()

    async def _first_line(self) -> bytes:
        """Returns the first line, without a PROXY header before it."""
        start = await self._reader.read(len(proxy_protocol.SIGNATURE))
        while start:
            try:
                decoded = proxy_protocol.decode(start)
            except ValueError:
                break
            if decoded is not None:
                self._client = decoded.peers.client if decoded.peers else self._client
                start = decoded.rest
                break
            more = await self._reader.read(1)
            if not more:
                break
            start += more
        return start if start.endswith(b"\n") else start + await self._reader.readline()

    async def _answer(self, words: list[str]) -> bool:
        request = await self._request(words)
        await self._reader.readexactly(request.length)
        answering = self._echo.answering
        path = request.path.partition("?")[0]
        if path in answering.health_paths:
            status = "503 Service Unavailable" if answering.is_failing else "200 OK"
            body = "no endpoints\n" if answering.is_failing else "ok\n"
        else:
            status, body = "200 OK", self._told(request)
        text = "" if request.method == "HEAD" else body
        ending = "keep-alive" if request.keeps else "close"
        self._writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nX-Instance: {answering.instance}\r\n"
            f"Content-Length: {len(body.encode())}\r\nConnection: {ending}\r\n\r\n{text}".encode()
        )
        await self._writer.drain()
        return request.keeps

    async def _request(self, words: list[str]) -> _Request:
        fields: dict[str, str] = {}
        while (line := await self._reader.readline()).strip():
            name, _, value = line.decode("latin-1").partition(":")
            fields[name.strip().lower()] = value.strip()
        keeps = fields.get("connection", "").lower() != "close" and words[2] == "HTTP/1.1"
        length = int(fields.get("content-length", "0"))
        return _Request(words[0], words[1], keeps, length)

    def _told(self, request: _Request) -> str:
        host, port = self._client
        client = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return (
            f"{self._echo.answering.instance}\n"
            f"node port {self._echo.answering.node_port}\n"
            f"client {client}\n"
            f"{request.method} {request.path}\n"
        )
