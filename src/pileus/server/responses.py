"""HTTP responses of Kubernetes components: plain text, JSON, Status objects."""

from collections.abc import Mapping

import msgspec

from pileus.http.messages import Response

NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}


class Status(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The error object of the Kubernetes API."""

    kind: str = "Status"
    api_version: str = "v1"
    metadata: dict[str, str] = {}
    status: str = "Failure"
    message: str
    reason: str
    details: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    code: int


def text(body: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    kind = {"Content-Type": "text/plain; charset=utf-8"}
    return Response(status, body.encode(), {**kind, **NO_SNIFFING, **(headers or {})})


def json(value: object, *, status: int = 200) -> Response:
    """The value as JSON, indented for human eyes."""
    body = msgspec.json.format(msgspec.json.encode(value), indent=2)
    return Response(status, body + b"\n", {"Content-Type": "application/json", **NO_SNIFFING})


def unauthorized() -> Response:
    refusal = Status(message="Unauthorized", reason="Unauthorized", code=401)
    return json(refusal, status=refusal.code)


def forbidden(message: str) -> Response:
    refusal = Status(message=message, reason="Forbidden", details={}, code=403)
    return json(refusal, status=refusal.code)


def not_found() -> Response:
    return text("404 page not found\n", status=404)


def not_allowed(*methods: str) -> Response:
    allowed = ", ".join(methods)
    return text(f"only {allowed} here\n", status=405, headers={"Allow": allowed})
