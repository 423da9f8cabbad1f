"""The HTTP client for providers, against a server on loopback."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from aiohttp import web

from pileus.cloud.errors import (
    CloudError,
    Conflict,
    NotFound,
    QuotaExceeded,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from pileus.cloud.http import Answer, HttpSettings, Request, error_for, http_client
from pileus.cloud.permission import permitted_by
from pileus.http.client import Client
from pileus.http.connection import Connection
from pileus.telemetry.log import VALUES
from tests.unit.kube.https_server import Served, serving

pytestmark = pytest.mark.real_time

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answering(*answers: web.Response, **parts: Any) -> Handler:
    """A handler that gives the answers one after the other; or one made of the parts each time."""
    left = list(answers)

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        return left.pop(0) if left else web.Response(**parts)

    return answer


def settings(served: Served, **more: Any) -> HttpSettings:
    return HttpSettings(base_url=f"{served.url}/v1", **more)


UUID = "0a1b2c3d-0000-4000-8000-00000000abcd"


async def test_a_request_reaches_the_server_as_it_was_made() -> None:
    bodies: list[bytes] = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        return web.json_response({"machines": [1]})

    async with (
        serving(answer, None) as served,
        http_client(settings(served, headers={"X-Project": "blue"})) as http,
    ):
        got = await http.request(
            "post",
            "/machines/a b?c",
            query=[("tag", "x&y"), ("tag", "z")],
            json={"name": "n1"},
            headers={"X-Zone": "a"},
        )

    (request,) = served.requests
    assert (request.method, request.raw_path) == (
        "POST",
        "/v1/machines/a%20b%3Fc?tag=x%26y&tag=z",
    )
    assert (request.headers["X-Project"], request.headers["X-Zone"]) == ("blue", "a")
    assert request.headers["Content-Type"] == "application/json"
    assert bodies == [b'{"name": "n1"}']
    assert (got.status, got.json()) == (200, {"machines": [1]})


async def test_connections_are_reused_and_cookies_are_not_kept() -> None:
    ports: set[int] = set()
    cookies: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        ports.add(request.transport.get_extra_info("peername")[1])  # type: ignore[union-attr]
        cookies.append(request.headers.get("Cookie"))
        return web.Response(headers={"Set-Cookie": "session=1"})

    async with serving(answer, None) as served, http_client(settings(served)) as http:
        for _ in range(3):
            await http.request("GET", "/machines")

    assert len(ports) == 1
    assert cookies == [None] * 3


def answer_of(status: int, body: bytes, headers: Mapping[str, str]) -> Answer:
    request = Request("GET", "https://cloud/v1/machines?token=hush", {})
    return Answer(status, headers, body, request)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, Rejected),
        (400, Rejected),
        (401, Unauthorized),
        (403, Unauthorized),
        (404, NotFound),
        (405, Unsupported),
        (408, Unavailable),
        (409, Conflict),
        (410, NotFound),
        (412, Conflict),
        (422, Rejected),
        (423, Conflict),
        (429, Throttled),
        (500, Unavailable),
        (501, Unsupported),
        (502, Unavailable),
        (503, Unavailable),
        (504, Unavailable),
    ],
)
async def test_each_status_is_raised_as_the_error_that_fits(
    status: int, kind: type[CloudError]
) -> None:
    handler = answering(status=status, text="why")

    async with serving(handler, None) as served, http_client(settings(served)) as http:
        with pytest.raises(CloudError) as raised:
            await http.request("GET", "/machines")

    assert type(raised.value) is kind
    assert str(raised.value) == f"GET /v1/machines: {status} why"


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (429, {"retry-after": "7"}, 7.0),
        (429, {"retry-after": "0.5"}, 0.5),
        (503, {"retry-after": "7"}, 7.0),
        (
            429,
            {
                "retry-after": "Tue, 17 Nov 2026 06:00:30 GMT",
                "date": "Tue, 17 Nov 2026 06:00:00 GMT",
            },
            30.0,
        ),
        (
            429,
            {
                "retry-after": "Tue, 17 Nov 2026 05:00:00 GMT",
                "date": "Tue, 17 Nov 2026 06:00:00 GMT",
            },
            0.0,
        ),
        (429, {"retry-after": "Tue, 17 Nov 2026 06:00:30 GMT"}, None),
        (429, {"retry-after": "soon"}, None),
        (429, {"retry-after": "-1"}, None),
        (429, {}, None),
    ],
)
def test_the_wait_that_the_cloud_asks_for_is_read(
    status: int, header: Mapping[str, str], seconds: float | None
) -> None:
    error = error_for(answer_of(status, b"", header))

    assert isinstance(error, Throttled)
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"message": "no such machine"}', "no such machine"),
        (b'{"error": {"code": 7, "message": "quota"}}', "quota"),
        (b'{"NeutronError": {"type": "X", "message": "busy"}}', "busy"),
        (b'{"errors": [{"detail": "first"}, {"detail": "second"}]}', "first"),
        (b"<R><Error><Code>X</Code><Message>no</Message></Error></R>", "no"),
        (b"<html><body>Bad gateway</body></html>", "Bad Gateway"),
        (b"plain\r\ntext", "plain text"),
        (b"", "Bad Gateway"),
        (b"\xff\xfe", "��"),
        (b"x" * 1000, f"{'x' * 300}…"),
        (b"[" * 40 + b"]" * 40, "Bad Gateway"),
        (b"[" * 100_000, f"{'[' * 300}…"),
    ],
)
def test_an_error_has_the_message_of_the_cloud_in_one_line(body: bytes, text: str) -> None:
    assert str(error_for(answer_of(502, body, {}))) == f"GET /v1/machines: 502 {text}"


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [getattr(one, VALUES) for one in caplog.records if one.name == "pileus.cloud.http"]


async def test_request_ids_are_in_errors_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    handler = answering(status=409, text="busy", headers={"X-Amzn-RequestId": "r-17"})
    caplog.set_level(logging.INFO - 4)

    async with serving(handler, None) as served, http_client(settings(served)) as http:
        with pytest.raises(Conflict, match=r"409 busy \(request ID r-17\)$"):
            await http.request("GET", "/machines", query={"token": "hush"})

    (values,) = logged(caplog)
    assert (values["request"], values["status"]) == ("GET /v1/machines", 409)
    assert values["request_id"] == "r-17"
    assert "hush" not in str(values)


@pytest.mark.parametrize("one", [UUID, UUID.replace("-", ""), UUID.upper()])
async def test_errors_have_no_ids_of_objects_and_the_log_has_the_whole_answer(
    one: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Authors of Services read the errors of a cloud, which names objects of others."""
    text = f"No more IP addresses available on network {one}."
    handler = answering(status=409, text=text, headers={"X-Amzn-RequestId": f"req-{UUID}"})
    caplog.set_level(logging.INFO)

    async with serving(handler, None) as served, http_client(settings(served)) as http:
        with pytest.raises(Conflict) as refused:
            await http.request("PUT", f"/ports/{one}")

    said = "PUT /v1/ports/<ID>: 409 No more IP addresses available on network <ID>."
    assert str(refused.value) == f"{said} (request ID req-{UUID})"
    (values,) = logged(caplog)
    assert (values["request"], values["answer"]) == (f"PUT /v1/ports/{one}", text)
    assert values["request_id"] == f"req-{UUID}"


