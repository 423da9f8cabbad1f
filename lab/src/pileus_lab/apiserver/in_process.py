"""The embedded API server as a transport: a client calls it without a socket."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from multidict import CIMultiDict

from pileus.kube.errors import Unreachable
from pileus.kube.transport import Request
from pileus_lab.apiserver.api import Api
from pileus_lab.apiserver.call import Request as ApiRequest
from pileus_lab.apiserver.call import Response
from pileus_lab.apiserver.identity import User, authenticated

MASTER = User("simulation", ("system:masters",))


@dataclass(frozen=True, slots=True)
class InProcessReply:
    response: Response
    idle_timeout: float | None

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return CIMultiDict({
            "content-type": self.response.content_type,
            **self.response.headers,
        })

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        stream = self.response.stream
        if stream is None:
            yield self.response.body
            return
        while True:
            try:
                async with asyncio.timeout(self.idle_timeout):
                    piece = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                told = "no byte came in time"
                raise Unreachable("watch", "in-process", told, timed_out=True) from error
            yield piece


def as_asked(request: Request, user: User) -> ApiRequest:
    """Returns a client's request as the server gets it from that user."""
    return ApiRequest(
        method=request.method,
        path=request.path,
        query=request.query,
        headers={name.lower(): value for name, value in request.headers.items()},
        body=request.body or b"",
        peer=user,
    )


class InProcessTransport:
    """A `pileus.kube.transport.Transport` for an `Api`, as one user."""

    def __init__(self, api: Api, user: User = MASTER) -> None:
        self._api = api
        self._user = authenticated(user)

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[InProcessReply]:
        if request.guard is not None:
            request.guard()
        await asyncio.sleep(0)
        response = self._api.respond(as_asked(request, self._user))
        reply = InProcessReply(response, request.idle_timeout)
        if response.stream is None:
            yield reply
            return
        async with aclosing(response.stream):
            yield reply
