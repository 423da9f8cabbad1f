"""The port answers any bytes with a refusal in one log line, and waits for headers 32 seconds."""

import asyncio
import gzip
import logging
import re
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pileus.http.server import HEADERS, IDLE, Connection, Server
from pileus.server.authentication import Authenticator, CachedTokens
from pileus.server.authorization import Authorizer
from pileus.server.endpoints import Configz, Surface, surface_routes
from pileus.server.health import Health
from pileus.server.request_pipeline import RequestPipeline
from pileus.server.reviews import Verdict
from pileus.server.settings import AuthorizationOptions
from pileus.server.users import User
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.log import VALUES, level_of
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import LoopClock, VirtualTimeLoop
from tests.unit.http.client import Client

HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
GOOD = HEAD + b"\r\n"
BEYOND = HEADERS + IDLE + 1
"""Seconds after which every connection without a complete request is closed."""


class Reviews:
    async def review(self, token: str) -> User | None:
        return User("robot") if token == "good" else None


class Access:
    async def review(self, user: User, verb: str, path: str) -> Verdict:
        return Verdict(allowed=user.name == "robot")


def connect(verbosity: list[int] | None = None) -> tuple[Client, Connection]:
    metrics = Metrics(MetricRegistry())
    chosen = [] if verbosity is None else verbosity
    surface = Surface(Health(), metrics, Configz(), chosen.append)
    tokens = CachedTokens(Reviews(), metrics, lifetime=10.0)
    chain = RequestPipeline(
        surface_routes(surface, profiling=True),
        Authenticator(LoopClock(), metrics, tokens),
        Authorizer(AuthorizationOptions(), Access(), metrics),
    )
    client, connection = Client(), Server(chain)()
    connection.connection_made(client)
    return client, connection


async def exchange(*pieces: bytes, verbosity: list[int] | None = None) -> Client:
    """Send these, wait until the server has given up waiting for more, and hang up."""
    client, connection = connect(verbosity)
    for piece in pieces:
        if client.is_open:
            connection.data_received(piece)
            await asyncio.sleep(0.01)
    await asyncio.sleep(BEYOND)
    assert not client.is_open
    connection.connection_lost(None)
    await asyncio.sleep(0.01)
    return client


def problems(records: Sequence[logging.LogRecord]) -> list[str]:
    """What was logged beyond one plain line."""
    odd = [each.getMessage() for each in records if each.exc_info or each.levelno > logging.ERROR]
    lines = [each for each in records if each.name.startswith("pileus.server.request_pipeline")]
    return odd or [str(getattr(each, VALUES, "")) for each in lines[1:]]


async def test_a_request_is_answered_without_naming_the_software() -> None:
    client = await exchange(GOOD)

    assert client.statuses == [200]
    assert b"server:" not in bytes(client.received).lower()


REFUSED = [
    pytest.param(HEAD + b"Authorization: Bearer \xff\xfe\r\n\r\n", 401, id="token"),
    pytest.param(b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="path"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, id="TLS inside of TLS"),
    pytest.param(b"GET / HTTP/9.9\r\n\r\n", 400, id="version"),
    pytest.param(HEAD + b"A: " + b"b" * 10_000 + b"\r\n\r\n", 400, id="long header"),
    pytest.param(HEAD + b"Content-Length: x\r\n\r\n", 400, id="length"),
    pytest.param(
        HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
        id="both",
    ),
]


