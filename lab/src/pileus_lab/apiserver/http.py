"""The server on an HTTPS port: a thin shell around `Api`."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from pileus.telemetry.log import Log
from pileus_lab.apiserver import impersonation, problem
from pileus_lab.apiserver.api import Api, refusal
from pileus_lab.apiserver.call import JSON, Request, Response
from pileus_lab.apiserver.identity import User, subject_of
from pileus_lab.apiserver.sqlite import NotKept, SqliteJournal
from pileus_lab.apiserver.state import BODY_LIMIT

log = Log(__name__)
_PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")


@dataclass(slots=True)
class Front:
    """Takes requests, waits until what they changed lasts, answers."""

    api: Api
    journal: SqliteJournal | None = None
    in_flight: int = 0

    async def respond(self, request: Request) -> Response:
        if self.in_flight >= self.api.state.options.max_in_flight:
            return refusal(problem.too_many_requests())
        self.in_flight += 1
        try:
            response = self.api.respond(request)
            if self.journal is not None:
                await self.journal.kept()
        except NotKept as error:
            return refusal(problem.internal(str(error)))
        finally:
            self.in_flight -= 1
        return response


def application(front: Front) -> web.Application:
    """Return the aiohttp application that serves it."""

    async def respond(given: web.Request) -> web.StreamResponse:
        request = await _read(given)
        if isinstance(request, Response):
            return _whole(given, request)
        response = await front.respond(request)
        if response.stream is not None:
            return await _stream(given, response)
        return _whole(given, response)

    app = web.Application(client_max_size=BODY_LIMIT + 1)
    app.router.add_route("*", "/{path:.*}", respond)
    return app


async def _read(given: web.Request) -> Request | Response:
    try:
        body = await given.read()
    except web.HTTPRequestEntityTooLarge:
        return refusal(problem.too_large(BODY_LIMIT))
    headers: dict[str, str] = {}
    for name, value in given.headers.items():
        key = name.lower()
        repeated = key in headers and key.startswith(impersonation.PREFIX)
        headers[key] = f"{headers[key]}{impersonation.SEPARATOR}{value}" if repeated else value
    return Request(
        method=given.method,
        path=given.path,
        query=dict(given.query),
        headers=headers,
        body=body,
        peer=_peer(given),
    )


def _peer(given: web.Request) -> User | None:
    if given.transport is None:
        return None
    certificate: Mapping[str, object] | None = given.transport.get_extra_info("peercert")
    return subject_of(certificate) if certificate else None


def _headers(response: Response) -> CIMultiDict[str]:
    headers = CIMultiDict(response.headers)
    headers["Cache-Control"] = "no-cache, private"
    headers["Content-Type"] = response.content_type
    for text in response.warnings:
        headers.add("Warning", f"299 - {_quoted(text)}")
    return headers


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _whole(given: web.Request, response: Response) -> web.Response:
    body = response.body
    if response.content_type == JSON and _wants_pretty(given):
        body = msgspec.json.format(body, indent=2)
    return web.Response(status=response.status, body=body, headers=_headers(response))


def _wants_pretty(given: web.Request) -> bool:
    asked = given.query.get("pretty")
    if asked is not None:
        return asked not in {"0", "false"}
    return given.headers.get("User-Agent", "").startswith(_PRETTY_AGENTS)


async def _stream(given: web.Request, response: Response) -> web.StreamResponse:
    answer = web.StreamResponse(status=response.status, headers=_headers(response))
    answer.enable_chunked_encoding()
    await answer.prepare(given)
    stream = response.stream
    if stream is None:
        return answer
    try:
        async for piece in stream:
            await answer.write(piece)
        await answer.write_eof()
    except (ConnectionError, asyncio.CancelledError) as gone:
        log.info("Watch ended", v=4, path=given.path, why=type(gone).__name__)
        if isinstance(gone, asyncio.CancelledError):
            raise
    finally:
        await stream.aclose()
    return answer


def server_context(certificate: str, authority: str) -> ssl.SSLContext:
    """Return the TLS side of the server; client certificates are asked for, not demanded."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.load_verify_locations(authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