async def test_an_object_that_is_not_found_when_it_is_read_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    handler = answering(status=404, text=f"Port {UUID} could not be found.")
    async with serving(handler, None) as served, http_client(settings(served)) as http:
        with pytest.raises(NotFound, match="Port <ID> could not be found"):
            await http.request("GET", f"/ports/{UUID}")
    assert logged(caplog) == []


async def test_a_provider_can_tell_errors_apart_by_the_body() -> None:
    def error_of(answer: Answer, usual: CloudError) -> CloudError:
        return QuotaExceeded(str(usual)) if answer.json()["code"] == "quota" else usual

    handler = answering(status=403, text='{"code": "quota"}')
    async with (
        serving(handler, None) as served,
        http_client(settings(served), error_of=error_of) as http,
    ):
        with pytest.raises(QuotaExceeded):
            await http.request("POST", "/machines")


async def test_an_answer_that_is_not_json_is_unavailable() -> None:
    async with (
        serving(answering(text="<html>"), None) as served,
        http_client(settings(served)) as http,
    ):
        answer = await http.request("GET", "/machines")
        with pytest.raises(Unavailable, match="GET /v1/machines: the answer is not JSON"):
            answer.json()


async def test_bodies_have_bounds() -> None:
    handler = answering(body=b"x" * 2000)

    async with (
        serving(handler, None) as served,
        http_client(settings(served, max_body=1000)) as http,
    ):
        with pytest.raises(Unavailable, match="the answer has more than 1000 bytes"):
            await http.request("GET", "/machines")
        with pytest.raises(Rejected, match="not sent, its body has 1001 bytes"):
            await http.request("PUT", "/machines", body=b"x" * 1001)

    assert len(served.requests) == 1