@pytest.mark.parametrize(("sent", "status"), REFUSED)
async def test_a_bad_request_is_refused_in_one_log_line(
    sent: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(level_of(2)):
        client = await exchange(sent)

    assert client.statuses == [status]
    assert b"server:" not in bytes(client.received).lower()
    assert len(caplog.records) == 1
    assert problems(caplog.records) == []


def put(body: bytes, encoding: bytes) -> bytes:
    head = b"PUT /debug/flags/v HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n"
    return (
        head + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (encoding, len(body)) + body
    )


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br", b"zstd", b"nonsense"])
@pytest.mark.parametrize(
    "body", [b"\x00\xff nothing", gzip.compress(b"5", mtime=0)], ids=["other", "gzip"]
)
async def test_a_body_is_taken_as_it_is_sent(
    encoding: bytes, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    verbosity: list[int] = []

    client = await exchange(put(body, encoding), verbosity=verbosity)

    assert client.statuses == [400]
    assert verbosity == []
    assert problems(caplog.records) == []


@pytest.mark.parametrize(
    "sent", [b"", b"GET", b"GET / HTTP/1.1\r\n", HEAD], ids=["nothing", "word", "line", "headers"]
)
async def test_headers_have_to_arrive_in_time(sent: bytes) -> None:
    client, connection = connect()

    connection.data_received(sent)
    await asyncio.sleep(HEADERS - 0.1)
    before = client.is_open
    connection.data_received(b"a")  # a byte now and then prolongs nothing
    await asyncio.sleep(0.2)

    assert (before, client.is_open) == (True, False)


async def test_a_quiet_connection_stays_for_the_next_request_which_has_to_arrive_in_time() -> None:
    client, connection = connect()
    connection.data_received(GOOD)

    await asyncio.sleep(HEADERS + 10)
    connection.data_received(HEAD)
    await asyncio.sleep(HEADERS - 0.1)
    before = client.is_open
    await asyncio.sleep(0.2)

    assert client.statuses == [200]
    assert (before, client.is_open) == (True, False)


BYTES = st.binary(max_size=40)
LINE = BYTES.map(lambda value: re.sub(rb"[\r\n]", b"", value))
NAMES = st.sampled_from((
    b"Authorization",
    b"Accept",
    b"Connection",
    b"Content-Encoding",
    b"Content-Length",
    b"Expect",
    b"Host",
    b"Transfer-Encoding",
    b"Upgrade",
    b"User-Agent",
    b"X-Remote-User",
))
VALUES_ = LINE | st.sampled_from((
    b"Bearer \xff",
    b"Bearer good",
    b"Bearer a b",
    b"basic",
    b"gzip",
    b"chunked",
    b"100-continue",
    b"-1",
    b"0",
    b"999999999999999999999",
    b"close",
    b"websocket",
))
TOKENS = LINE.map(lambda value: b"Bearer " + value)
METHODS = st.sampled_from((b"GET", b"PUT", b"POST", b"HEAD", b"OPTIONS", b"CONNECT", b"get"))
TARGETS = st.sampled_from((b"/healthz", b"/metrics", b"/debug/flags/v", b"*", b"//", b"http://["))
VERSIONS = st.sampled_from((b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9"))
FIRST_LINES = st.tuples(METHODS, TARGETS, VERSIONS).map(b" ".join)
ODD_FIRST_LINES = st.tuples(METHODS | LINE, LINE.map(lambda value: b"/" + value), VERSIONS | LINE)
USUAL = st.just(b"PUT /debug/flags/v HTTP/1.1")


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """Mostly requests of which only one part is odd."""
    first = draw(USUAL | FIRST_LINES | ODD_FIRST_LINES.map(b" ".join))
    host = draw(st.sampled_from(([b"Host: x"], [b"Host: x"], [])))
    known = st.tuples(NAMES, VALUES_) | st.tuples(st.just(b"Authorization"), TOKENS)
    headers = draw(st.lists(known | st.tuples(LINE, VALUES_), max_size=3))
    lines = [first, *host, *(name + b": " + value for name, value in headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + draw(BYTES)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(heads() | BYTES, min_size=1, max_size=3))
@example([b"GET http://[ HTTP/1.1\r\n\r\n"])
@example([b"CONNECT /\xff HTTP/1.1\r\n\r\n"])
def test_no_bytes_make_the_server_fail(
    caplog: pytest.LogCaptureFixture, pieces: list[bytes]
) -> None:
    caplog.clear()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        client = runner.run(exchange(*pieces))

    assert [code for code in client.statuses if not 100 <= code < 500] == []
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []
