"""A lease on a faulty server, for elections in virtual time."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from pileus.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, ServiceUnavailable
from pileus.kube.errors import Status as KubeStatus
from pileus.kube.model.core_v1 import ObjectReference
from pileus.runtime.lease import Json

Outcome = Json | None | KubeError


class Server:
    """One lease with Kubernetes' semantics: versions, conflicts, unknown fields kept."""

    def __init__(self) -> None:
        self.lease: Json | None = None
        self.requests: list[str] = []
        self._version = 0
        self._watches: set[asyncio.Queue[None]] = set()

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[asyncio.Queue[None]]:
        """A queue that gets an item for every change."""
        changes = asyncio.Queue[None]()
        self._watches.add(changes)
        try:
            yield changes
        finally:
            self._watches.discard(changes)

    @property
    def spec(self) -> Json:
        assert self.lease is not None
        return msgspec.convert(self.lease["spec"], Json)

    def read(self) -> Outcome:
        self.requests.append("GET")
        return self.lease

    def create(self, lease: Json) -> Outcome:
        self.requests.append("POST")
        if self.lease is not None:
            return AlreadyExists("POST lease", 409, KubeStatus())
        return self.store(lease)

    def update(self, lease: Json) -> Outcome:
        self.requests.append("PUT")
        if self.lease is None:
            return NotFound("PUT lease", 404, KubeStatus())
        if _version(lease) != _version(self.lease):
            return Conflict("PUT lease", 409, KubeStatus())
        return self.store(lease)

    def store(self, lease: Json) -> Json:
        self._version += 1
        for each in self._watches:
            each.put_nowait(None)
        metadata = msgspec.convert(lease["metadata"], Json)
        self.lease = {**lease, "metadata": {**metadata, "resourceVersion": str(self._version)}}
        return self.lease

    def edit(self, **spec: object) -> None:
        """Change it behind everybody's back, as with kubectl."""
        assert self.lease is not None
        self.store({**self.lease, "spec": {**self.spec, **spec}})


def _version(lease: Json) -> object:
    return msgspec.convert(lease["metadata"], Json).get("resourceVersion")


@dataclass(frozen=True)
class Weather:
    """How bad the way to the server is."""

    latency: float = 0.01
    refused: float = 0.0
    lost: float = 0.0


CALM = Weather()


class Connection:
    """One process's way to the server. What was sent may arrive after its sender gave up."""

    def __init__(self, server: Server, random: random.Random) -> None:
        self.weather = CALM
        self.has_watch = False
        self.watches = 0
        """How often a watch was begun."""
        self.failure: Exception = ServiceUnavailable("lease", 503, KubeStatus())
        """What a watch raises if there is none."""
        self.is_unheard = False
        """Whether writes take effect and are answered with an error."""
        self._server = server
        self._random = random

    async def read(self) -> Json | None:
        return await self._ask(self._server.read)

    async def create(self, lease: Json) -> Json:
        return self._heard(await self._ask(lambda: self._server.create(lease)))

    async def update(self, lease: Json) -> Json:
        return self._heard(await self._ask(lambda: self._server.update(lease)))

    def _heard(self, lease: Json | None) -> Json:
        if self.is_unheard:
            raise ServiceUnavailable("lease", 503, KubeStatus())
        return lease or {}

    async def watch(self, changed: Callable[[], None]) -> None:
        self.watches += 1
        if not self.has_watch:
            raise self.failure
        async with self._server.watched() as changes:
            while True:
                await changes.get()
                await asyncio.sleep(self._delay())
                changed()

    async def _ask(self, act: Callable[[], Outcome]) -> Json | None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()
        if not self._is(self.weather.lost):
            loop.call_later(self._delay(), self._arrive, act, answer)
        outcome = await answer
        if isinstance(outcome, KubeError):
            raise outcome
        return outcome

    def _arrive(self, act: Callable[[], Outcome], answer: asyncio.Future[Outcome]) -> None:
        refused = ServiceUnavailable("lease", 503, KubeStatus())
        outcome = refused if self._is(self.weather.refused) else act()
        if not self._is(self.weather.lost):
            loop = asyncio.get_running_loop()
            loop.call_later(self._delay(), _settle, answer, outcome)

    def _delay(self) -> float:
        return self._random.expovariate(1 / self.weather.latency)

    def _is(self, probability: float) -> bool:
        return self._random.random() < probability


def _settle(answer: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not answer.done():
        answer.set_result(outcome)


class WallClock:
    """Follows the loop, but may be set."""

    def __init__(self) -> None:
        self.offset = 0.0

    def now(self) -> datetime:
        seconds = asyncio.get_running_loop().time() + self.offset
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


class Heard:
    """A recorder that remembers."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.about: list[ObjectReference] = []

    def record(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        self.about.append(about)
        self.messages.append(f"{kind} {reason}: {message}")
