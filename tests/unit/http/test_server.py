"""The server is strict about requests, and bounded in time, memory and connections."""

import asyncio
import gzip
import logging
import re
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvloop

from pileus.http import server as module
from pileus.http.messages import (
    Refused,
    Request,
    Response,
)
from pileus.http.server import BODY, IDLE, LINGER, READ_SIZE, TAKEN
from pileus.pki import Subject, self_signed
from tests.unit.http.site import CHUNKED, GET, LIMIT, Site, sent

LAST = 2.0


async def test_requests_of_one_connection_are_answered_one_after_another_in_order() -> None:
    site = Site()
    chunks = (
        CHUNKED.replace(b"/a", b"/b") + b"3\r\none\r\n3;ext=1\r\ntwo\r\n0\r\nTrailer: x\r\n\r\n"
    )
    length = sent("PUT", "Content-Length: 5", body=b"three").replace(b"/a", b"/c")

    client = await site.exchange(GET + chunks + length, b"\r\n" + GET)

    assert site.seen == [
        ("GET", "/a", b""),
        ("POST", "/b", b"onetwo"),
        ("PUT", "/c", b"three"),
        ("GET", "/a", b""),
    ]
    assert re.findall(rb"\n(/.)\n", bytes(client.received)) == [b"/a", b"/b", b"/c", b"/a"]


async def test_pipelined_requests_wait_outside_of_the_process() -> None:
    site = Site()
    paused: list[str] = []

    async def never(_: Request) -> Response:
        await asyncio.sleep(3600)
        return Response()

    site.answer = never
    client, connection = site.connect()
    client.pause_reading = lambda: paused.append("pause")

    connection.data_received(GET)
    await asyncio.sleep(0.01)
    for _ in range(READ_SIZE // len(GET) + 2):
        connection.data_received(GET)

    assert paused == ["pause"]
    connection.connection_lost(None)


async def test_a_head_request_gets_the_headers_alone() -> None:
    client = await Site().exchange(sent("HEAD") + GET)

    assert client.statuses == [200, 200]
    assert client.received.count(b"Content-Length: 3\r\n") == 2
    assert client.received.count(b"/a\n") == 1


async def test_a_client_that_asks_before_it_sends_a_body_is_told_to_go_on() -> None:
    site = Site()
    head = sent("POST", "Expect: 100-continue", "Content-Length: 2")
    client, connection = site.connect()

    connection.data_received(head)
    await asyncio.sleep(0.01)
    first = client.statuses
    connection.data_received(b"ok")
    await asyncio.sleep(0.01)

    assert first == [100]
    assert client.statuses == [100, 200]
    assert site.seen == [("POST", "/a", b"ok")]


async def test_a_body_that_no_one_reads_is_not_asked_for() -> None:
    site = Site()

    async def refuse(_: Request) -> Response:
        return Response(403)

    site.answer = refuse
    head = sent("POST", "Expect: 100-continue", "Content-Length: 30")

    client = await site.exchange(head)
    is_closed_at_once = not client.is_open
    await asyncio.sleep(LINGER)

    assert client.statuses == [403]
    assert b"Connection: close" in client.received
    assert (is_closed_at_once, client.is_open) == (False, False)


async def test_an_unknown_expectation_fails() -> None:
    assert (await Site().exchange(sent("GET", "Expect: miracles"))).statuses == [417]


@pytest.mark.parametrize(
    "body",
    [
        sent("POST", f"Content-Length: {LIMIT + 1}", body=b"x" * (LIMIT + 1)),
        sent("POST", "Content-Length: 999999999999", body=b"x" * (LIMIT + 1)),
        CHUNKED + b"fff\r\n" + b"x" * 0xFFF + b"\r\n",
    ],
)
async def test_a_body_beyond_the_limit_is_refused(body: bytes) -> None:
    site = Site()

    client = await site.exchange(body)

    assert client.statuses == [413]
    assert site.seen == []


async def test_all_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HELD", 3 * LIMIT)
    site = Site()
    head = sent("POST", f"Content-Length: {LIMIT}")
    clients = [site.connect() for _ in range(5)]
    for _, connection in clients:
        connection.data_received(head + bytes(LIMIT - 1))
        await asyncio.sleep(0.01)
    refused = [client for client, _ in clients if client.statuses == [503]]
    for client, connection in clients:
        if client not in refused:
            connection.data_received(b"x")
    await asyncio.sleep(0.01)

    assert len(refused) == 2
    assert [client.statuses for client, _ in clients if client not in refused] == 3 * [[200]]
    assert site.server.held == 0


async def test_a_body_has_to_arrive_in_time() -> None:
    client, connection = Site().connect()

    connection.data_received(sent("POST", "Content-Length: 100"))
    for _ in range(9):
        await asyncio.sleep(BODY / 10)
        connection.data_received(b"x")
    before = client.statuses
    await asyncio.sleep(BODY / 10 + 1)

    assert (before, client.statuses) == ([], [408])


async def test_a_client_that_goes_away_within_its_body_ends_the_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client, connection = Site().connect()

    connection.data_received(sent("POST", "Content-Length: 100"))
    await asyncio.sleep(0.01)
    connection.connection_lost(None)
    await asyncio.sleep(0.01)

    assert connection.task is not None
    assert connection.task.done()
    assert client.statuses == []
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_a_client_has_to_take_its_answer_in_time() -> None:
    client, connection = Site().connect()
    connection.pause_writing()

    connection.data_received(GET + GET)
    await asyncio.sleep(TAKEN - 1)
    before = client.is_open, client.statuses
    await asyncio.sleep(2)

    assert before == (True, [200])
    assert not client.is_open


async def test_a_client_that_goes_away_before_it_has_taken_its_answer_is_forgotten() -> None:
    site = Site()
    client, connection = site.connect()
    connection.pause_writing()
    connection.data_received(GET)
    await asyncio.sleep(0.01)

    connection.connection_lost(None)
    await asyncio.sleep(2 * IDLE)

    assert client.statuses == [200]
    assert not site.server._connections


async def test_a_quiet_connection_is_closed_in_the_end() -> None:
    client = await Site().exchange(GET)
    await asyncio.sleep(IDLE - 1)
    before = client.is_open
    await asyncio.sleep(2)

    assert (before, client.is_open) == (True, False)


async def test_with_too_many_connections_the_one_that_waits_longest_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 3)
    site = Site()
    release = asyncio.Event()

    async def slow(_: Request) -> Response:
        await release.wait()
        return Response()

    site.answer = slow
    clients = [site.connect() for _ in range(3)]
    clients[0][1].data_received(GET)  # is being answered
    await asyncio.sleep(0.01)

    clients.append(site.connect())

    assert [client.is_open for client, _ in clients] == [True, False, True, True]
    release.set()
    await asyncio.sleep(0.01)
    assert clients[0][0].statuses == [200]


