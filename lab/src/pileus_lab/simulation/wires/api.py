"""A manager's connection to the API server: requests travel, arrive, and may go wrong."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from types import TracebackType
from typing import Self

from pileus.kube.transport import READS, Reply, Request
from pileus_lab.apiserver.call import Response
from pileus_lab.simulation.kinds import FaultKind, Place
from pileus_lab.simulation.stage.steps import Answer, Call, Channel
from pileus_lab.simulation.wires.life import Life, Surroundings
from pileus_lab.simulation.wires.watch import (
    HOST,
    Watch,
    agent_of,
    headers_of,
    refusal,
    unreachable,
)

READ_FAULTS = frozenset({
    FaultKind.API_LOST,
    FaultKind.API_LATE,
    FaultKind.API_THROTTLED,
    FaultKind.API_BROKEN,
    FaultKind.API_UNAVAILABLE,
    FaultKind.API_TIMEOUT,
})
"""What may befall a request that changes nothing."""
PAGE_FAULTS = READ_FAULTS | {FaultKind.API_EXPIRED}
"""What may befall a request for the next page of a list."""
WRITE_FAULTS = frozenset(FaultKind) - {FaultKind.API_EXPIRED}
REWOUND = 4.0
"""Versions by which a watch goes back, for each second of the fault."""
REFUSALS = {
    FaultKind.API_CONFLICT: (409, "Conflict"),
    FaultKind.API_EXPIRED: (410, "Expired"),
    FaultKind.API_THROTTLED: (429, "TooManyRequests"),
    FaultKind.API_BROKEN: (500, "InternalError"),
    FaultKind.API_UNAVAILABLE: (503, "ServiceUnavailable"),
}
"""Answers that mean: nothing was done."""


class Wire:
    """A transport of one life of one manager."""

    host = HOST

    def __init__(self, life: Life, around: Surroundings) -> None:
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
            raise unreachable(request, "this process is no more")
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
        """The same; or, of a watch, perhaps one that begins at an older version."""
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
    """One request on its way to the server and back. It goes on though its sender be gone."""

    def __init__(self, request: Request, life: Life, around: Surroundings) -> None:
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
        else:
            self._answer(response)

    def _carried_out(self) -> Response:
        return self._around.cluster.respond(self._life.name, self._request, self._had_heard_of)

    def _had_heard_of(self, uid: str) -> bool:
        """Whether its sender had been told of such an object when it sent this."""
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
    """What may befall it."""
    if request.method not in READS:
        return WRITE_FAULTS
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
