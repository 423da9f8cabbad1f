"""The answer to a watch: what the API server tells, as late and as wrong as the weather is."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from math import inf

import msgspec
from multidict import CIMultiDict

from pileus.kube.errors import Unreachable
from pileus.kube.transport import Request
from pileus_lab.apiserver.call import Response
from pileus_lab.simulation.kinds import SIMULATED, FaultKind, Place
from pileus_lab.simulation.weather import Strike
from pileus_lab.simulation.wires.life import Life, Surroundings

HOST = "simulated"
OF_EXISTING = b'{"type":"ADDED",', b'{"type":"MODIFIED",'
"""How the events of a watch begin that are of objects that exist."""
DELETION = b'{"type":"DELETED",'
LISTED = b"k8s.io/initial-events-end"
"""In the bookmark after the last object of a streamed list."""


class Watch:
    """The answer to a watch: what comes in, as late and as broken as the weather is."""

    def __init__(
        self, request: Request, response: Response, life: Life, around: Surroundings
    ) -> None:
        self._request = request
        self._response = response
        self._life = life
        self._around = around
        self._agent = agent_of(request)
        self._patience: asyncio.Timeout | None = None
        self._is_cut = False
        self._is_listing = "sendInitialEvents" in request.query
        """Whether what comes is still the list of all objects."""
        left = life.misinformed.pop(request.path, None)
        self._denial: Strike | None = None if self._is_listing else left
        """Set once an object that exists was reported as deleted, or was missing in a list."""
        self._is_exposed = self._denial is not None
        """Whether that was noticed, so that the client must list again."""
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
        """The same event; or, once for each watch, what makes its object seem to be deleted.

        A streamed list lacks it, which makes an empty event here; of a Service, it is also
        reported as deleted. Of nodes that report is believed: there is no other.
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
        """Wait as long as the server itself has not heard what happened."""
        behind = self._around.cluster.behind_until - self._around.loop.now()
        if behind > 0:
            await asyncio.sleep(behind)

    async def _spoilt(self, strike: Strike) -> AsyncIterator[bytes]:
        """What comes instead of, or before, the next piece."""
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
    """The event that says that the watch cannot go on."""
    return b'{"type":"ERROR","object":%b}\n' % refusal(410, "Expired", strike).body


def refusal(code: int, reason: str, strike: Strike) -> Response:
    """How the server says no."""
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
    """Who of the manager asks: the last part of its user agent."""
    return request.headers.get("User-Agent", "").rpartition("/")[2]


def _is_no_replay(kind: FaultKind) -> bool:
    return kind is not FaultKind.WATCH_REPLAYED


def unreachable(
    request: Request, cause: str, *, acted: bool = False, late: bool = False
) -> Unreachable:
    asked = f"{request.method} {request.path}"
    return Unreachable(asked, HOST, cause, may_have_acted=acted, timed_out=late)
