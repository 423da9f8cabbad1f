"""An API server that never ends, repeats itself or asks for too much costs an error and a pause."""

import asyncio
import gzip
from collections.abc import Callable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from itertools import count
from random import Random

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from pileus.kube import client as client_module
from pileus.kube.access import Access
from pileus.kube.client import Client, LineSplitter
from pileus.kube.errors import KubeError, TooLong, TooManyRequests, Unreadable, refusal
from pileus.kube.http import HttpTransport
from pileus.kube.informer import Informer, InformerOptions, delay_after
from pileus.kube.model.core_v1 import NODES
from pileus.kube.transport import ANSWER_LIMIT, MEBIBYTE, Request
from pileus.runtime.leadership import Election, Times
from pileus.runtime.lease import Candidate, KubeLease
from pileus.runtime.settings import Durations
from pileus.testing.scripted import Answer, ScriptedTransport, Stream, event, listing, refused
from tests.unit.kube.harness import QUIET, Following, Kube, node
from tests.unit.kube.https_server import Handler, Pass, serving

HTTP_GET = Request(method="GET", path="/api/v1/nodes", limit=MEBIBYTE)


async def fetched(handler: Handler) -> bytes:
    async with (
        serving(handler, None) as served,
        HttpTransport(Access(served.url, Pass(None))) as transport,
        transport.send(HTTP_GET) as reply,
    ):
        return await reply.read()


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 2**16)


@pytest.mark.real_time
async def test_an_answer_without_an_end_is_refused() -> None:
    with pytest.raises(TooLong, match="GET /api/v1/nodes: the answer has more than 1048576 bytes"):
        await fetched(endless)


@pytest.mark.real_time
async def test_an_answer_may_have_as_many_bytes_as_the_limit() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * MEBIBYTE)

    assert len(await fetched(answer)) == MEBIBYTE


@pytest.mark.real_time
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP, gzip"])
async def test_an_answer_that_is_compressed_is_refused(encoding: str) -> None:
    async def bomb(_: web.Request) -> web.Response:
        body = gzip.compress(b" " * 64 * MEBIBYTE)
        return web.Response(body=body, headers={"Content-Encoding": encoding})

    with pytest.raises(Unreadable, match="is compressed .* though the request asks for identity"):
        await fetched(bomb)


@pytest.mark.real_time
async def test_an_answer_encoded_as_identity_is_read() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=b"{}", headers={"Content-Encoding": "identity"})

    assert await fetched(answer) == b"{}"


async def test_a_line_of_a_watch_without_an_end_is_refused() -> None:
    client = Kube(Stream(b" " * MEBIBYTE for _ in count())).client

    async with aclosing(client.watch(NODES)) as events:
        with pytest.raises(TooLong, match="WATCH /api/v1/nodes: a line has more than 33554432"):
            await anext(events)


async def test_an_object_of_nine_mebibytes_is_read() -> None:
    large = node("large", annotations={"a": "x" * 9 * MEBIBYTE})
    kube = Kube(Answer(200, large), Answer(200, listing([large])), Stream([event("ADDED", large)]))

    got = await kube.client.get(NODES, "large")
    listed = await kube.client.list(NODES)
    async with aclosing(kube.client.watch(NODES)) as events:
        seen = await anext(events)

    assert {each.metadata.name for each in (got, *listed.items, seen.object)} == {"large"}


@given(st.lists(st.binary(max_size=9)), st.integers(1, 20))
def test_lines_come_out_whole_or_are_refused(chunks: list[bytes], limit: int) -> None:
    text = b"".join(chunks)
    *complete, begun = text.split(b"\n")
    splitter, lines = LineSplitter(limit), list[bytes]()

    try:
        for chunk in chunks:
            lines += splitter.feed(chunk)
    except TooLong:
        assert max(map(len, (*complete, begun))) > limit
    else:
        assert lines == [line for line in complete if line and not line.isspace()]
        assert max(map(len, (*complete, begun))) <= limit


# Lists


def page(more: str, *names: str) -> Answer:
    items = [node(name) for name in names]
    return Answer(200, listing(items, more=more))


def tokens() -> Iterator[str]:
    return (f"token-{number}" for number in count())


@pytest.mark.parametrize("chain", [("a", "a"), ("a", "b", "c", "a"), ("a", "b", "b")])
async def test_a_list_whose_token_repeats_is_refused(chain: tuple[str, ...]) -> None:
    client = Kube(*[page(more) for more in chain]).client

    with pytest.raises(Unreadable, match="GET /api/v1/nodes: the list does not end"):
        await client.list(NODES)


async def test_a_token_that_fits_in_no_url_is_refused() -> None:
    with pytest.raises(Unreadable, match="continue token has more than 8192 characters"):
        await Kube(page("x" * 8193)).client.list(NODES)


