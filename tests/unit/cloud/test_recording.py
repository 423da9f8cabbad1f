import json
from collections.abc import Mapping

import pytest
from aiohttp import web

from pileus.cloud.errors import NotFound
from pileus.cloud.http import Answer, HttpSettings, Request, http_client
from pileus.cloud.recording import NotRecorded, Recording, Replay, exchange_of, replayed
from tests.unit.kube.https_server import serving

KEY = "-----BEGIN EC PRIVATE KEY-----\nhush\n-----END EC PRIVATE KEY-----"
TOKEN = "eyJhbGciOiJI.eyJzdWIiOiIx.hush-hush"


async def sign(_: Request) -> Mapping[str, str]:
    return {"Authorization": "Bearer hush"}


async def machines(request: web.Request) -> web.Response:
    if request.path.endswith("/gone"):
        return web.json_response({"message": "no such machine"}, status=404)
    return web.json_response(
        {"machines": [{"id": "m1", "private_ip": "10.0.0.1", "admin_password": "hush"}]},
        headers={"X-Request-Id": "r1", "Set-Cookie": "session=hush"},
    )


@pytest.mark.real_time
async def test_what_was_recorded_is_replayed_without_its_secrets() -> None:
    recording = Recording()
    async with serving(machines, None) as served:
        settings = HttpSettings(base_url=f"{served.url}/v1")
        async with http_client(settings, authorize=sign, around=recording.around) as http:
            await http.request("GET", "/machines", query={"page": "1", "access_token": "hush"})
            with pytest.raises(NotFound):
                await http.request("POST", "/gone", json={"user": "me", "password": "hush"})

    text = recording.dump()
    assert "hush" not in text
    replay = Replay(Recording.load(text))
    http = replayed(HttpSettings(base_url="https://elsewhere/v1"), replay, authorize=sign)

    answer = await http.request("GET", "/machines", query={"page": "1", "access_token": "other"})
    (machine,) = answer.json()["machines"]
    assert (machine["id"], machine["private_ip"]) == ("m1", "10.0.0.1")
    assert answer.request_id == "r1"
    assert [one.target for one in replay.unused()] == ["/v1/gone"]
    with pytest.raises(NotFound, match="POST /v1/gone: 404 no such machine"):
        await http.request("POST", "/gone", json={"user": "me", "password": "another"})
    assert replay.unused() == ()


async def test_a_request_that_was_not_recorded_is_an_error_that_names_what_is_left() -> None:
    request = Request("GET", "https://cloud/v1/machines", {})
    recording = Recording(exchange_of(request, Answer(200, {}, b"", request)))
    http = replayed(HttpSettings(base_url="https://cloud/v1"), recording)

    with pytest.raises(NotRecorded, match="DELETE.*left in the recording: GET /v1/machines"):
        await http.request("DELETE", "/machines")


async def test_equal_requests_are_answered_in_recorded_order_each_once() -> None:
    request = Request("GET", "https://cloud/v1/machines", {})
    answers = [Answer(200, {}, text, request) for text in (b"first", b"second", b"\xff\x00")]
    recording = Recording(*(exchange_of(request, answer) for answer in answers))
    http = replayed(HttpSettings(base_url="https://cloud/v1"), Recording.load(recording.dump()))

    bodies = [(await http.request("GET", "/machines")).body for _ in answers]

    assert bodies == [b"first", b"second", b"\xff\x00"]
    with pytest.raises(NotRecorded, match="nothing"):
        await http.request("GET", "/machines")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", json.dumps({"a": [{"clientSecret": "hush", "b": None}]})),
        ("application/json", json.dumps({"note": f"use {TOKEN} for it", "file": KEY})),
        ("application/x-www-form-urlencoded", "Action=Run&AWSAccessKeyId=hush&X-Signature=hush"),
        ("text/xml", "<R><Id>i1</Id><SecretAccessKey>hush</SecretAccessKey></R>"),
        ("text/plain", f"Authorization: Bearer hush and {KEY}"),
    ],
)
def test_secrets_in_bodies_are_replaced(kind: str, body: str) -> None:
    request = Request("POST", "https://cloud/?X-Amz-Signature=hush", {"content-type": kind}, b"")
    request = Request(request.method, request.url, request.headers, body.encode())
    answer = Answer(200, {"content-type": kind, "x-auth-token": "hush"}, body.encode(), request)

    recorded = Recording(exchange_of(request, answer)).dump()

    assert "hush" not in recorded
    assert "REDACTED" in recorded


def test_what_is_no_secret_is_kept() -> None:
    facts = {
        "session_persistence": {"type": "SOURCE_IP"},
        "private_ip": "10.0.0.1",
        "authority": "ca",
        "key": "value",
        "count": 7,
    }
    request = Request("GET", "https://cloud/v1/pools?key=a", {})

    exchange = exchange_of(request, Answer(200, {}, json.dumps(facts).encode(), request))

    assert json.loads(exchange.answer) == facts
    assert exchange.target == "/v1/pools?key=a"


@pytest.mark.parametrize("text", ["no JSON", '{"method": "GET"}', "[1]"])
def test_what_is_no_recording_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Recording.load(text)
