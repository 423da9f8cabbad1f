"""What every request passes through: recovery, log, headers, authentication, authorization."""

import asyncio
import ssl
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from aiohttp import web

from pileus.server import answer
from pileus.server.authentication import Authenticator, Proof
from pileus.server.authorization import Authorizer, Question
from pileus.server.identity import Unauthenticated, is_text
from pileus.server.review import ReviewFailed
from pileus.server.router import Routes
from pileus.telemetry.log import Log

NO_CACHE = "no-cache, private"

_PRIVATE = "_sslobj"

log = Log(__name__)


class _Certificate(Protocol):
    def public_bytes(self) -> str: ...


class _Connection(Protocol):
    def get_unverified_chain(self) -> Sequence[_Certificate] | None: ...


class Chain:
    """Answers any request; only the permitted ones get as far as the routes."""

    def __init__(
        self, routes: Routes, authenticator: Authenticator, authorizer: Authorizer
    ) -> None:
        self._routes = routes
        self._authenticator = authenticator
        self._authorizer = authorizer

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        start = loop.time()
        response = await self._recovered(request)
        response.headers["Cache-Control"] = NO_CACHE
        log.info(
            "HTTP",
            v=3,
            verb=request.method,
            path=printable(request.path),
            latency=round(loop.time() - start, 6),
            user_agent=printable(request.headers.get("User-Agent", "")),
            source=request.remote,
            code=response.status,
        )
        return response

    async def _recovered(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._guarded(request)
        except web.HTTPException as refusal:
            return answer.text(f"{refusal.reason}\n", status=refusal.status)
        except Exception as error:  # a bug in one handler is no reason to stop
            log.exception("A request failed", error=error, method=request.method, path=request.path)
            return answer.text("this request failed; the log says why\n", status=500)

    async def _guarded(self, request: web.BaseRequest) -> web.StreamResponse:
        if not is_text(request.path):
            log.info("Bad request", v=2, source=request.remote, err="the path is not UTF-8")
            return answer.text("400 Bad Request: the path is not UTF-8\n", status=400)
        try:
            user = await self._authenticator.authenticate(
                Proof(request.headers, client_chain(request))
            )
        except Unauthenticated as error:
            log.error("Request not authenticated", error=error, path=request.path)
            return answer.unauthorized()
        question = Question(user, request.method.lower(), request.path)
        try:
            verdict = await self._authorizer.decide(question)
        except ReviewFailed as error:
            log.error("Request not authorized", error=error, path=request.path, user=user.name)
            reason = "the API server does not say whether it is allowed"
            return answer.text(f'Internal Server Error: "{request.path}": {reason}\n', status=500)
        if not verdict.allowed:
            suffix = f": {verdict.reason}" if verdict.reason else ""
            return answer.forbidden(question.forbidden + suffix)
        handler = self._routes.find(request.path)
        return await handler(request) if handler else answer.not_found()


def printable(value: str) -> str:
    """The value as it can be logged: bytes that are not UTF-8 become question marks."""
    return value.encode(errors="replace").decode()


def client_chain(request: web.BaseRequest) -> Sequence[bytes]:
    """The certificates (DER) that the client sent, its own first; none if it sent none."""
    connection = request.transport.get_extra_info("ssl_object") if request.transport else None
    if not isinstance(connection, ssl.SSLObject):
        return ()
    leaf = connection.getpeercert(binary_form=True)
    if leaf is None:
        return ()
    return (leaf, *_intermediates(connection))


def _intermediates(connection: ssl.SSLObject) -> Sequence[bytes]:
    if sys.version_info >= (3, 13):
        return connection.get_unverified_chain()[1:]
    # Python has had it since 3.10, but until 3.13 without a public name.
    inner = cast("_Connection", getattr(connection, _PRIVATE))
    chain = inner.get_unverified_chain() or ()
    return [ssl.PEM_cert_to_DER_cert(certificate.public_bytes()) for certificate in chain[1:]]
