"""A manager's connection to the API server, with injected faults."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from types import TracebackType
from typing import Self

import msgspec
from multidict import CIMultiDict

from pileus.kube.errors import Unreachable
from pileus.kube.transport import READS, Reply, Request
from pileus_lab.apiserver.call import Response
from pileus_lab.simulation.connections.process import ConnectionContext, Life
from pileus_lab.simulation.environment.steps import Answer, Call, Channel
from pileus_lab.simulation.kinds import SIMULATED, FaultKind, Place
from pileus_lab.simulation.schedule import Strike

HOST = "simulated"
OF_EXISTING = b'{"type":"ADDED",', b'{"type":"MODIFIED",'
"""Start of watch events about objects that exist."""
DELETION = b'{"type":"DELETED",'
LISTED = b"k8s.io/initial-events-end"
"""In the bookmark after the last object of a streamed list."""


class Watch:
    """The answer to a watch, with injected delays and faults."""

    def __init__(
        self, request: Request, response: Response, life: Life, around: ConnectionContext
    ) -> None:
        self._request = request
        self._response = response
        self._life = life
        self._around = around
        self._agent = agent_of(request)
        self._patience: asyncio.Timeout | None = None
        self._is_cut = False
        self._is_listing = "sendInitialEvents" in request.query
        """Whether the watch is still sending the initial list."""
        left = life.misinformed.pop(request.path, None)
        self._denial: Strike | None = None if self._is_listing else left
        """Set once an existing object was reported as deleted or left out of a list."""
        self._is_exposed = self._denial is not None
        """Whether that was corrected, so that the client must list again."""
        self.name = f"{life.name} {request.path}"
        self.is_dead = False

    @asynccontextmanager
    async def registered(self) -> AsyncGenerator[None]:
        watches = self._around.cluster.watches
        watches[self] = None
        try:
            yield
        finally:
            watches.pop(self, None)

    def cut(self) -> None:
        self._is_cut = True
        self._interrupt()

    def _expose(self) -> None:
        self._is_exposed = True
        self._interrupt()

    def _interrupt(self) -> None:
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(self._around.loop.time())

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return headers_of(self._response)

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        stream = self._response.stream
        while stream is not None:
            try:
                piece = await self._next(stream)
            except StopAsyncIteration:
                return
            except _Exposed as error:
                yield _expired(error.strike)
                return
            await self._catch_up()
            strike = self._around.weather.strike(Place.WATCH, self._agent, may=_is_no_replay)
            if strike is not None and strike.kind is FaultKind.WATCH_UNTRUE:
                piece = self._denied(piece, strike)
                if not piece:
                    continue
            elif strike is not None:
                async for told in self._spoilt(strike):
                    yield told
            self._life.hear(piece, self._around.loop.now())
            self._is_listing &= LISTED not in piece
            yield piece

    async def _next(self, stream: AsyncGenerator[bytes]) -> bytes:
        limit = self._request.idle_timeout
        self._fail_if_cut()
        try:
            async with asyncio.timeout(limit) as self._patience:
                return await anext(stream)
        except TimeoutError as error:
            self._fail_if_cut()
            raise unreachable(self._request, "no byte came in time", late=True) from error
        finally:
            self._patience = None

    def _denied(self, piece: bytes, strike: Strike) -> bytes:
        """Returns the event; or, once per watch, one that makes its object seem deleted.

        In a streamed list the object is left out, which gives an empty event; a Service is also
        reported as deleted. For nodes the report alone is used.
        """
        if self._denial is not None or not piece.startswith(OF_EXISTING):
            return piece
        if not self._is_listing and "services" not in self._request.path:
            return piece
        self._denial = self._life.misinformed[self._request.path] = strike
        self._life.misinformed_at = self._around.loop.now()
        self._around.trace.note(self._life.name, f"{self._request.path} [{strike.kind}]")
        self._around.later(strike.seconds, self._expose)
        return b"" if self._is_listing else DELETION + piece.partition(b",")[2]

    async def _catch_up(self) -> None:
        """Waits while the server itself lags behind."""
        behind = self._around.cluster.behind_until - self._around.loop.now()
        if behind > 0:
            await asyncio.sleep(behind)

    async def _spoilt(self, strike: Strike) -> AsyncIterator[bytes]:
        """Returns a fault that replaces or precedes the next piece."""
        self._around.trace.note(self._life.name, f"{self._request.path} [{strike.kind}]")
        if strike.kind is FaultKind.WATCH_CUT:
            raise unreachable(self._request, "the connection was cut")
        if strike.kind is FaultKind.WATCH_LAGGING:
            await asyncio.sleep(strike.seconds)
        elif strike.kind is FaultKind.WATCH_STALLED:
            self.is_dead = True
            await asyncio.sleep(self._request.idle_timeout or inf)
            raise unreachable(self._request, "no byte came in time", late=True)
        else:
            yield _expired(strike)
            self._is_cut = True

    def _fail_if_cut(self) -> None:
        if self._is_cut or self._life.is_over:
            raise unreachable(self._request, "the connection was cut")
        if self._is_exposed and self._denial is not None:
            raise _Exposed(self._denial)


class _Exposed(Exception):
    """The watch must end, and its client must list again."""

    def __init__(self, strike: Strike) -> None:
        super().__init__(strike)
        self.strike = strike


def _expired(strike: Strike) -> bytes:
    """The event that ends a watch with an error."""
    return b'{"type":"ERROR","object":%b}\n' % refusal(410, "Expired", strike).body


def refusal(code: int, reason: str, strike: Strike) -> Response:
    """The Status of a refusal."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": f"{SIMULATED}{strike.kind}",
    }
    patience = {"Retry-After": str(max(1, round(strike.seconds)))}
    asks = code in {429, 503}
    return Response(status=code, body=msgspec.json.encode(status), headers=patience if asks else {})


