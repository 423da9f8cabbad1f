"""What is asked of the API server, and how its answers are understood."""

import asyncio
from collections.abc import Mapping

import msgspec
import pytest

from pileus.kube.client import Client
from pileus.kube.transport import Request
from pileus.server.reviews import (
    NO_DELEGATES,
    ClusterAccessReviews,
    ClusterSettings,
    ClusterTokenReviews,
    ReviewFailed,
    Verdict,
    delegates_of,
)
from pileus.server.users import User
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.scripted import (
    Answer,
    Cut,
    Lost,
    Scripted,
    ScriptedTransport,
    Silence,
    Stream,
    event,
    in_order,
    refused,
)

JANE = User("jane", "7", ("dev",), (("scopes", ("a", "b")),))


class Server:
    def __init__(self, *replies: Scripted) -> None:
        self.transport = ScriptedTransport(in_order(*replies))
        metrics = Metrics(MetricRegistry())
        self.client = Client(self.transport, user_agent="test", metrics=metrics)

    @property
    def sent(self) -> Request:
        return self.transport.requests[-1]

    @property
    def spec(self) -> object:
        return msgspec.json.decode(self.sent.body or b"{}")["spec"]


def reviewed(**status: object) -> Answer:
    return Answer(201, {"kind": "TokenReview", "status": status})


async def test_a_token_is_reviewed():
    user = {
        "username": "jane",
        "uid": "7",
        "groups": ["dev"],
        "extra": {"scopes": ["a", "b"]},
    }
    server = Server(reviewed(authenticated=True, user=user))

    assert await ClusterTokenReviews(server.client).review("secret") == JANE

    assert server.sent.path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert server.spec == {"token": "secret"}


@pytest.mark.parametrize("status", [{}, {"authenticated": False}, {"authenticated": True}])
async def test_a_token_that_is_not_vouched_for_is_nobodys(status: dict[str, object]):
    server = Server(reviewed(**status))

    assert await ClusterTokenReviews(server.client).review("secret") is None


async def test_an_error_in_a_review_is_a_failure_that_stays():
    server = Server(reviewed(error="issuer unknown"))

    with pytest.raises(ReviewFailed, match="issuer unknown") as failure:
        await ClusterTokenReviews(server.client).review("secret")

    assert not failure.value.passing


async def test_a_right_is_reviewed():
    server = Server(Answer(201, {"status": {"allowed": True, "reason": "role x"}}))

    verdict = await ClusterAccessReviews(server.client).review(JANE, "get", "/metrics")

    assert verdict == Verdict(allowed=True, reason="role x")
    assert server.sent.path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert server.spec == {
        "user": "jane",
        "uid": "7",
        "groups": ["dev"],
        "extra": {"scopes": ["a", "b"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


@pytest.mark.parametrize(
    "status", [{}, {"allowed": False}, {"allowed": True, "denied": True}, {"denied": True}]
)
async def test_a_right_that_is_not_granted_is_denied(status: dict[str, object]):
    server = Server(Answer(201, {"status": status}))

    verdict = await ClusterAccessReviews(server.client).review(JANE, "get", "/metrics")

    assert not verdict.allowed


@pytest.mark.parametrize(
    ("reply", "code", "passing"),
    [
        (refused(403, "Forbidden"), 403, False),
        (refused(500, "InternalError"), 500, True),
        (refused(503), 503, True),
        (refused(504, "Timeout"), 504, True),
        (Lost(), 0, True),
        (Answer(201, b"what is this"), 0, False),
        (Answer(201, {}), 201, False),
    ],
)
async def test_a_failure_says_whether_another_try_may_help(
    reply: Scripted, code: int, passing: bool
):
    with pytest.raises(ReviewFailed) as failure:
        await ClusterAccessReviews(Server(reply).client).review(JANE, "get", "/metrics")

    assert (failure.value.code, failure.value.passing) == (code, passing)


async def test_the_settings_are_read():
    server = Server(Answer(200, {"data": {"client-ca-file": "x"}}))

    assert await ClusterSettings(server.client).read() == {"client-ca-file": "x"}

    name = "extension-apiserver-authentication"
    assert server.sent.path == f"/api/v1/namespaces/kube-system/configmaps/{name}"


async def test_the_settings_are_followed_through_outages_without_haste():
    def changed(value: str, kind: str = "MODIFIED") -> dict[str, object]:
        return event(kind, {"metadata": {"name": "n"}, "data": {"client-ca-file": value}})

    server = Server(
        Stream((changed("a", "ADDED"), changed("b"), Cut())),
        Lost(),
        refused(403, "Forbidden"),
        Stream((changed("c", "ADDED"), changed("c", "DELETED"), Silence(60))),
        Stream((Silence(3600),)),
    )
    seen: list[Mapping[str, str]] = []

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await ClusterSettings(server.client).follow(seen.append)

    assert [settings["client-ca-file"] for settings in seen] == ["a", "b", "c"]
    assert server.sent.query["fieldSelector"] == "metadata.name=extension-apiserver-authentication"
    assert len(server.transport.requests) == 5


def test_without_clients_nothing_is_delegated():
    assert delegates_of(None, None) == NO_DELEGATES