async def test_a_compressed_answer_is_refused() -> None:
    handler = answering(body=b"x", headers={"Content-Encoding": "gzip"})

    async with serving(handler, None) as served, http_client(settings(served)) as http:
        with pytest.raises(Unavailable, match="the answer is compressed"):
            await http.request("GET", "/machines")

    assert served.requests[0].headers["Accept-Encoding"] == "identity"


async def test_a_server_that_hangs_is_given_up() -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async with (
        serving(hang, None) as served,
        http_client(settings(served, timeout=0.05)) as http,
    ):
        with pytest.raises(Unavailable, match=r"GET /v1/machines: no answer within 0\.05 s"):
            await http.request("GET", "/machines")


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    async with serving(answering(), None) as served:
        gone = settings(served)
    async with http_client(gone) as http:
        with pytest.raises(Unavailable, match="GET /v1/machines: cannot connect to 127.0.0.1:"):
            await http.request("GET", "/machines")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "PATCH"])
async def test_a_write_is_never_sent_twice(method: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        if len(served.requests) > 1:
            assert request.transport
            request.transport.close()
        return web.Response()

    async with serving(answer, None) as served, http_client(settings(served)) as http:
        await http.request("GET", "/machines")
        with pytest.raises(Unavailable, match="the request may have had its effect"):
            await http.request(method, "/machines")

    assert len(served.requests) == 2


async def test_a_post_that_only_reads_is_sent_again_like_a_get() -> None:
    async def answer(request: web.Request) -> web.Response:
        if len(served.requests) == 2:
            assert request.transport
            request.transport.close()
        return web.json_response([len(served.requests)])

    async with serving(answer, None) as served, http_client(settings(served)) as http:
        await http.request("GET", "/machines")
        got = await http.request("POST", "/", json={"Action": "DescribeInstances"}, reads=True)

    assert got.json() == [3]
    assert [one.method for one in served.requests] == ["GET", "POST", "POST"]


@pytest.mark.parametrize("reads", [True, False])
async def test_only_a_post_that_may_write_says_that_it_may_have_had_an_effect(
    *, reads: bool
) -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.transport
        request.transport.close()
        return web.Response()

    async with serving(answer, None) as served, http_client(settings(served)) as http:
        with pytest.raises(Unavailable) as lost:
            await http.request("POST", "/", reads=reads)

    assert ("may have had its effect" in str(lost.value)) is not reads
    assert str(lost.value).startswith("POST /v1/: ")


async def test_redirects_are_not_followed() -> None:
    handler = answering(status=307, headers={"Location": "http://192.0.2.1/"})

    async with serving(handler, None) as served, http_client(settings(served)) as http:
        with pytest.raises(Rejected, match="307 Temporary Redirect"):
            await http.request("GET", "/machines")


async def test_links_to_the_same_server_are_followed_and_others_are_not() -> None:
    async with serving(answering(), None) as served, http_client(settings(served)) as http:
        await http.request("GET", f"{served.url}/v1/machines?page=2", query={"size": "9"})
        with pytest.raises(Rejected, match="not sent to 192.0.2.1: it is not the server"):
            await http.request("GET", "http://192.0.2.1/v1/machines?page=3")

    assert [one.path_qs for one in served.requests] == ["/v1/machines?page=2&size=9"]


async def test_requests_are_authorized_by_what_they_are() -> None:
    async def sign(request: Request) -> Mapping[str, str]:
        return {"Authorization": f"sum {len(request.body)} of {request.method} {request.url}"}

    async with (
        serving(answering(), None) as served,
        http_client(settings(served), authorize=sign) as http,
    ):
        await http.request("PUT", "/machines", body=b"123")

    expected = f"sum 3 of PUT {served.url}/v1/machines"
    assert served.requests[0].headers["Authorization"] == expected


async def test_a_header_that_is_invalid_is_not_shown() -> None:
    async def token(_: Request) -> Mapping[str, str]:
        return {"Authorization": "hush\r\nX: y"}

    async with (
        serving(answering(), None) as served,
        http_client(settings(served), authorize=token) as http,
    ):
        with pytest.raises(Rejected, match="not sent, a header is invalid") as raised:
            await http.request("GET", "/machines")

    assert "hush" not in str(raised.value)
    assert not served.requests


async def test_nothing_is_sent_without_permission() -> None:
    def refuse() -> None:
        raise Unavailable("not the leader")

    async with serving(answering(), None) as served, http_client(settings(served)) as http:
        with permitted_by(refuse), pytest.raises(Unavailable, match="not the leader"):
            await http.request("POST", "/machines")
        await http.request("POST", "/machines")

    assert len(served.requests) == 1


async def test_permission_is_asked_after_waiting_for_a_connection() -> None:
    release, leader = asyncio.Event(), [True]

    async def answer(request: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    def check() -> None:
        if not leader[0]:
            raise Unavailable("not the leader")

    async with (
        serving(answer, None) as served,
        http_client(settings(served, connections=1)) as http,
        asyncio.TaskGroup() as group,
    ):
        with permitted_by(check):
            first = group.create_task(http.request("POST", "/first"))
            while not served.requests:
                await asyncio.sleep(0.001)
            second = group.create_task(error_of(http.request("POST", "/second")))
            await asyncio.sleep(0)
            leader[0] = False
            release.set()

    assert first.result().status == 200
    assert str(second.result()) == "not the leader"
    assert [one.path for one in served.requests] == ["/v1/first"]


async def test_permission_is_asked_after_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = [True]
    connect = Client.new

    async def slowly(self: Client, context: ssl.SSLContext | None) -> Connection:
        made = await connect(self, context)
        leader[0] = False
        return made

    def check() -> None:
        if not leader[0]:
            raise Unavailable("not the leader")

    monkeypatch.setattr(Client, "new", slowly)
    async with serving(answering(), None) as served, http_client(settings(served)) as http:
        with permitted_by(check), pytest.raises(Unavailable, match="not the leader"):
            await http.request("POST", "/machines")

    assert not served.requests


async def error_of(work: Awaitable[object]) -> Exception | None:
    try:
        await work
    except CloudError as error:
        return error
    return None


async def test_a_pause_that_the_cloud_asks_for_is_passed_on_at_once() -> None:
    pauses: list[float] = []
    handler = answering(status=429, headers={"Retry-After": "7"})

    async with serving(handler, None) as served, http_client(settings(served)) as http:
        with permitted_by(lambda: None, pauses.append), pytest.raises(Throttled):
            await http.request("GET", "/machines")

    assert pauses == [7]
    assert len(served.requests) == 1, "the client never retries"