def headers_of(response: Response) -> Mapping[str, str]:
    return CIMultiDict({"content-type": response.content_type, **response.headers})


def agent_of(request: Request) -> str:
    """The part of the manager that sends it: the end of its user agent."""
    return request.headers.get("User-Agent", "").rpartition("/")[2]


def _is_no_replay(kind: FaultKind) -> bool:
    return kind is not FaultKind.WATCH_REPLAYED


def unreachable(
    request: Request, cause: str, *, acted: bool = False, late: bool = False
) -> Unreachable:
    asked = f"{request.method} {request.path}"
    return Unreachable(asked, HOST, cause, may_have_acted=acted, timed_out=late)


READ_FAULTS = frozenset({
    FaultKind.API_LOST,
    FaultKind.API_LATE,
    FaultKind.API_THROTTLED,
    FaultKind.API_BROKEN,
    FaultKind.API_UNAVAILABLE,
    FaultKind.API_TIMEOUT,
})
"""Faults that can hit a request that changes nothing."""
PAGE_FAULTS = READ_FAULTS | {FaultKind.API_EXPIRED}
"""Faults that can hit a request for the next page of a list."""
WRITE_FAULTS = frozenset(FaultKind) - {FaultKind.API_EXPIRED, FaultKind.API_GARBLED}
OBJECT = re.compile(r"/(?:nodes|persistentvolumes|persistentvolumeclaims)/[^/]+$")
"""The path of one object that can be garbled."""
REWOUND = 4.0
"""Versions by which a watch goes back, for each second of the fault."""
REFUSALS = {
    FaultKind.API_CONFLICT: (409, "Conflict"),
    FaultKind.API_EXPIRED: (410, "Expired"),
    FaultKind.API_THROTTLED: (429, "TooManyRequests"),
    FaultKind.API_BROKEN: (500, "InternalError"),
    FaultKind.API_UNAVAILABLE: (503, "ServiceUnavailable"),
}
"""Status codes that mean that nothing was done."""


class Wire:
    """A transport for one process of one manager."""

    host = HOST

    def __init__(self, life: Life, around: ConnectionContext) -> None:
        self._life = life
        self._around = around

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[Reply]:
        if self._life.is_over:
            raise unreachable(request, "this process has ended")
        if request.guard is not None:
            request.guard()
        response = await self._exchange(self._rewound(request))
        if response.stream is None:
            yield _Whole(response)
            return
        watch = Watch(request, response, self._life, self._around)
        async with aclosing(response.stream), watch.registered():
            yield watch

    def _rewound(self, request: Request) -> Request:
        """Returns the request; a watch may start at an older version."""
        version = request.query.get("resourceVersion")
        if "watch" not in request.query or not version:
            return request
        strike = self._around.weather.strike(Place.WATCH, agent_of(request), may=_is_replay)
        if strike is None:
            return request
        older = str(max(1, int(version) - 1 - round(strike.seconds * REWOUND)))
        note = f"{request.path} from {older}, not from {version} [{strike.kind}]"
        self._around.trace.note(self._life.name, note)
        return replace(request, query={**request.query, "resourceVersion": older})

    async def _exchange(self, request: Request) -> Response:
        journey = _Journey(request, self._life, self._around)
        journey.begin()
        try:
            async with asyncio.timeout(request.timeout):
                return await journey.answer
        except TimeoutError as error:
            acted = request.method not in READS
            raise unreachable(request, "no answer in time", acted=acted, late=True) from error


