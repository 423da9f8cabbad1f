"""Proxies: tunnels for HTTPS, forwarded requests for HTTP, and what they refuse."""

import asyncio
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from aiohttp import web

from pileus.http.client import Client, Sent
from pileus.http.connection import ConnectTimeout, NotConnected, ProxyRefused
from tests.unit.kube.https_server import Trust, serving

pytestmark = pytest.mark.real_time

GET = Sent(method="GET", target="/a?b=c", headers=[("X-Secret", "for the server")])
AUTHORIZATION = b"Proxy-Authorization: Basic " + b64encode(b"us er:pa:ss")
LIMIT = 10.0


class Proxy:
    """Opens tunnels, or answers with something else."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.answer = answer
        self.heads: list[bytes] = []
        self._open: list[asyncio.Event] = []

    @asynccontextmanager
    async def serving(self, context: ssl.SSLContext | None = None) -> AsyncGenerator[str]:
        """The URL of the proxy, with a user, while the block lasts."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        scheme = "https" if context else "http"
        try:
            yield f"{scheme}://us%20er:pa%3Ass@127.0.0.1:{port}"
        finally:
            server.close()
            for closed in self._open:
                await closed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        closed = asyncio.Event()
        self._open.append(closed)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            for start in range(0, len(self.answer), 5):  # as slow networks deliver it
                writer.write(self.answer[start : start + 5])
                await writer.drain()
            if self.answer.startswith(b"HTTP/1.1 200 ") and head.startswith(b"CONNECT"):
                await _joined(head.split()[1].decode(), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            return
        finally:
            writer.close()
            closed.set()


async def _joined(target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    host, _, port = target.rpartition(":")
    there_reader, there_writer = await asyncio.open_connection(host, int(port))
    async with asyncio.TaskGroup() as group:
        group.create_task(_pipe(reader, there_writer))
        group.create_task(_pipe(there_reader, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()


async def answer(_: web.Request) -> web.StreamResponse:
    return web.Response(text="from the server")


@asynccontextmanager
async def client_of(server: str, proxy: str) -> AsyncGenerator[Client]:
    client = Client(server, connect_timeout=LIMIT, proxy=proxy)
    try:
        yield client
    finally:
        await client.close()


async def asked(client: Client, context: ssl.SSLContext | None) -> bytes:
    received = await client.open(GET, context)
    body = b"".join([chunk async for chunk in received.chunks()])
    received.release()
    return body


async def tunnelled(trust: Trust, *, is_secure: bool) -> tuple[Proxy, list[str]]:
    """Ask an HTTPS server twice through a proxy."""
    proxy = Proxy()
    async with (
        serving(answer, trust.server("127.0.0.1")) as served,
        proxy.serving(trust.server("127.0.0.1") if is_secure else None) as url,
        client_of(served.url, url) as client,
    ):
        context = trust.client()
        bodies = [await asked(client, context), await asked(client, context)]
    assert bodies == [b"from the server"] * 2
    return proxy, [str(each.url) for each in served.requests]


@pytest.mark.parametrize("is_secure", [False, True], ids=["http proxy", "https proxy"])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_requests_to_a_server_with_tls_go_through_one_tunnel(
    tmp_path: Path, loop: object, *, is_secure: bool
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        proxy, urls = runner.run(tunnelled(Trust(tmp_path), is_secure=is_secure))

    (head,) = proxy.heads
    target = urls[0].removeprefix("https://").partition("/")[0].encode()
    assert head.startswith(b"CONNECT " + target + b" HTTP/1.1\r\nHost: " + target + b"\r\n")
    assert AUTHORIZATION in head
    assert b"for the server" not in head
    assert [url.partition(target.decode())[2] for url in urls] == ["/a?b=c"] * 2


async def test_the_credentials_of_the_proxy_are_not_sent_through_the_tunnel(tmp_path: Path) -> None:
    trust = Trust(tmp_path)
    async with (
        serving(answer, trust.server("127.0.0.1")) as served,
        Proxy().serving() as url,
        client_of(served.url, url) as client,
    ):
        await asked(client, trust.client())

    assert "Proxy-Authorization" not in served.requests[0].headers


async def test_requests_to_a_server_without_tls_are_forwarded() -> None:
    proxy = Proxy(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nproxy")
    async with proxy.serving() as url, client_of("http://cloud.invalid:8080", url) as client:
        body = await asked(client, None)

    assert body == b"proxy"
    assert proxy.heads[0].startswith(b"GET http://cloud.invalid:8080/a?b=c HTTP/1.1\r\n")
    assert b"\r\nHost: cloud.invalid:8080\r\n" in proxy.heads[0]
    assert AUTHORIZATION in proxy.heads[0]


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\nX: y\r\n\r\n",
            "407 Proxy Authentication Required",
        ),
        (b"HTTP/1.1 502 \x1b[31mBad\r\n\r\n", r"502 \[31mBad"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "its answer is not HTTP"),
        (b"HTTP/1.1 200", "it closed the connection"),
        (b"x" * 70_000, "its answer is not HTTP"),
    ],
    ids=["407", "control characters", "not HTTP", "closed", "endless"],
)
async def test_a_proxy_that_refuses_is_reported_and_nothing_was_sent(
    said: bytes, text: str, tmp_path: Path
) -> None:
    proxy = Proxy(said)
    async with proxy.serving() as url, client_of("https://cloud.invalid", url) as client:
        with pytest.raises(ProxyRefused, match=f"^{text}$"):
            await client.open(GET, Trust(tmp_path).client())

    assert b"for the server" not in proxy.heads[0]


async def test_a_server_behind_a_proxy_has_to_be_trusted(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with (
        serving(answer, Trust(tmp_path).server("127.0.0.1")) as served,
        Proxy().serving() as url,
        client_of(served.url, url) as client,
    ):
        with pytest.raises(NotConnected) as raised:
            await client.open(GET, Trust(tmp_path / "other").client())

    assert isinstance(raised.value.__cause__, ssl.SSLCertVerificationError)
    assert served.requests == []


async def test_a_proxy_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and reads nothing
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = Client("https://cloud.invalid", connect_timeout=0.05, proxy=url)

        with pytest.raises(ConnectTimeout):
            await client.open(GET, Trust(tmp_path).client())

        await client.close()
