"""Requests that two parsers could understand differently are refused."""

import asyncio
import contextlib

import pytest
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser, RawRequestMessage
from aiohttp.streams import StreamReader
from hypothesis import given, settings
from hypothesis import strategies as st

from pileus.http.messages import LONGEST_HEAD, MOST_HEADERS, MOST_PARAMETERS
from pileus.http.server import BODY, HEADERS, IDLE, LINGER
from pileus.testing.virtual_time import VirtualTimeLoop
from tests.unit.http.site import CHUNKED, GET, Site, sent

AMBIGUOUS = {
    "length beside chunks": sent("POST", "Content-Length: 5", "Transfer-Encoding: chunked"),
    "chunks beside length": sent("POST", "Transfer-Encoding: chunked", "Content-Length: 5"),
    "two lengths": sent("POST", "Content-Length: 5", "Content-Length: 6"),
    "equal lengths": sent("POST", "Content-Length: 5", "Content-Length: 5"),
    "equal lengths in a line": sent("POST", "Content-Length: 5, 5"),
    "signed length": sent("POST", "Content-Length: +5"),
    "length with a space": sent("POST", "Content-Length: 5 5"),
    "hexadecimal length": sent("POST", "Content-Length: 0x5"),
    "two encodings": sent("POST", "Transfer-Encoding: gzip, chunked"),
    "chunked twice": sent("POST", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "unknown encoding": sent("POST", "Transfer-Encoding: xchunked"),
    "chunks in 1.0": b"POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "space before the colon": sent("POST", "Content-Length : 5"),
    "folded header": sent("GET", "A: b\r\n c"),
    "folded by a tab": sent("GET", "A: b\r\n\tc"),
    "line feeds": b"GET /a HTTP/1.1\nHost: x\n\n",
    "one line feed": b"GET /a HTTP/1.1\r\nHost: x\nContent-Length: 5\r\n\r\n",
    "carriage return": b"GET /a HTTP/1.1\r\nHost: x\rContent-Length: 5\r\n\r\n",
    "zero byte": sent("GET", "A: b\0c"),
    "no host": b"GET /a HTTP/1.1\r\n\r\n",
    "two hosts": sent("GET", "Host: y"),
    "no name": sent("GET", ": b"),
    "no colon": sent("GET", "header"),
    "space in the target": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "tunnel": b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "unknown method": sent("FETCH"),
    "method in lower case": sent("get"),
    "relative target": b"GET a HTTP/1.1\r\nHost: x\r\n\r\n",
    "other scheme": b"GET ftp://x/a HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "too many headers": sent("GET", *(["A: b"] * MOST_HEADERS)),
    "too long a head": sent("GET", *(["A: " + "b" * 5000] * 8)),
    "a head without an end": b"GET /" + b"a" * LONGEST_HEAD,
    "too many parameters": sent("GET").replace(b"/a", b"/a?" + b"b&" * (MOST_PARAMETERS + 1)),
}


@pytest.mark.parametrize("request_", AMBIGUOUS.values(), ids=AMBIGUOUS)
@pytest.mark.parametrize("size", [1, 7, 10**6], ids=["bytes", "pieces", "whole"])
async def test_an_ambiguous_request_is_refused_and_nothing_after_it_counts(
    request_: bytes, size: int
) -> None:
    site = Site()
    smuggled = request_ + b"0\r\n\r\n" + GET
    pieces = [smuggled[start : start + size] for start in range(0, len(smuggled), size)]
    client, connection = site.connect()

    for piece in pieces:
        connection.data_received(piece)
    await asyncio.sleep(LINGER + 1)

    assert client.statuses == [400]
    assert b"Connection: close" in client.received
    assert not client.is_open
    assert site.seen == []


@pytest.mark.parametrize(
    "body",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello",
        b"5\r\nhelloXX0\r\n\r\n",
        b"g\r\n",
        b"-1\r\n",
        b"\r\n",
    ],
)
async def test_an_ambiguous_body_is_refused_and_nothing_after_it_counts(body: bytes) -> None:
    site = Site()

    client = await site.exchange(CHUNKED + body + GET)
    await asyncio.sleep(LINGER + BODY)

    assert client.statuses in ([400], [408])
    assert not client.is_open
    assert site.seen == []


KNOWN = st.sampled_from((b"GET", b"PUT", b"POST", b"DELETE"))
PARTS = st.lists(
    st.sampled_from((
        b"Content-Length: 3\r\n",
        b"Content-Length: 03\r\n",
        b"Content-Length: 3, 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: Chunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding:\tchunked\r\n",
        b"X: \xff\r\n",
        b"X:\r\n",
        b"X\t: 1\r\n",
        b"\r\n",
        b"\n",
        b" ",
        b"A: b\r",
        b"\x0b",
    )),
    max_size=3,
)
BODIES = st.sampled_from((
    b"",
    b"abc",
    b"3\r\nabc\r\n0\r\n\r\n",
    b"3\nabc\n0\n\n",
    b"03\r\nabc\r\n",
))


class _Bodies:
    """What aiohttp's parser needs of a connection."""

    def pause_reading(self) -> None: ...
    def resume_reading(self, **_: object) -> None: ...


def by_aiohttp(data: bytes) -> list[tuple[str, str, bytes]]:
    """Returns the requests that another parser finds, up to the first that it refuses."""
    parser = HttpRequestParser(_Bodies(), asyncio.get_running_loop(), 2**16)  # type: ignore[arg-type]
    found: list[tuple[RawRequestMessage, StreamReader]] = []
    with contextlib.suppress(HttpProcessingError):
        for position in range(len(data)):
            found += parser.feed_data(data[position : position + 1])[0]
    return [
        (message.method, message.path, b"".join(getattr(payload, "_buffer", ())))
        for message, payload in found
    ]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(KNOWN, PARTS, BODIES), min_size=1, max_size=3))
def test_no_request_is_understood_otherwise_than_by_another_parser(
    parts: list[tuple[bytes, list[bytes], bytes]],
) -> None:
    data = b"".join(
        method + b" /a HTTP/1.1\r\nHost: x\r\n" + b"".join(headers) + b"\r\n" + body
        for method, headers, body in parts
    )

    async def both() -> tuple[list[tuple[str, str, bytes]], list[tuple[str, str, bytes]]]:
        site = Site()
        client = await site.exchange(data)
        await asyncio.sleep(HEADERS + BODY + IDLE)
        assert not client.is_open
        return site.seen, by_aiohttp(data)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        ours, theirs = runner.run(both())

    assert ours == theirs[: len(ours)]