class _Journey:
    """One request to the server and back. It continues even if its sender has ended."""

    def __init__(self, request: Request, life: Life, around: ConnectionContext) -> None:
        self._request = request
        self._life = life
        self._around = around
        self._writes = request.method not in READS
        self._heard = len(life.heard)
        self.answer: asyncio.Future[Response] = around.loop.create_future()
        self._who = agent_of(request)
        may = _faults_of(request).__contains__
        self._strike = around.weather.strike(Place.API, self._who, may=may)
        self._call = Call(
            who=life.name,
            identity=life.identity,
            at=around.loop.now(),
            channel=_channel(request, self._who),
            agent=self._who,
            what=f"{request.method} {request.path}",
            content=request.body or b"",
        )

    def begin(self) -> None:
        self._around.told(self._call)
        if self._call.is_work and self._life.is_struck_before_write() and self._life.is_over:
            self._note("never left")
            return
        late = self._strike.seconds if self._is(FaultKind.API_LATE) and self._strike else 0.0
        self._around.later(self._around.latency() + late, self._arrive)

    def _arrive(self) -> None:
        if self._around.cluster.is_down:
            self._fail("connection refused", acted=False)
        elif self._is(FaultKind.API_LOST):
            self._fail("the connection was lost on the way", acted=self._writes)
        elif self._strike is not None and self._strike.kind in REFUSALS:
            code, reason = REFUSALS[self._strike.kind]
            self._answer(refusal(code, reason, self._strike))
        else:
            self._act()

    def _act(self) -> None:
        response = self._carried_out()
        if self._is(FaultKind.API_TWICE):
            self._carried_out()
        struck = self._writes and self._life.is_struck_after_write()
        if struck and self._life.is_over:
            self._note(f"{response.status}, unheard")
        elif self._is(FaultKind.API_UNHEARD):
            self._fail("the answer was lost", acted=True)
        elif self._is(FaultKind.API_TIMEOUT) and self._strike:
            self._answer(refusal(504, "Timeout", self._strike))
        elif self._is(FaultKind.API_GARBLED) and response.status < 300:  # noqa: PLR2004 -- HTTP's
            garbled = {**msgspec.json.decode(response.body), "spec": "not a spec"}
            self._answer(replace(response, body=msgspec.json.encode(garbled)))
        else:
            self._answer(response)

    def _carried_out(self) -> Response:
        return self._around.cluster.respond(self._life.name, self._request, self._had_heard_of)

    def _had_heard_of(self, uid: str) -> bool:
        """Whether the sender had received such an object when it sent this."""
        wanted = uid.encode()
        return any(wanted in told for told in islice(self._life.heard, self._heard))

    def _answer(self, response: Response) -> None:
        self._note(str(response.status))
        self._around.later(self._around.latency(), self._hear, response)

    def _hear(self, response: Response) -> None:
        failed = response.status >= 400  # noqa: PLR2004 -- HTTP's own number
        asked = response.headers.get("Retry-After") if failed else None
        self._around.told(
            Answer(
                self._call,
                trouble=str(response.status) if failed else "",
                patience=None if asked is None else float(asked),
            )
        )
        if not self.answer.done():
            self.answer.set_result(response)
            if not failed:
                self._life.hear(response.body, self._around.loop.now())

    def _fail(self, why: str, *, acted: bool) -> None:
        self._note(why)
        self._around.told(Answer(self._call, trouble=why))
        if not self.answer.done():
            self.answer.set_exception(unreachable(self._request, why, acted=acted))

    def _is(self, kind: FaultKind) -> bool:
        return self._strike is not None and self._strike.kind is kind

    def _note(self, how: str) -> None:
        fault = f" [{self._strike.kind}]" if self._strike else ""
        query = "&".join(f"{key}={value}" for key, value in self._request.query.items())
        asked = f"{self._request.path}{'?' if query else ''}{query}"
        self._around.trace.note(self._life.name, f"{self._request.method} {asked} {how}{fault}")


@dataclass(frozen=True, slots=True)
class _Whole:
    response: Response

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return headers_of(self.response)

    async def read(self) -> bytes:
        return self.response.body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.response.body


def _faults_of(request: Request) -> frozenset[FaultKind]:
    """Faults that can hit it."""
    if request.method not in READS:
        return WRITE_FAULTS
    if OBJECT.search(request.path):
        return READ_FAULTS | {FaultKind.API_GARBLED}
    return PAGE_FAULTS if "continue" in request.query else READ_FAULTS


def _is_replay(kind: FaultKind) -> bool:
    return kind is FaultKind.WATCH_REPLAYED


def _channel(request: Request, agent: str) -> Channel:
    if agent == "leader-election":
        return Channel.LEASE
    if "/events" in request.path:
        return Channel.EVENT
    if request.method not in READS:
        return Channel.WRITE
    return Channel.WATCH if "watch" in request.query else Channel.READ
