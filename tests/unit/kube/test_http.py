"""Real HTTP keeps its deadlines, renews its proof of identity, and says what went wrong."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from pileus.fence import Fenced
from pileus.http.client import new_socket
from pileus.kube.access import Access
from pileus.kube.errors import CredentialsError, Unreachable
from pileus.kube.http import HttpTransport
from pileus.kube.transport import Request
from tests.unit.kube.https_server import Handler, Pass, Served, Trust, proxying, serving

pytestmark = pytest.mark.real_time

GET = Request(method="GET", path="/api/v1/nodes")
PUT = Request(method="PUT", path="/api/v1/nodes/a", body=b"{}")


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path)


@asynccontextmanager
async def connected(
    trust: Trust, handler: Handler, credentials: Pass | None = None
) -> AsyncGenerator[tuple[HttpTransport, Served]]:
    credentials = credentials or Pass(trust.client())
    async with (
        serving(handler, trust.server("127.0.0.1")) as served,
        HttpTransport(Access(served.url, credentials)) as transport,
    ):
        yield transport, served


async def ask(transport: HttpTransport, request: Request) -> tuple[int, bytes]:
    async with transport.send(request) as reply:
        return reply.status, await reply.read()


async def ok(request: web.Request) -> web.StreamResponse:
    return web.Response(body=await request.read() or b"ok")


async def hang(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    return web.Response()


def subject(request: web.Request) -> str:
    """The common name of the certificate that a request came with."""
    assert request.transport
    certificate = request.transport.get_extra_info("peercert")
    return certificate["subject"][0][0][1]


async def test_a_request_carries_body_query_headers_and_credentials(trust: Trust):
    request = replace(PUT, query={"a": "b c"}, headers={"X-Test": "1"}, path="/x y/ü")

    async with connected(trust, ok) as (transport, served):
        assert await ask(transport, replace(request, body=b"text")) == (200, b"text")

    seen = served.requests[0]
    assert (seen.method, seen.path, seen.query["a"]) == ("PUT", "/x y/ü", "b c")
    assert seen.headers["X-Test"] == "1"
    assert seen.headers["Authorization"] == "Bearer first"
    assert seen.headers["Accept-Encoding"] == "identity"


async def test_a_plain_server_with_a_path_prefix_is_reached(trust: Trust):
    async with (
        serving(ok, None) as served,
        HttpTransport(Access(f"{served.url}/clusters/c1", Pass(None))) as transport,
    ):
        await ask(transport, GET)

    assert served.requests[0].path == "/clusters/c1/api/v1/nodes"


async def test_headers_are_found_in_any_case(trust: Trust):
    async def later(request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, headers={"retry-after": "7"})

    async with connected(trust, later) as (transport, _), transport.send(GET) as reply:
        assert reply.headers["Retry-After"] == "7"


async def test_a_refused_token_is_renewed_and_the_request_sent_once_more(trust: Trust):
    async def check(request: web.Request) -> web.StreamResponse:
        known = request.headers["Authorization"] == "Bearer second"
        return web.Response(status=200 if known else 401)

    credentials = Pass(trust.client())
    async with connected(trust, check, credentials) as (transport, served):
        assert (await ask(transport, PUT))[0] == 200

    assert credentials.rejections == 1
    assert len(served.requests) == 2


async def test_a_token_refused_twice_is_the_callers_business(trust: Trust):
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.Response(status=401, text="no")

    credentials = Pass(trust.client())
    async with connected(trust, refuse, credentials) as (transport, served):
        assert await ask(transport, GET) == (401, b"no")

    assert credentials.rejections == 1
    assert len(served.requests) == 2


async def test_missing_credentials_are_told_as_they_are(trust: Trust):
    class Broken(Pass):
        async def headers(self) -> dict[str, str]:
            raise CredentialsError("token file /x is missing")

    async with connected(trust, ok, Broken(trust.client())) as (transport, served):
        with pytest.raises(CredentialsError, match="/x is missing"):
            await ask(transport, GET)

    assert served.requests == []


async def test_a_token_that_no_header_can_carry_is_told_without_being_shown(trust: Trust):
    async with connected(trust, ok, Pass(trust.client(), token="se\ncret")) as (transport, served):
        with pytest.raises(CredentialsError, match="control character") as caught:
            await ask(transport, GET)

    assert "cret" not in str(caught.value)
    assert served.requests == []


def test_a_proxy_that_we_cannot_speak_to_is_refused_at_once():
    with pytest.raises(CredentialsError, match="must be http"):
        HttpTransport(Access("https://127.0.0.1:1", Pass(None), proxy="socks5://127.0.0.1:2"))


async def test_a_guard_that_raises_keeps_the_request_in(trust: Trust):
    def closed() -> None:
        raise Fenced("old lease")

    async with connected(trust, ok) as (transport, served):
        with pytest.raises(Fenced):
            await ask(transport, replace(PUT, guard=closed))

    assert served.requests == []


@pytest.mark.parametrize(("request_", "acted"), [(GET, False), (PUT, True)])
async def test_no_answer_within_the_deadline_is_unreachable(
    trust: Trust, request_: Request, acted: bool
):
    async with connected(trust, hang) as (transport, _):
        with pytest.raises(Unreachable, match="no whole answer in time") as caught:
            await ask(transport, replace(request_, timeout=0.3))

    assert caught.value.timed_out
    assert caught.value.may_have_acted is acted
    assert caught.value.host in str(caught.value)


async def test_a_body_that_does_not_end_within_the_deadline_is_unreachable(trust: Trust):
    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x")
            await asyncio.sleep(0.02)

    async with connected(trust, trickle) as (transport, _):
        with pytest.raises(Unreachable) as caught:
            await ask(transport, replace(GET, timeout=0.5))

    assert caught.value.timed_out


async def test_a_stream_without_a_byte_is_dead(trust: Trust):
    async def fall_silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x\n")
        return await hang(request)

    async with connected(trust, fall_silent) as (transport, _):
        watch = replace(GET, timeout=None, idle_timeout=0.5)
        with pytest.raises(Unreachable, match="no byte came for too long") as caught:
            await ask(transport, watch)

    assert caught.value.timed_out


async def test_a_server_that_accepts_but_never_greets_is_given_up(trust: Trust):
    listener = socket.create_server(("127.0.0.1", 0))
    access = Access(f"https://127.0.0.1:{listener.getsockname()[1]}", Pass(trust.client()))
    with listener:
        async with HttpTransport(access, connect_timeout=0.3) as transport:
            with pytest.raises(Unreachable, match="no connection in time") as caught:
                await ask(transport, replace(PUT, timeout=30))

    assert caught.value.timed_out
    assert not caught.value.may_have_acted


async def test_a_closed_port_is_told_so(trust: Trust):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with HttpTransport(
        Access(f"https://127.0.0.1:{port}", Pass(trust.client()))
    ) as transport:
        with pytest.raises(
            Unreachable, match=f"127.0.0.1:{port}: cannot connect: Connection refused"
        ) as caught:
            await ask(transport, PUT)

    assert not caught.value.may_have_acted
    assert not caught.value.timed_out


async def test_a_server_of_another_authority_is_not_trusted(trust: Trust, tmp_path: Path):
    stranger = Trust(tmp_path)
    async with connected(trust, ok, Pass(stranger.client())) as (transport, served):
        with pytest.raises(Unreachable, match="certificate is not trusted") as caught:
            await ask(transport, PUT)

    assert caught.value.untrusted
    assert not caught.value.may_have_acted
    assert served.requests == []


async def test_the_expected_server_name_can_differ_from_the_host(trust: Trust):
    async with serving(ok, trust.server("kubernetes.default")) as served:
        access = Access(served.url, Pass(trust.client()))
        async with HttpTransport(access) as transport:
            with pytest.raises(Unreachable, match="not trusted"):
                await ask(transport, GET)
        async with HttpTransport(replace(access, server_name="kubernetes.default")) as transport:
            assert (await ask(transport, GET))[0] == 200


async def test_connections_are_used_again(trust: Trust):
    async with connected(trust, ok) as (transport, served):
        for _ in range(3):
            await ask(transport, GET)

        assert len({r.transport for r in served.requests}) == 1


async def test_a_renewed_certificate_is_shown_on_new_connections(trust: Trust):
    names: list[str] = []

    async def note(request: web.Request) -> web.StreamResponse:
        names.append(subject(request))
        return web.Response()

    credentials = Pass(trust.client("old"))
    async with connected(trust, note, credentials) as (transport, _):
        await ask(transport, GET)
        await ask(transport, GET)
        credentials.context = trust.client("new")
        await ask(transport, GET)

    assert names == ["old", "old", "new"]


async def test_a_watch_outlives_the_renewal_of_its_certificate(trust: Trust):
    proceed = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response()
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await proceed.wait()
        await response.write(b"second\n")
        return response

    credentials = Pass(trust.client("old"))
    async with connected(trust, stream, credentials) as (transport, _):
        watch = replace(GET, query={"watch": "true"}, timeout=None, idle_timeout=30.0)
        async with transport.send(watch) as reply:
            chunks = reply.chunks()
            assert await anext(chunks) == b"first\n"
            credentials.context = trust.client("new")
            await ask(transport, GET)
            proceed.set()
            assert await anext(chunks) == b"second\n"


async def test_an_answer_cut_in_the_middle_is_no_answer(trust: Trust):
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"items": [')
        assert request.transport
        request.transport.abort()
        return response

    async with connected(trust, cut) as (transport, _):
        for request, acted in ((GET, False), (PUT, True)):
            with pytest.raises(Unreachable) as caught:
                await ask(transport, request)
            assert caught.value.may_have_acted is acted


async def test_a_write_is_never_sent_again_by_itself(trust: Trust):
    async def take_and_vanish(request: web.Request) -> web.StreamResponse:
        if request.method == "PUT":
            assert request.transport
            request.transport.abort()
        return web.Response()

    async with connected(trust, take_and_vanish) as (transport, served):
        await ask(transport, GET)  # so that the write finds a connection that was used before
        with pytest.raises(Unreachable, match="PUT /api/v1/nodes/a") as caught:
            await ask(transport, PUT)

    assert caught.value.may_have_acted
    assert [r.method for r in served.requests] == ["GET", "PUT"]


async def test_redirects_are_not_followed(trust: Trust):
    async def elsewhere(request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "https://127.0.0.1:1/"})

    async with connected(trust, elsewhere) as (transport, _):
        assert (await ask(transport, GET))[0] == 307


async def test_a_proxy_is_used_where_one_is_given(trust: Trust):
    seen: list[str] = []
    async with (
        serving(ok, trust.server("127.0.0.1")) as served,
        proxying(seen) as proxy,
        HttpTransport(Access(served.url, Pass(trust.client()), proxy=proxy)) as transport,
    ):
        assert (await ask(transport, GET))[0] == 200

    assert [f"https://{target}" for target in seen] == [served.url]


async def test_a_proxy_that_refuses_is_named(trust: Trust):
    async with (
        serving(ok, None) as proxy,  # a web server: it knows no CONNECT
        HttpTransport(
            Access("https://127.0.0.1:6443", Pass(trust.client()), proxy=proxy.url)
        ) as transport,
    ):
        with pytest.raises(Unreachable, match="the proxy refuses: 404") as caught:
            await ask(transport, PUT)

    assert not caught.value.may_have_acted


async def test_leaving_a_stream_early_closes_its_connection(trust: Trust):
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x\n")
            await asyncio.sleep(0.01)

    async with connected(trust, endless) as (transport, served):
        async with transport.send(replace(GET, timeout=None)) as reply:
            await anext(reply.chunks())
        await until(lambda: served.requests[0].transport is None)


async def test_after_its_block_it_says_so(trust: Trust):
    async with HttpTransport(Access("https://127.0.0.1:1", Pass(trust.client()))) as transport:
        pass

    with pytest.raises(RuntimeError, match="after its `async with` block"):
        await ask(transport, GET)


async def test_dead_peers_are_found_by_the_system_too():
    with new_socket(socket.AF_INET) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert made.getblocking() is False


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)
