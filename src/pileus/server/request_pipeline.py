"""Request handling: error recovery, log, headers, authentication, authorization, route."""

import asyncio
import ssl
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from pileus.http.messages import Refused, Request, Response
from pileus.server import responses
from pileus.server.authentication import Authenticator, Proof
from pileus.server.authorization import Authorizer, Question
from pileus.server.reviews import ReviewFailed
from pileus.server.router import Routes
from pileus.server.users import Unauthenticated, is_text
from pileus.telemetry.log import Log

log = Log(__name__)


NO_CACHE = "no-cache, private"

_PRIVATE = "_sslobj"


class _Certificate(Protocol):
    def public_bytes(self) -> str: ...


class _Connection(Protocol):
    def get_unverified_chain(self) -> Sequence[_Certificate] | None: ...


class RequestPipeline:
    """Answers every request. Only authorized ones reach the routes, except public pages."""

    def __init__(
        self, routes: Routes, authenticator: Authenticator, authorizer: Authorizer
    ) -> None:
        self._routes = routes
        self._authenticator = authenticator
        self._authorizer = authorizer

    async def __call__(self, request: Request) -> Response:
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

    async def _recovered(self, request: Request) -> Response:
        try:
            return await self._guarded(request)
        except Refused as refusal:
            return responses.text(f"{refusal}\n", status=refusal.status)
        except Exception as error:  # a bug in one handler must not stop the server
            log.exception("A request failed", error=error, method=request.method, path=request.path)
            return responses.text("internal error; see the log\n", status=500)

    async def _guarded(self, request: Request) -> Response:
        if not is_text(request.path):
            log.info("Bad request", v=2, source=request.remote, err="the path is not UTF-8")
            return responses.text("400 Bad Request: the path is not UTF-8\n", status=400)
        if public := self._routes.public.get(request.path):
            return await public(request)
        try:
            user = await self._authenticator.authenticate(
                Proof(request.headers, client_chain(request))
            )
        except Unauthenticated as error:
            log.error("Request not authenticated", error=error, path=request.path)
            return responses.unauthorized()
        question = Question(user, request.method.lower(), request.path)
        try:
            verdict = await self._authorizer.decide(question)
        except ReviewFailed as error:
            log.error("Request not authorized", error=error, path=request.path, user=user.name)
            reason = "the API server did not answer the access review"
            text = f'Internal Server Error: "{request.path}": {reason}\n'
            return responses.text(text, status=500)
        if not verdict.allowed:
            suffix = f": {verdict.reason}" if verdict.reason else ""
            return responses.forbidden(question.forbidden + suffix)
        handler = self._routes.find(request.path)
        return await handler(request) if handler else responses.not_found()


def printable(value: str) -> str:
    """Returns the value for the log: bytes that are not UTF-8 become question marks."""
    return value.encode(errors="replace").decode()


def client_chain(request: Request) -> Sequence[bytes]:
    """Returns the certificates (DER) that the client sent, its own first."""
    connection = request.transport.get_extra_info("ssl_object")
    if not isinstance(connection, ssl.SSLObject):
        return ()
    leaf = connection.getpeercert(binary_form=True)
    if leaf is None:
        return ()
    return (leaf, *_intermediates(connection))


def _intermediates(connection: ssl.SSLObject) -> Sequence[bytes]:
    if sys.version_info >= (3, 13):
        return connection.get_unverified_chain()[1:]
    # Exists since Python 3.10, with a public name since 3.13.
    inner = cast("_Connection", getattr(connection, _PRIVATE))
    chain = inner.get_unverified_chain() or ()
    return [ssl.PEM_cert_to_DER_cert(certificate.public_bytes()) for certificate in chain[1:]]
