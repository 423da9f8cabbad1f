"""A Keystone on loopback, and a Nova behind it that knows its tokens; for the tests beside it."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from ssl import SSLContext
from typing import Any

from aiohttp import web

from pileus.cloud.interface import ProviderConfig
from tests.unit.kube.https_server import serving


def strings() -> list[str]:
    return []


@dataclass
class Keystone:
    """Every part of its behaviour can be changed while it runs."""

    url: str = ""
    secrets: dict[str, str] = field(default_factory=lambda: {"hunter2": "p"})
    """Passwords that are accepted, with the project of their tokens."""
    lifetime: int = 3600
    is_down: bool = False
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Requests for tokens wait for it."""
    tokens: set[str] = field(default_factory=set[str])
    """Tokens that services accept."""
    asked: list[Any] = field(default_factory=list[Any])
    """Bodies of all requests for tokens."""
    calls: list[str] = field(default_factory=strings)
    """Tokens of all requests to Nova."""
    services: tuple[str, ...] = ("compute",)
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Of the last request to Nova."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/v3/auth/tokens":
            return await self._token(request)
        if not request.path.startswith("/v2.1/"):
            return fault(404, "Not Found")
        token = request.headers.get("X-Auth-Token", "")
        self.calls.append(token)
        self.headers = dict(request.headers)
        if token not in self.tokens:
            return fault(401, "The request you have made requires authentication.")
        return web.json_response({"servers": []})

    async def _token(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.text() or "{}")
        self.asked.append(body)
        await self.gate.wait()
        if self.is_down:
            return fault(503, "Service Unavailable")
        if request.method == "GET":
            token = request.headers["X-Subject-Token"]
            project = "p" if token in self.tokens else None
        else:
            secret = secret_of(body["auth"]["identity"])
            project = self.secrets.get(secret)
            token = f"token-{len(self.asked)}"
        if project is None:
            return fault(401, "The request you have made requires authentication.")
        self.tokens.add(token)
        now = datetime.now(UTC).replace(microsecond=0)
        return web.json_response(
            {"token": self._issued(project, now + timedelta(seconds=self.lifetime))},
            status=201,
            headers={"X-Subject-Token": token, "Date": format_datetime(now, usegmt=True)},
        )

    def _issued(self, project: str, expires: datetime) -> object:
        endpoint = {"interface": "public", "region_id": "R", "url": f"{self.url}/v2.1"}
        return {
            "expires_at": expires.isoformat(),
            "project": {"id": project},
            "catalog": [{"type": each, "endpoints": [endpoint]} for each in self.services],
        }


def secret_of(identity: Any) -> str:
    method = identity["methods"][0]
    if method == "password":
        return str(identity["password"]["user"]["password"])
    return str(identity[method].get("secret") or identity[method].get("id"))


def fault(status: int, message: str) -> web.Response:
    headers = {"x-openstack-request-id": "req-1"}
    body = {"error": {"code": status, "message": message}}
    return web.json_response(body, status=status, headers=headers)


@asynccontextmanager
async def keystone(context: SSLContext | None = None) -> AsyncGenerator[Keystone]:
    running = Keystone()
    running.gate.set()
    async with serving(running.answer, context) as served:
        running.url = served.url
        yield running


def conf(running: Keystone, password: str = "hunter2", more: str = "") -> str:
    return (
        f"[Global]\nauth-url = {running.url}\nuser-id = u\npassword = {password}\n"
        f"tenant-id = p\n{more}\n"
    )


def config_file(path: Path, text: str, **environ: str) -> ProviderConfig:
    """Returns the configuration of a provider that was started with this file."""
    path.write_text(text)
    return ProviderConfig(path=str(path), text=text, environ=environ)
