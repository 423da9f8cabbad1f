"""HTTP responses of Kubernetes components: plain text, JSON, Status objects."""

from collections.abc import Mapping

import msgspec
from aiohttp import web

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


def text(body: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        text=body,
        status=status,
        content_type="text/plain",
        charset="utf-8",
        headers={**NO_SNIFFING, **(headers or {})},
    )


def json(value: object, *, status: int = 200) -> web.Response:
    """The value as JSON, indented for human eyes."""
    body = msgspec.json.format(msgspec.json.encode(value), indent=2)
    return web.Response(
        body=body + b"\n", status=status, content_type="application/json", headers=NO_SNIFFING
    )


def unauthorized() -> web.Response:
    refusal = Status(message="Unauthorized", reason="Unauthorized", code=401)
    return json(refusal, status=refusal.code)


def forbidden(message: str) -> web.Response:
    refusal = Status(message=message, reason="Forbidden", details={}, code=403)
    return json(refusal, status=refusal.code)


def not_found() -> web.Response:
    return text("404 page not found\n", status=404)


def not_allowed(*methods: str) -> web.Response:
    allowed = ", ".join(methods)
    return text(f"only {allowed} here\n", status=405, headers={"Allow": allowed})
