"""HTTP/1.1 as it comes in: cut anywhere, in every framing, and broken in every way."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pileus.http import client as module
from pileus.http.client import Client
from pileus.http.connection import (
    READ_AHEAD,
    READ_SIZE,
    Answer,
    Closed,
    Connection,
    NotConnected,
    NotHttp,
    TooMuch,
)

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world"
LIMIT = 5.0


@dataclass
class Peer:
    """A server that answers each connection with the given pieces, and then waits or closes."""

    pieces: Sequence[bytes]
    closes: bool = False
    requests: list[bytes] = field(default_factory=list[bytes])
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.requests.append(head)
                for piece in self.pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if self.closes:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def pool(peer: Peer, host: str = "127.0.0.1") -> AsyncGenerator[Client]:
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    opened = Client(f"http://{host}:{port}", connect_timeout=LIMIT)
    try:
        yield opened
    finally:
        await opened.close()
        server.close()


async def asked(connection: Connection, *, has_body: bool = True) -> Answer:
    text = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    return await connection.ask(text, has_body=has_body, timeout=LIMIT, idle=None)


async def body_of(answer: Answer) -> bytes:
    return b"".join([part async for part in answer.chunks()])


class _Unconnected(asyncio.Transport):
    """Takes what is sent."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        return

    def abort(self) -> None:
        return


def chunked(parts: Sequence[bytes]) -> bytes:
    framed = b"".join(b"%x;name=value\r\n%b\r\n" % (len(each), each) for each in parts if each)
    return CHUNKED + framed + b"0\r\nTrailer: x\r\n\r\n"


def cut(text: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({each % (len(text) + 1) for each in cuts} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(places)]


def fed(pieces: Sequence[bytes]) -> bytes:
    """Returns the body of an answer that comes in these pieces, without a socket."""

    async def receive() -> bytes:
        connection = Connection(Client("http://x", connect_timeout=LIMIT), None)
        connection.connection_made(_Unconnected())
        task = asyncio.create_task(asked(connection))
        await asyncio.sleep(0)
        for piece in pieces:
            connection._pool.buffer[: len(piece)] = piece
            connection.buffer_updated(len(piece))
        return await body_of(await task)

    return asyncio.run(receive())


@settings(max_examples=100, deadline=None)
@given(parts=st.lists(st.binary(max_size=40)), cuts=st.lists(st.integers(0, 2000), max_size=12))
def test_a_chunked_body_may_be_cut_anywhere(parts: list[bytes], cuts: list[int]) -> None:
    assert fed(cut(chunked(parts), cuts)) == b"".join(parts)


@settings(max_examples=50, deadline=None)
@given(cuts=st.lists(st.integers(0, 2000), max_size=12))
def test_a_body_of_known_length_may_be_cut_anywhere(cuts: list[int]) -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert fed(cut(early + SIZED, cuts)) == b"hello world"


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-OpenSSH_9\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"1" * 5000 + b"\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: \u0663\r\n\r\nabc".encode(),
        b"HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nX-A\t: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\n Content-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nabc",
        CHUNKED[:-2] + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        CHUNKED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"zz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
        CHUNKED + b"5" * 70_000,
        CHUNKED + b"-1\r\na\r\n0\r\n\r\n",
        CHUNKED + b"+1\r\na\r\n0\r\n\r\n",
        CHUNKED + b"0x1\r\na\r\n0\r\n\r\n",
        CHUNKED + b"0_1\r\na\r\n0\r\n\r\n",
    ],
    ids=range(23),
)
def test_what_is_not_http_is_refused(text: bytes) -> None:
    with pytest.raises(NotHttp):
        fed([text[start : start + 60_000] for start in range(0, len(text), 60_000)])


@pytest.mark.real_time
async def test_a_connection_is_used_again_after_a_whole_answer_only() -> None:
    peer = Peer([chunked([b"a", b"b"])])
    async with pool(peer) as opened:
        for _ in range(3):
            answer = await asked(opened.idle(None) or await opened.new(None))
            assert await body_of(answer) == b"ab"
            answer.release()
            answer.release()  # the second one does nothing
        assert peer.connections == 1

        answer = await asked(opened.idle(None) or await opened.new(None))
        answer.close()
        assert opened.idle(None) is None


@pytest.mark.real_time
@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabMORE",
        CHUNKED + b"2\r\nab\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nConte",
    ],
)
async def test_a_connection_that_is_not_kept_alive_is_not_used_again(text: bytes) -> None:
    async with pool(Peer([text])) as opened:
        answer = await asked(await opened.new(None))
        assert await body_of(answer) == b"ab"
        answer.release()

        assert opened.idle(None) is None


@pytest.mark.real_time
async def test_without_a_length_the_body_ends_with_the_connection() -> None:
    async with pool(Peer([b"HTTP/1.1 200 OK\r\n\r\n", b"all of it"], closes=True)) as opened:
        assert await body_of(await asked(await opened.new(None))) == b"all of it"


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("text", "heard"), [(b"", False), (b"HTTP/1.1 2", True), (SIZED[:-1], True)]
)
async def test_a_connection_that_ends_too_early_is_an_error(text: bytes, heard: bool) -> None:
    async with pool(Peer([text], closes=True)) as opened:
        with pytest.raises(Closed) as caught:
            await body_of(await asked(await opened.new(None)))

    assert caught.value.heard is heard


@pytest.mark.real_time
@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_some_answers_have_no_body(status: bytes) -> None:
    async with pool(Peer([b"HTTP/1.1 %b\r\nContent-Length: 9\r\n\r\n" % status])) as opened:
        assert await body_of(await asked(await opened.new(None))) == b""

    async with pool(Peer([SIZED[:-11]])) as opened:
        assert await body_of(await asked(await opened.new(None), has_body=False)) == b""


@pytest.mark.real_time
async def test_a_slow_reader_pauses_the_server() -> None:
    size = 50 * READ_AHEAD
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
    async with pool(Peer([head, bytes(size)])) as opened:
        connection = await opened.new(None)
        answer = await asked(connection)
        for _ in range(50):
            await asyncio.sleep(0)
        assert connection._size <= READ_AHEAD + READ_SIZE
        assert len(await body_of(answer)) == size


@pytest.mark.real_time
async def test_what_follows_a_part_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = list[int]()
    receive = Connection.buffer_updated
    monkeypatch.setattr(
        Connection, "buffer_updated", lambda self, size: (reads.append(size), receive(self, size))
    )
    letters = [b"%c" % each for each in b"abcdefghijklmnopqrstuvwxyz"]
    pieces = [CHUNKED, *(b"1\r\n%b\r\n" % each for each in letters), b"0\r\n\r\n"]
    async with pool(Peer(pieces, closes=True)) as opened, asyncio.timeout(LIMIT):
        answer = await asked(await opened.new(None))
        parts = [part async for part in answer.chunks(gather=2 * LIMIT)]

    assert b"".join(parts) == b"".join(letters)
    assert len(parts) <= 2, "the end of the body ends the gathering"
    assert len(reads) <= len(letters) / 2, "the process is not woken for each piece"


@pytest.mark.real_time
async def test_a_lot_is_not_gathered_for_long() -> None:
    size = 10 * READ_AHEAD
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\na" % (size + 1)
    async with pool(Peer([head, bytes(size)])) as opened, asyncio.timeout(LIMIT):
        answer = await asked(await opened.new(None))
        parts = answer.chunks(gather=2 * LIMIT)
        got = 0
        while got < size - READ_SIZE:
            got += len(await anext(parts))


@pytest.mark.real_time
async def test_gathering_ends_after_its_time_and_the_connection_stays_usable() -> None:
    async with pool(Peer([SIZED[:-1], SIZED[-1:]])) as opened, asyncio.timeout(LIMIT):
        connection = await opened.new(None)
        for _ in range(3):
            answer = await asked(connection)
            parts = [part async for part in answer.chunks(gather=0.01)]
            answer.release()

            assert b"".join(parts) == b"hello world"
            assert opened.idle(None) is connection


@pytest.mark.real_time
async def test_a_body_with_more_bytes_than_the_caller_takes_is_not_read() -> None:
    async with pool(Peer([SIZED])) as opened:
        connection = await opened.new(None)
        with pytest.raises(TooMuch):
            await (await asked(connection)).read(limit=10)
        assert not connection.is_open

        assert await (await asked(await opened.new(None))).read(limit=11) == b"hello world"


@pytest.mark.real_time
async def test_idle_connections_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 0.0)
    async with pool(Peer([SIZED])) as opened:
        connection = await opened.new(None)
        answer = await asked(connection)
        await body_of(answer)
        answer.release()
        while connection.is_open:
            await asyncio.sleep(0)

        assert opened.idle(None) is None


@pytest.mark.real_time
async def test_a_connection_that_the_server_is_closing_is_not_used_again() -> None:
    async with pool(Peer([SIZED])) as opened:
        connection = await opened.new(None)
        answer = await asked(connection)
        await body_of(answer)
        answer.release()
        connection.eof_received()

        assert opened.idle(None) is None


@pytest.mark.real_time
async def test_nothing_is_sent_over_a_connection_that_was_closed_before() -> None:
    peer = Peer([SIZED])
    async with pool(peer) as opened:
        connection = await opened.new(None)
        connection.connection_lost(None)

        with pytest.raises(NotConnected):
            await asked(connection)

    assert peer.requests == []


@pytest.mark.real_time
async def test_the_other_address_is_tried_if_the_first_refuses() -> None:
    peer = Peer([SIZED])
    async with pool(peer, "localhost") as opened:
        assert await body_of(await asked(await opened.new(None))) == b"hello world"

    with pytest.raises(NotConnected):
        await opened.new(None)
