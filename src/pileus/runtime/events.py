"""Kubernetes Events: what a user reads under `kubectl describe`."""

import asyncio
import random
from typing import Protocol

from pileus.clock import Clock
from pileus.fence import Fenced
from pileus.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    TooManyRequests,
    Unauthorized,
)
from pileus.kube.model.core_v1 import EVENTS, Event, EventSource, ObjectReference
from pileus.kube.model.meta import ObjectMeta, Resource, T
from pileus.kube.patch import Patch, StrategicPatch
from pileus.runtime.correlation import REMEMBERED, Correlator, Happening, Memory, Tally
from pileus.runtime.failure import hint
from pileus.runtime.queue import QueueClosed, WorkQueue
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

LONGEST_QUEUE = 1000
WRITERS = 8
TRIES = 12
RETRY = 10.0
FLUSH = 2.0
"""Seconds that unwritten events are given when the recorder is told to stop."""


class Recorder(Protocol):
    def record(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        """Tell users of `about` what happened; `kind` is Normal or Warning.

        Never waits and never fails; the event is written later, if at all.
        """
        ...


class EventClient(Protocol):
    """The part of `pileus.kube.client.Client` that events need."""

    async def create(self, resource: Resource[T], body: T, *, namespace: str) -> T: ...
    async def patch(
        self, resource: Resource[T], name: str, patch: Patch, *, namespace: str
    ) -> T: ...


class EventRecorder:
    """The events of one component (`source.component`); written while `run` runs.

    An event that changes before it was written is written once, as it is then.
    """

    def __init__(
        self,
        component: str,
        client: EventClient,
        *,
        clock: Clock,
        random: random.Random,
        metrics: Metrics,
    ) -> None:
        self._component = component
        self._client = client
        self._clock = clock
        self._random = random
        self._dropped = metrics.events_dropped
        self._correlator = Correlator()
        self._queue: WorkQueue[str] = WorkQueue(f"events_{component}", metrics)
        self._unwritten: dict[str, Tally] = {}
        self._tries: dict[str, int] = {}
        self._written: Memory[str, bool] = Memory(REMEMBERED)
        self._all_written = asyncio.Event()
        self._forbidden = False

    def record(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        tally = self._correlator.tally(Happening(about, kind, reason, message, self._clock.now()))
        if tally is None:
            return
        if len(self._unwritten) >= LONGEST_QUEUE and tally.name not in self._unwritten:
            self._drop("queue_full")
            return
        self._unwritten[tally.name] = tally
        if tally.name not in self._tries:  # else its next try is planned already
            self._queue.add(tally.name)

    async def run(self) -> None:
        """Write events until cancelled, and then for a moment what is left."""
        async with asyncio.TaskGroup() as writers:
            for _ in range(WRITERS):
                writers.create_task(self._work(), name=f"{self._component}-events")
            try:
                await asyncio.Event().wait()
            finally:
                await self._flush()

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(FLUSH):
                while self._unwritten:
                    self._all_written.clear()
                    await self._all_written.wait()
        except TimeoutError:
            log.warning("Events were left unwritten", count=len(self._unwritten))
        finally:
            self._queue.close()

    async def _work(self) -> None:
        while True:
            try:
                name = await self._queue.take()
            except QueueClosed:
                return
            try:
                await self._deliver(name)
            finally:
                self._queue.done(name)

    async def _deliver(self, name: str) -> None:
        tally = self._unwritten.get(name)
        if tally is None:  # written meanwhile, before a retry that was planned
            return
        try:
            await self._write(tally)
        except Fenced:
            self._settle(name, tally)
        except KubeError as error:
            self._fail(name, tally, error)
        except Exception as error:  # one event that cannot be written must not stop the others
            log.exception("Cannot write an event", error=error, event=name)
            self._drop("failed")
            self._settle(name, tally)
        else:
            self._written.put(name, value=True)
            self._settle(name, tally)

    async def _write(self, tally: Tally) -> None:
        """Create the event or, if it is there already, bring it up to date."""
        if not self._written.get(tally.name):
            try:
                await self._create(tally)
            except AlreadyExists:  # its first answer was lost
                await self._update(tally)
            return
        try:
            await self._update(tally)
        except NotFound:  # the server forgets events after an hour
            await self._create(tally)

    async def _create(self, tally: Tally) -> None:
        event = _event(tally, self._component)
        await self._client.create(EVENTS, event, namespace=event.metadata.namespace)

    async def _update(self, tally: Tally) -> None:
        happening = tally.happening
        changes: dict[str, object] = {
            "count": tally.count,
            "lastTimestamp": happening.at,
            "message": happening.message,
        }
        await self._client.patch(
            EVENTS, tally.name, StrategicPatch(changes), namespace=_namespace(happening.about)
        )

    def _fail(self, name: str, tally: Tally, error: KubeError) -> None:
        tries = self._tries[name] = self._tries.get(name, 0) + 1
        if not is_passing(error):
            self._tell_once(error, tally)
            self._drop("refused")
            self._settle(name, tally)
        elif tries >= TRIES:
            log.error("Gave up writing an event", error=error, event=name, tries=tries)
            self._drop("gave_up")
            self._settle(name, tally)
        else:
            delay = self._random.uniform(0, RETRY) if tries == 1 else RETRY
            self._queue.next_pass(name, max(delay, hint(error) or 0.0), retry=True)

    def _tell_once(self, error: KubeError, tally: Tally) -> None:
        """Rights that are missing are missing for every event; one line says so."""
        if isinstance(error, Forbidden):
            if self._forbidden:
                return
            self._forbidden = True
        log.error("Server rejected event", error=error, event=tally.name)

    def _settle(self, name: str, tally: Tally) -> None:
        """Done with it, unless it was recorded again while it was being written."""
        self._tries.pop(name, None)
        if self._unwritten.get(name) is tally:
            del self._unwritten[name]
        elif name in self._unwritten:
            self._queue.add(name)
        if not self._unwritten:
            self._all_written.set()

    def _drop(self, reason: str) -> None:
        self._dropped.labels(self._component, reason).inc()


def is_passing(error: KubeError) -> bool:
    """Whether the same write may succeed later: not if the server understood and refused it.

    A conflict is no refusal: the namespace's quota, say, was changed by somebody else just then.
    """
    if isinstance(error, Unauthorized | TooManyRequests | Conflict):
        return True
    return not isinstance(error, ApiError) or error.status >= 500  # noqa: PLR2004 -- HTTP's number


def _event(tally: Tally, component: str) -> Event:
    happening = tally.happening
    return Event(
        metadata=ObjectMeta(name=tally.name, namespace=_namespace(happening.about)),
        involved_object=happening.about,
        reason=happening.reason,
        message=happening.message,
        source=EventSource(component=component),
        first_timestamp=tally.first,
        last_timestamp=happening.at,
        count=tally.count,
        type=happening.kind,
        reporting_component=component,
    )


def _namespace(about: ObjectReference) -> str:
    return about.namespace or "default"