@pytest.mark.parametrize("names", [(), ("a", "b", "c")])
async def test_a_list_of_ever_new_pages_is_refused(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(client_module, "MOST_OBJECTS", 100)
    new = tokens()
    client = _client(lambda _: page(next(new), *names))

    with pytest.raises(Unreadable, match="more than 100 objects or pages"):
        await client.list(NODES)


async def test_a_list_of_too_many_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MOST_BYTES", 10_000)
    new = tokens()
    client = _client(lambda _: page(next(new), "x" * 1000))

    with pytest.raises(Unreadable, match="the list has more than 10000 bytes"):
        await client.list(NODES)


async def test_a_list_that_takes_for_ever_is_refused() -> None:
    new, now = tokens(), asyncio.get_running_loop().time
    client = _client(lambda _: Answer(200, page(next(new)).body, delay=50))
    began = now()

    with pytest.raises(Unreadable, match="the list is not complete after 900 s"):
        await client.list(NODES)

    assert now() - began == 900


async def test_a_list_with_a_page_that_is_too_long_comes_in_smaller_ones() -> None:
    names = [f"n{number}" for number in range(60)]
    large = "x" * 2 * MEBIBYTE

    def respond(request: Request) -> Answer:
        size, first = int(request.query["limit"]), int(request.query.get("continue", "0"))
        items = [node(name, annotations={"a": large}) for name in names[first : first + size]]
        more = str(first + size) if first + size < len(names) else ""
        return Answer(200, listing(items, more=more))

    transport = ScriptedTransport(respond)
    kube = Kube()
    client = Client(transport, user_agent="test", metrics=kube.metrics)

    listed = await client.list(NODES, limit=50)

    assert [item.metadata.name for item in listed.items] == names
    assert [int(each.query["limit"]) for each in transport.requests] == [50, *[5] * 12]


async def test_an_object_that_is_too_long_by_itself_is_a_named_error() -> None:
    huge = Answer(200, b" " * (ANSWER_LIMIT + 1))
    client = _client(lambda _: huge)

    with pytest.raises(TooLong, match="GET /api/v1/nodes: the answer has more than"):
        await client.list(NODES)


async def test_a_list_of_a_large_cluster_is_read() -> None:
    """5,000 nodes of 15 KB in pages of 500."""
    filler = "x" * 15_000
    all_pages = [
        [node(f"n{first + number}", annotations={"a": filler}) for number in range(500)]
        for first in range(0, 5000, 500)
    ]
    replies = [
        Answer(200, listing(items, more=more))
        for more, items in zip([*(f"t{n}" for n in range(9)), ""], all_pages, strict=True)
    ]

    listed = await Kube(*replies).client.list(NODES)

    assert len(listed.items) == 5000


# Informers


async def test_a_streaming_list_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pileus.kube.informer.MOST_OBJECTS", 100)
    endless_list = Stream(event("ADDED", node(f"n{number}")) for number in count())
    following = Following(endless_list, options=InformerOptions())

    async with following.running(0.1):
        assert following.recorder.told == []
        assert isinstance(following.informer.failure, Unreadable)


@pytest.mark.parametrize("error", [RecursionError, MemoryError, RuntimeError, ValueError, KeyError])
async def test_no_unexpected_error_ends_an_informer(error: type[Exception]) -> None:
    failing = iter([error("a bug")])

    def respond(request: Request) -> Answer | Stream:
        for bug in failing:
            raise bug
        return QUIET if "watch" in request.query else Answer(200, listing([node("a")]))

    informer = Informer(
        _client(respond), NODES, random=Random(1), options=InformerOptions(streaming=False)
    )

    async with asyncio.TaskGroup() as group:
        running = group.create_task(informer.run())
        await informer.wait_synced()
        running.cancel()

    assert [each.metadata.name for each in informer.store.list()] == ["a"]


@given(st.text() | st.integers(0, 10**400).map(str), st.integers(1, 50), st.integers())
def test_no_server_can_ask_for_more_than_two_minutes(asked: str, failures: int, seed: int) -> None:
    said = refusal("GET", "/x", 429, headers={"Retry-After": asked}, body=b"")

    assert isinstance(said, TooManyRequests)
    assert delay_after(failures, said, Random(seed)) <= 120


async def test_a_server_that_asks_for_days_is_asked_again_after_two_minutes() -> None:
    following = Following(
        refused(429, "TooManyRequests", retry_after=999_999),
        Answer(200, listing([node("a")])),
        QUIET,
    )

    async with following.running(121):
        assert following.recorder.told == ["+a1"]


# Leases


class Silent:
    def record(self, about: object, kind: str, reason: str, message: str) -> None:
        pass


GOOD = {"metadata": {"name": "l", "resourceVersion": "2"}, "spec": {"leaseDurationSeconds": 1}}


@pytest.mark.parametrize(
    "lease",
    [
        b"",
        b"[]",
        b"null",
        b'"x"',
        b'{"metadata":5}',
        b'{"metadata":null}',
        b'{"metadata":{"name":7}}',
        b'{"metadata":{"annotations":[]}}',
        b'{"spec":[1]}',
        b'{"spec":"held"}',
        b'{"spec":{"holderIdentity":5}}',
        b'{"spec":{"leaseDurationSeconds":"15"}}',
        b'{"spec":{"leaseDurationSeconds":1e999}}',
        b'{"spec":{"leaseDurationSeconds":%s}}' % (b"9" * 400),
        b'{"spec":{"leaseTransitions":-9e99}}',
        b'{"spec":{"renewTime":12}}',
        b'{"spec":{"holderIdentity":"","unknown":%s}}' % (b"9" * 400),
    ],
)
async def test_a_lease_of_wrong_types_is_tried_again(lease: bytes) -> None:
    bad = iter([Answer(200, lease)])
    kube = Kube()
    client = _client(lambda _: next(bad, Answer(200, GOOD)))
    candidate = Candidate("kube-system", "l", "me", Durations())
    times = Times(_Wall(), asyncio.get_running_loop().time)
    election = Election(
        candidate,
        KubeLease(client, "kube-system", "l"),
        random=Random(1),
        metrics=kube.metrics,
        events=Silent(),
        times=times,
    )

    async with election.leading():
        election.fence.check()


def test_every_error_of_this_page_is_one_that_callers_expect() -> None:
    assert issubclass(TooLong, Unreadable)
    assert issubclass(Unreadable, KubeError)


class _Wall:
    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


def _client(respond: Callable[[Request], Answer | Stream]) -> Client:
    return Client(ScriptedTransport(respond), user_agent="test", metrics=Kube().metrics)