async def test_when_the_server_closes_running_requests_are_answered_and_late_ones_end() -> None:
    site = Site()

    async def slow(request: Request) -> Response:
        await asyncio.sleep(1.0 if request.path == "/a" else 3600.0)
        return Response()

    site.answer = slow
    quick, late, idle = site.connect(), site.connect(), site.connect()
    quick[1].data_received(GET)
    late[1].data_received(GET.replace(b"/a", b"/late"))
    await asyncio.sleep(0.01)
    began = asyncio.get_running_loop().time()

    await site.server.close(LAST)
    took = asyncio.get_running_loop().time() - began
    too_late = site.connect()

    assert quick[0].statuses == [200]
    assert b"Connection: close" in quick[0].received
    assert late[0].statuses == []
    assert not any(client.is_open for client, _ in (quick, late, idle, too_late))
    assert took == pytest.approx(LAST)


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\0"])
async def test_a_header_cannot_become_two(value: str, caplog: pytest.LogCaptureFixture) -> None:
    site = Site()

    async def inject(_: Request) -> Response:
        return Response(200, b"", {"Location": value})

    site.answer = inject
    client = await site.exchange(GET)

    assert client.statuses == [500]
    assert b"Set-Cookie" not in client.received
    assert "A response is invalid" in caplog.text


async def test_a_bug_in_a_handler_costs_one_request(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()

    async def broken(_: Request) -> Response:
        raise ZeroDivisionError("a bug")

    site.answer = broken
    client, connection = site.connect()
    connection.data_received(GET)
    await asyncio.sleep(0.01)
    site.answer = site.echo
    connection.data_received(GET)
    await asyncio.sleep(0.01)

    assert client.statuses == [500, 200]
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("gzip;q=0", False), ("br", False), ("", False)],
)
@pytest.mark.real_time
async def test_a_large_body_is_compressed_for_a_client_that_accepts_it(
    accepted: str, *, is_compressed: bool
) -> None:
    site = Site()
    text = b"metric 1.0\n" * 1000
    done = asyncio.Event()

    async def metrics(_: Request) -> Response:
        done.set()
        return Response(200, text, compresses=True, closes=True)

    site.answer = metrics
    client, connection = site.connect()
    connection.data_received(sent("GET", f"Accept-Encoding: {accepted}"))
    await done.wait()
    assert connection.task is not None
    await connection.task

    head, _, body = bytes(client.received).partition(b"\r\n\r\n")
    assert (b"Content-Encoding: gzip" in head) is is_compressed
    assert (gzip.decompress(body) if is_compressed else body) == text
    assert f"Content-Length: {len(body)}".encode() in head


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/a%2Fb/../c", "/a/b/../c", {}),
        (b"//x/y?a=1&a=2&b", "//x/y", {"a": "1", "b": ""}),
        (b"http://other/a?b=%20", "/a", {"b": " "}),
        (b"http://other", "/", {}),
        (b"/a#b", "/a#b", {}),
        (b"*", "*", {}),
    ],
)
async def test_a_target_is_decoded_and_not_normalized(
    target: bytes, path: str, query: dict[str, str]
) -> None:
    site = Site()
    found: list[tuple[str, object]] = []

    async def note(request: Request) -> Response:
        found.append((request.path, dict(request.query)))
        return Response()

    site.answer = note
    await site.exchange(GET.replace(b"/a", target))

    assert found == [(path, query)]


async def test_a_refusal_of_a_handler_is_its_answer() -> None:
    site = Site()

    async def refuse(_: Request) -> Response:
        raise Refused(module.HTTPStatus.CONFLICT, "not now")

    site.answer = refuse

    assert (await site.exchange(GET)).received.endswith(b"\r\n\r\nnot now\n")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(4):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connections_in_their_handshake_count_and_the_oldest_is_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loop: object
) -> None:
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 3)
    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        runner.run(many_handshakes(tmp_path))


async def many_handshakes(tmp_path: Path) -> None:
    server, listener, trust = await listening(tmp_path)
    port = listener.getsockname()[1]

    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
    await until(lambda: len(server._handshakes) == 3)
    for reader, _ in silent[:2]:
        assert not await ending(reader)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    writer.write(GET)

    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    assert not await ending(silent[2][0])
    assert (len(server._handshakes), len(server._connections)) == (2, 1)
    silent[3][1].write(b"no TLS at all\r\n\r\n")
    await until(lambda: len(server._handshakes) == 1)
    await server.close(0)
    await until(lambda: not server._handshakes and not server._connections)
    for _, each in (*silent, (reader, writer)):
        each.close()
    listener.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_handshake_has_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loop: object
) -> None:
    assert module.HANDSHAKE == 10
    monkeypatch.setattr(module, "HANDSHAKE", 0.2)
    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        runner.run(silent_handshake(tmp_path))


async def silent_handshake(tmp_path: Path) -> None:
    server, listener, _ = await listening(tmp_path)
    reader, writer = await asyncio.open_connection(*listener.getsockname())

    assert not await ending(reader)
    await until(lambda: not server._handshakes)

    writer.close()
    await server.close(0)
    listener.close()


async def listening(tmp_path: Path) -> tuple[module.Server, socket.socket, ssl.SSLContext]:
    """A server with a certificate, its socket, and what trusts it."""
    pair = self_signed(Subject(common_name="server", names=("127.0.0.1",)), now=datetime.now(UTC))
    (tmp_path / "pair.pem").write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    server, listener = Site().server, socket.create_server(("127.0.0.1", 0))
    await server.start(listener, context)
    return server, listener, ssl.create_default_context(cadata=pair.certificate.decode())


async def ending(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
