"""A real HTTPS server, and a CONNECT proxy, on loopback, for the tests beside this file."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from pileus.pki import Authority, KeyPair, Subject

NOW = datetime.now(UTC)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Pass:
    """Credentials whose every part a test can change."""

    context: ssl.SSLContext | None
    token: str = "first"
    renewed: str = "second"
    rejections: int = 0

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def tls(self) -> ssl.SSLContext | None:
        return self.context

    def rejected(self) -> None:
        self.rejections += 1
        self.token = self.renewed


class Trust:
    """An authority, and TLS contexts made from it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = Authority("test-ca", now=NOW)

    def client(self, name: str = "client") -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority.certificate.decode())
        return self._loaded(context, self.authority.issue(Subject(common_name=name), now=NOW))

    def server(self, *names: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_verify_locations(cadata=self.authority.certificate.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        subject = Subject(common_name="server", names=names)
        return self._loaded(context, self.authority.issue(subject, now=NOW))

    def _loaded(self, context: ssl.SSLContext, pair: KeyPair) -> ssl.SSLContext:
        file = self._folder / "pair.pem"
        file.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(file)
        return context


@dataclass
class Served:
    url: str
    requests: list[web.Request] = field(default_factory=list[web.Request])


@asynccontextmanager
async def serving(handler: Handler, context: ssl.SSLContext | None) -> AsyncGenerator[Served]:
    """Serve every path with `handler`; the port is free again after the block."""
    served = Served("")

    async def answer(request: web.Request) -> web.StreamResponse:
        served.requests.append(request)
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    served.url = f"{'https' if context else 'http'}://127.0.0.1:{port}"
    try:
        yield served
    finally:
        await runner.cleanup()


@asynccontextmanager
async def proxying(seen: list[str]) -> AsyncGenerator[str]:
    """A proxy that knows CONNECT and notes where to."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        seen.append(target)
        host, port = target.rsplit(":", 1)
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        async with asyncio.TaskGroup() as group:
            group.create_task(_pipe(reader, there_writer))
            group.create_task(_pipe(there_reader, writer))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
