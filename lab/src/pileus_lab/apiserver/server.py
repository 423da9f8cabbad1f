"""The server on an HTTPS port: `async with serving_api() as server: ...`."""

import asyncio
import ssl
import tempfile
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from pileus.clock import Clock, SystemClock
from pileus.telemetry.log import Log
from pileus_lab.apiserver import credentials, errors, impersonation
from pileus_lab.apiserver.allocation import Ranges
from pileus_lab.apiserver.api import Api, refusal
from pileus_lab.apiserver.bootstrap import bootstrap
from pileus_lab.apiserver.call import JSON, Request, Response
from pileus_lab.apiserver.credentials import Credentials
from pileus_lab.apiserver.identity import User, subject_of
from pileus_lab.apiserver.sqlite import NotKept, SqliteJournal, open_store
from pileus_lab.apiserver.state import BODY_LIMIT, Options, State
from pileus_lab.apiserver.store import HISTORY, Store
from pileus_lab.apiserver.tree import Obj

log = Log(__name__)
_PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")


@dataclass(slots=True)
class Front:
    """Accepts requests, waits until their changes are stored, and answers."""

    api: Api
    journal: SqliteJournal | None = None
    in_flight: int = 0

    async def respond(self, request: Request) -> Response:
        if self.in_flight >= self.api.state.options.max_in_flight:
            return refusal(errors.too_many_requests())
        self.in_flight += 1
        try:
            response = self.api.respond(request)
            if self.journal is not None:
                await self.journal.kept()
        except NotKept as error:
            return refusal(errors.internal(str(error)))
        finally:
            self.in_flight -= 1
        return response


def application(front: Front) -> web.Application:
    """Returns the aiohttp application."""

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
        return refusal(errors.too_large(BODY_LIMIT))
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
    """Returns the TLS context of the server; client certificates are optional."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.load_verify_locations(authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


SHUTDOWN = 1.0
"""Seconds that requests in progress have to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where and how to serve; every field has a default."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port."""
    data: Path | None = None
    """Folder for the database and the credentials; None: in memory."""
    ranges: Ranges = field(default_factory=Ranges)
    tokens: Mapping[str, User] = field(default_factory=dict[str, User], repr=False)
    """Bearer tokens besides that of the administrator."""
    history: int = HISTORY
    bookmark_every: float = 60.0
    max_in_flight: int = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """How to reach a running server."""

    url: str
    authority: str
    """PEM of the CA to trust."""
    token: str = field(repr=False)
    """Bearer token of the administrator."""
    certificate: str = field(repr=False)
    """PEM of the administrator's client certificate."""
    key: str = field(repr=False)
    front: Front = field(repr=False)
    """The server without its sockets."""

    @property
    def api(self) -> Api:
        return self.front.api

    def kubeconfig(self, token: str = "") -> bytes:
        """Returns a kubeconfig as JSON (which is YAML): the administrator's, or with that token."""
        user = {
            "client-certificate-data": _base64(self.certificate),
            "client-key-data": _base64(self.key),
        }
        return _kubeconfig(self, {"token": token} if token else user)


def _base64(pem: str) -> str:
    return b64encode(pem.encode()).decode()


def _kubeconfig(server: ServerInfo, user: Mapping[str, str]) -> bytes:
    cluster = {"server": server.url, "certificate-authority-data": _base64(server.authority)}
    config: Obj = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "pileus",
        "clusters": [{"name": "pileus", "cluster": cluster}],
        "users": [{"name": "pileus", "user": dict(user)}],
        "contexts": [{"name": "pileus", "context": {"cluster": "pileus", "user": "pileus"}}],
    }
    return msgspec.json.format(msgspec.json.encode(config), indent=2)


def api_in_memory(*, clock: Clock, random: Random, options: Options | None = None) -> Api:
    """Returns a server without sockets, files and threads, for tests and simulations."""
    options = options or Options()
    store = Store(history=options.history)
    state = State(clock=clock, random=random, store=store, options=options)
    bootstrap(state)
    return Api(state)


@asynccontextmanager
async def serving_api(
    settings: Settings | None = None, *, clock: Clock | None = None
) -> AsyncGenerator[ServerInfo]:
    """Serves until the block ends. Raises `Unusable` (data) or `OSError` (port)."""
    settings, clock = settings or Settings(), clock or SystemClock()
    known = _credentials(settings, clock)
    async with AsyncExitStack() as stack:
        store, journal = await stack.enter_async_context(_store(settings))
        state = State(
            clock=clock, random=SystemRandom(), store=store, options=_options(settings, known)
        )
        bootstrap(state)
        front = Front(Api(state), journal)
        if journal is not None:
            await journal.kept()
        port = await stack.enter_async_context(_listening(front, settings, known))
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        yield ServerInfo(
            url=f"https://{host}:{port}",
            authority=known.authority,
            token=known.admin_token,
            certificate=known.admin_certificate,
            key=known.admin_key,
            front=front,
        )


def _credentials(settings: Settings, clock: Clock) -> Credentials:
    if settings.data is None:
        return credentials.make(settings.host, clock.now())
    return credentials.keep(settings.data, settings.host, clock.now())


def _options(settings: Settings, known: Credentials) -> Options:
    admin = User("kubernetes-admin", ("system:masters",))
    return Options(
        ranges=settings.ranges,
        history=settings.history,
        bookmark_every=settings.bookmark_every,
        tokens={known.admin_token: admin, **settings.tokens},
        client_authority=known.authority,
        token_key=known.token_key.encode(),
        max_in_flight=settings.max_in_flight,
    )


@asynccontextmanager
async def _store(settings: Settings) -> AsyncGenerator[tuple[Store, SqliteJournal | None]]:
    if settings.data is None:
        yield Store(history=settings.history), None
        return
    async with open_store(settings.data, history=settings.history) as (store, journal):
        yield store, journal


@asynccontextmanager
async def _listening(front: Front, settings: Settings, known: Credentials) -> AsyncGenerator[int]:
    """Listens on the port; yields its number."""
    runner = web.AppRunner(application(front), access_log=None, shutdown_timeout=SHUTDOWN)
    await runner.setup()
    try:
        context = await asyncio.to_thread(_context, known)
        site = web.TCPSite(runner, settings.host, settings.port, ssl_context=context)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _context(known: Credentials) -> ssl.SSLContext:
    with tempfile.TemporaryDirectory() as folder:
        server, authority = Path(folder, "server.pem"), Path(folder, "ca.pem")
        server.touch(mode=0o600)
        server.write_text(known.server)
        authority.write_text(known.authority)
        return server_context(str(server), str(authority))
