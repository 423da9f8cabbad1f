"""A transport without a network: a function, or a list of replies, stands in for the API server.

    transport = ScriptedTransport(in_order(Answer(200, {"kind": "Node"}), refused(409, "Conflict")))
    client = Client(transport, user_agent="test", metrics=metrics)
    ...
    assert [r.method for r in transport.requests] == ["GET", "PUT"]

Everything waits on the event loop, so that it runs in virtual time.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field

import msgspec
from multidict import CIMultiDict

from pileus.dataclass import dataclass
from pileus.kube.errors import TooLong, Unreachable
from pileus.kube.transport import Reply, Request

HOST = "scripted"


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. A body that is not bytes is sent as JSON."""

    status: int = 200
    body: object = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    delay: float = 0.0
    """Seconds before it comes; beyond the request's timeout it never does."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Seconds without data; indefinitely if none are given."""

    seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is lost here."""


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer in chunks, as of a watch. After the last step it ends as it should.

    Bytes are sent as they are; anything that is none of the steps is one line of JSON.
    """

    steps: Iterable[object] = ()
    """Each one bytes, `Silence`, `Cut`, or an event. A generator makes them as time goes by."""


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer at all: the connection fails."""

    may_have_acted: bool = False


Scripted = Answer | Stream | Lost


class ScriptedTransport:
    """Answers each request with what `respond` returns for it.

    Keeps the requests, and beside them the loop's times at which they came.
    """

    def __init__(self, respond: Callable[[Request], Scripted]) -> None:
        self._respond = respond
        self.requests: list[Request] = []
        self.times: list[float] = []

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[Reply]:
        if request.guard:
            request.guard()
        self.requests.append(request)
        self.times.append(asyncio.get_running_loop().time())
        scripted = self._respond(request)
        if isinstance(scripted, Lost):
            acted = scripted.may_have_acted
            raise _unreachable(request, "the connection failed", may_have_acted=acted)
        if isinstance(scripted, Answer):
            await _wait(request, scripted.delay, limit=request.timeout)
        yield _ScriptedReply(request, scripted)


class _ScriptedReply:
    def __init__(self, request: Request, scripted: Answer | Stream) -> None:
        self._request = request
        self._scripted = scripted

    @property
    def status(self) -> int:
        return self._scripted.status if isinstance(self._scripted, Answer) else 200

    @property
    def headers(self) -> Mapping[str, str]:
        if isinstance(self._scripted, Stream):
            return CIMultiDict()
        return CIMultiDict(self._scripted.headers)

    async def read(self) -> bytes:
        body = b"".join([chunk async for chunk in self.chunks()])
        if len(body) > self._request.limit:
            name = f"{self._request.method} {self._request.path}"
            raise TooLong(f"{name}: the answer has more than {self._request.limit} bytes")
        return body

    async def chunks(self) -> AsyncIterator[bytes]:
        if isinstance(self._scripted, Answer):
            yield _encoded(self._scripted.body)
            return
        for step in self._scripted.steps:
            match step:
                case Silence(seconds):
                    await _wait(self._request, seconds, limit=self._request.idle_timeout)
                case Cut():
                    raise _unreachable(self._request, "the connection was cut")
                case bytes():
                    yield step
                case _:
                    yield _encoded(step) + b"\n"


def in_order(*replies: Scripted) -> Callable[[Request], Scripted]:
    """One reply after the other, whatever is asked. One request too many fails loudly."""
    left = iter(replies)

    def respond(request: Request) -> Scripted:
        for reply in left:
            return reply
        raise AssertionError(f"no reply is left for {request.method} {request.path}")

    return respond


def refused(
    code: int, reason: str = "", message: str = "", *, retry_after: int | None = None
) -> Answer:
    """An answer that says no in the manner of Kubernetes."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return Answer(code, status(code, reason, message), headers)


def status(code: int, reason: str = "", message: str = "") -> dict[str, object]:
    """A Status object, for the body of an answer or the object of an ERROR event."""
    said = {"reason": reason, "message": message}
    given = {key: value for key, value in said.items() if value}
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, **given}


def event(kind: str, item: object) -> dict[str, object]:
    """One event of a watch."""
    return {"type": kind, "object": item}


def listing(items: Sequence[object], *, version: str = "1", more: str = "") -> dict[str, object]:
    """A list, or with `more` one page of it."""
    metadata = {"resourceVersion": version, "continue": more}
    return {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": list(items)}


async def _wait(request: Request, seconds: float, *, limit: float | None) -> None:
    patience = math.inf if limit is None else limit
    if math.isinf(min(seconds, patience)):
        await asyncio.get_running_loop().create_future()
    await asyncio.sleep(min(seconds, patience))
    if seconds > patience:
        acted = request.method != "GET"
        raise _unreachable(request, "no answer in time", may_have_acted=acted, timed_out=True)


def _unreachable(
    request: Request, cause: str, *, may_have_acted: bool = False, timed_out: bool = False
) -> Unreachable:
    return Unreachable(
        f"{request.method} {request.path}",
        HOST,
        cause,
        timed_out=timed_out,
        may_have_acted=may_have_acted,
    )


def _encoded(body: object) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)
