"""Every no of an API server becomes the error that names the next step."""

import msgspec
import pytest

from pileus.kube import errors
from pileus.kube.errors import ApiError, Unreachable, refusal, refusal_in_stream
from pileus.testing.scripted import status

PATH = "/api/v1/nodes/worker-1"


def refuse(
    code: int, body: object, *, method: str = "GET", headers: dict[str, str] | None = None
) -> ApiError:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return refusal(method, PATH, code, headers=headers or {}, body=raw)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Expired),
        (410, "Gone", errors.Expired),
        (413, "RequestEntityTooLarge", errors.TooLarge),
        (415, "UnsupportedMediaType", errors.UnsupportedMediaType),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.InternalError),
        (500, "ServerTimeout", errors.ServerTimeout),
        (503, "ServiceUnavailable", errors.ServiceUnavailable),
        (504, "Timeout", errors.Timeout),
    ],
)
def test_the_reason_decides_the_kind(code: int, reason: str, kind: type[ApiError]):
    error = refuse(code, status(code, reason, "because"))

    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (code, reason, "because")


@pytest.mark.parametrize(
    ("code", "reason", "message", "explained"),
    [
        (401, "Unauthorized", "Unauthorized", True),
        (403, "Forbidden", 'User "system:anonymous" cannot list resource "nodes"', True),
        (403, "Forbidden", 'User "dev" cannot list resource "nodes"', False),
    ],
)
def test_credentials_are_explained_where_they_are_wrong_or_missing(
    code: int, reason: str, message: str, explained: bool
):
    body = msgspec.json.encode(status(code, reason, message))
    error = refusal("GET", PATH, code, headers={}, body=body, credentials="renew them")

    assert str(error).endswith(f"{message}; renew them" if explained else message)


@pytest.mark.parametrize(
    ("method", "code", "kind"),
    [
        ("GET", 404, errors.NotFound),
        ("POST", 409, errors.AlreadyExists),
        ("PUT", 409, errors.Conflict),
        ("GET", 410, errors.Expired),
        ("GET", 429, errors.TooManyRequests),
        ("GET", 502, ApiError),
        ("GET", 503, errors.ServiceUnavailable),
    ],
)
def test_without_a_reason_the_code_decides(method: str, code: int, kind: type[ApiError]):
    assert type(refuse(code, status(code), method=method)) is kind


def test_an_unknown_reason_falls_back_to_the_code():
    assert type(refuse(404, status(404, "Vanished"))) is errors.NotFound


@pytest.mark.parametrize(
    "body", [b"<html>Bad\n gateway</html>", b"", b'"text"', b"[]", b"\xff\xfe", b'{"kind":"Node"}']
)
def test_a_body_that_is_no_status_is_quoted(body: bytes):
    error = refuse(503, body)

    assert type(error) is errors.ServiceUnavailable
    assert str(error).startswith(f"GET {PATH}: 503 ServiceUnavailable")
    assert "\n" not in str(error)


def test_a_long_body_is_cut():
    assert len(str(refuse(500, b"x" * 1_000_000))) < 500


def test_the_text_names_request_code_and_message():
    error = refuse(404, status(404, "NotFound", 'nodes "worker-1" not found'))

    assert str(error) == f'GET {PATH}: 404 NotFound: nodes "worker-1" not found'


def test_retry_after_comes_from_the_header():
    assert refuse(429, status(429), headers={"Retry-After": "7"}).retry_after == 7.0


def test_retry_after_comes_from_the_details_else():
    body = {**status(429), "details": {"retryAfterSeconds": 3}}

    assert refuse(429, body, headers={"Retry-After": "soon"}).retry_after == 3.0
    assert refuse(429, status(429)).retry_after is None


def test_the_details_name_the_object():
    body = {**status(404), "details": {"name": "worker-1", "kind": "nodes", "causes": None}}

    assert refuse(404, body).details.name == "worker-1"


def test_an_error_event_takes_its_code_from_the_status():
    error = refusal_in_stream("/api/v1/nodes", msgspec.json.encode(status(410, "Expired", "old")))

    assert type(error) is errors.Expired
    assert str(error) == "WATCH /api/v1/nodes: 410 Expired: old"


def test_an_error_event_that_is_no_status_is_an_internal_error():
    assert type(refusal_in_stream("/api/v1/nodes", b"{}")) is errors.InternalError


def test_unreachable_says_whether_something_may_have_happened():
    sure = Unreachable("GET /x", "10.0.0.1:6443", "cannot connect")
    unsure = Unreachable("PUT /x", "10.0.0.1:6443", "no answer", may_have_acted=True)

    assert str(sure) == "GET /x: API server 10.0.0.1:6443: cannot connect"
    assert "may have taken effect" in str(unsure)
