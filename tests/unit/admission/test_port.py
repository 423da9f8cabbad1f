"""The webhook port over real TLS on loopback."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec
import pytest

from pileus.admission.certificates import Step, Stored, performed
from pileus.admission.port import AT_ONCE, Served, deadline, opened
from pileus.admission.review import ALLOWED, AdmissionRequest, Answer, Outcome, Review, refused
from pileus.admission.serving_certificate import SecretFollower
from pileus.kube.client import Client
from pileus.server.errors import CannotListen
from pileus.server.settings import ServingOptions
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.control_plane import free_ports
from tests.unit.admission.beds import Objects

pytestmark = pytest.mark.real_time

SECRET = "/api/v1/namespaces/kube-system/secrets/cloud-controller-manager-webhook"
JSON = {"Content-Type": "application/json"}


def created() -> Stored:
    return performed(Step.CREATE, None, (), datetime.now(UTC))


async def review(request: AdmissionRequest) -> Answer:
    match request.name:
        case "bad":
            return refused("not this one")
        case "slow":
            await asyncio.sleep(60)
        case "bug":
            raise KeyError("a bug")
        case "patched":
            return Answer(
                outcome=Outcome.CHANGED, patch=[{"op": "add"}], warnings=("a" * 300, "short")
            )
        case _:
            pass
    return ALLOWED


class Bed:
    def __init__(self) -> None:
        self.kube = Objects()
        self.metrics = Metrics(MetricRegistry())
        self.port = free_ports(1)[0]
        self.options = ServingOptions(bind_address="127.0.0.1", port=self.port)
        client = Client(self.kube, user_agent="test", metrics=self.metrics)
        self.client = client

    def put(self, stored: Stored) -> None:
        data = {key: _base64(value) for key, value in stored.data().items() if value}
        self.kube.put(SECRET, {"metadata": {"name": "x"}, "data": data})

    async def post(
        self, body: bytes, bundle: bytes, path: str = "/admission/x", **more: Any
    ) -> tuple[int, str]:
        trust = ssl.create_default_context(cadata=bundle.decode())
        url = f"https://127.0.0.1:{self.port}{path}"
        method, headers = more.get("method", "POST"), more.get("headers", JSON)
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, data=body, headers=headers, ssl=trust) as answer,
        ):
            return answer.status, await answer.text()


def _base64(value: bytes) -> str:
    return json.loads(msgspec.json.encode(value))


def asked(name: str) -> bytes:
    request = {"uid": "u-1", "name": name, "operation": "CREATE", "object": {"metadata": {}}}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(body).encode()


@asynccontextmanager
async def serving(decide: Review = review) -> AsyncGenerator[tuple[Bed, Stored, SecretFollower]]:
    bed, stored = Bed(), created()
    bed.put(stored)
    with opened(bed.options, bed.metrics) as port:
        assert port is not None
        follower = SecretFollower(bed.client, port.tls, bed.metrics)
        assert await follower.refresh()
        async with port.serving({"/admission/x": Served("x", decide)}):
            yield bed, stored, follower


@pytest.mark.parametrize(
    ("name", "response"),
    [
        ("good", {"uid": "u-1", "allowed": True}),
        (
            "bad",
            {
                "uid": "u-1",
                "allowed": False,
                "status": {"message": "not this one", "reason": "Forbidden", "code": 403},
            },
        ),
        (
            "patched",
            {
                "uid": "u-1",
                "allowed": True,
                "patchType": "JSONPatch",
                "patch": _base64(b'[{"op":"add"}]'),
                "warnings": ["a" * 249 + "…", "short"],
            },
        ),
    ],
)
async def test_a_review_is_answered_with_its_uid(name: str, response: dict[str, Any]) -> None:
    async with serving() as (bed, stored, _):
        status, text = await bed.post(asked(name), stored.bundle)

    assert status == 200
    assert json.loads(text) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    }


@pytest.mark.parametrize(
    ("body", "more", "status", "text"),
    [
        (asked("good"), {"method": "PUT"}, 400, "expected POST"),
        (asked("good"), {"headers": {"Content-Type": "text/plain"}}, 400, "expected Content-Type"),
        (b"{", {}, 400, "the body is not an AdmissionReview"),
        (b"{}", {}, 400, "expected admission.k8s.io/v1 AdmissionReview, got ? ?"),
        (asked("good").replace(b"u-1", b""), {}, 400, "no request with a uid"),
        (asked("bug"), {}, 500, "internal error; see the log"),
        (asked("good"), {"path": "/other"}, 404, "404 page not found"),
    ],
)
async def test_what_is_no_review_gets_the_answer_of_the_go_framework(
    body: bytes, more: dict[str, Any], status: int, text: str
) -> None:
    async with serving() as (bed, stored, _):
        found = await bed.post(body, stored.bundle, **more)

    assert found[0] == status
    assert text in found[1]


async def test_the_answer_comes_before_the_api_server_gives_up() -> None:
    async with serving() as (bed, stored, _):
        path = "/admission/x?timeout=1s"
        status, text = await bed.post(asked("slow"), stored.bundle, path)

    assert status == 200
    assert json.loads(text)["response"]["allowed"] is True
    assert "no answer from the cloud within 0.8 s" in text


async def test_a_flood_of_reviews_asks_the_cloud_a_few_at_a_time() -> None:
    running, counts = 0, list[int]()

    async def asking(_: AdmissionRequest) -> Answer:
        nonlocal running
        running += 1
        counts.append(running)
        await asyncio.sleep(1)
        running -= 1
        return ALLOWED

    async with serving(asking) as (bed, stored, _), asyncio.TaskGroup() as group:
        for _ in range(2 * AT_ONCE):
            group.create_task(bed.post(asked("good"), stored.bundle))

    assert len(counts) == 2 * AT_ONCE
    assert max(counts) == AT_ONCE


async def test_time_that_a_review_waits_for_others_counts_in_its_deadline() -> None:
    others_end = asyncio.Event()
    started: list[str] = []

    async def asking(review: AdmissionRequest) -> Answer:
        started.append(review.name)
        if review.name == "other":
            await others_end.wait()
        return ALLOWED

    async with serving(asking) as (bed, stored, _), asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(bed.post(asked("other"), stored.bundle))
        while len(started) < AT_ONCE:
            await asyncio.sleep(0.01)
        group.create_task(_set_after(others_end, 2))
        _, text = await bed.post(asked("late"), stored.bundle, "/admission/x?timeout=1s")
        others_end.set()

    assert "no answer from the cloud within 0.8 s" in text
    assert "late" not in started


async def _set_after(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    event.set()


async def test_successful_requests_are_counted_too() -> None:
    async with serving() as (bed, stored, _):
        await bed.post(asked("good"), stored.bundle)
        await bed.post(b"{", stored.bundle)

    counted = bed.metrics.registry.value
    requests = "cloud_provider_webhook_request_total"
    assert counted(requests, {"code": "200", "webhook": "x"}) == 1
    assert counted(requests, {"code": "400", "webhook": "x"}) == 1
    unchanged = {"webhook": "x", "answer": "unchanged"}
    assert counted("pileus_webhook_reviews_total", unchanged) == 1


async def test_a_rotated_certificate_is_served_without_a_restart() -> None:
    async with serving() as (bed, first, follower):
        second = created()
        bed.put(second)
        await follower.refresh()

        assert (await bed.post(asked("good"), second.bundle))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await bed.post(asked("good"), first.bundle)


async def test_a_secret_that_cannot_be_read_keeps_the_certificate_in_use() -> None:
    async with serving() as (bed, stored, follower):
        bed.kube.put(SECRET, {"metadata": {"name": "x"}, "data": {"tls.crt": "aGk="}})
        assert await follower.refresh()
        del bed.kube.kept[SECRET]
        assert await follower.refresh()

        assert (await bed.post(asked("good"), stored.bundle))[0] == 200


async def test_before_the_leader_has_created_a_certificate_no_client_can_connect() -> None:
    bed = Bed()
    with opened(bed.options, bed.metrics) as port:
        assert port is not None
        assert not await SecretFollower(bed.client, port.tls, bed.metrics).refresh()
        async with port.serving({}):
            with pytest.raises(aiohttp.ClientConnectorError):
                await bed.post(asked("good"), created().bundle)


async def test_a_port_in_use_names_the_flag_of_the_webhook_port() -> None:
    bed = Bed()
    with (
        opened(bed.options, bed.metrics),
        pytest.raises(CannotListen, match="use another --webhook-secure-port"),
        opened(bed.options, bed.metrics),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 8.0), ("", 4.0), ("1.5s", 0.8), ("nonsense", 4.0), ("900s", 24.0)]
)
def test_the_deadline_is_below_the_timeout_of_the_api_server(text: str, seconds: float) -> None:
    assert deadline(text) == pytest.approx(seconds)
