"""Kubernetes Events: what a user reads under `kubectl describe`.

The same event is counted instead of repeated, and floods of similar events are combined. The rules
and limits are those of the Go framework.

    occurrence ──▶ combine similar ones ──▶ count the same ones ──▶ limit per object ──▶ write
                   (10 within 600 s)                               (25, then 1 in 300 s)
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Hashable
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from pileus.bucket import Bucket
from pileus.clock import Clock
from pileus.dataclass import dataclass, replace
from pileus.fence import Fenced
from pileus.fix import printable
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
from pileus.runtime.failure import hint
from pileus.runtime.queue import QueueClosed, WorkQueue
from pileus.telemetry.log import Log
from pileus.telemetry.mask import masked
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

LONGEST_QUEUE = 20_000
"""Events that wait to be written, at most. They give way to other requests, so that a cluster of
thousands of nodes is not initialized later for the sake of its events."""
MANY = 100
"""More unwritten events than this are a burst: they are written when it is over."""
BURST_PAUSE = 0.2
"""Seconds without a new event after which a burst is over."""
LONGEST_BURST = 5.0
"""Seconds after which events are written although the burst goes on."""
WRITERS = 8
TRIES = 12
RETRY = 10.0
FLUSH = 2.0
"""Seconds for writing the remaining events when the recorder stops."""
FOLDED_PREFIX = "(combined from similar events): "
MOST_SIMILAR = 10
SIMILAR_WITHIN = 600.0
BURST = 25
SECONDS_PER_EVENT = 300.0
REMEMBERED = 4096
LONGEST_NAME = 253 - len(".") - 16
LONGEST_MESSAGE = 1024

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recorder(Protocol):
    """Records events of one component."""

    def record(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        """Record an event about an object; `kind` is Normal or Warning.

        Never waits and never raises. The event is written later, or dropped.
        """
        ...


class EventClient(Protocol):
    """The part of `pileus.kube.client.Client` that events need."""

    async def create(self, resource: Resource[T], body: T, *, namespace: str) -> T: ...
    async def patch(
        self, resource: Resource[T], name: str, patch: Patch, *, namespace: str
    ) -> T: ...


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One recorded event."""

    about: ObjectReference
    kind: str
    reason: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class CountedEvent:
    """An event as it is written: what happened, since when, and how often."""

    name: str
    occurrence: Occurrence
    first: datetime
    count: int


class RecentlyUsed(Generic[Key, Value]):
    """A map that keeps the entries used last, at most `size` of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)

    def __len__(self) -> int:
        return len(self._values)


_Similar = tuple[ObjectReference, str, str]
_Same = tuple[ObjectReference, str, str, str]
_ANY_MESSAGE = "\0"


class Correlator:
    """Decides which events of one component are written."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._buckets: RecentlyUsed[ObjectReference, Bucket] = RecentlyUsed(size)
        self._similar: RecentlyUsed[_Similar, tuple[float, tuple[str, ...]]] = RecentlyUsed(size)
        self._counted: RecentlyUsed[_Same, CountedEvent] = RecentlyUsed(size)
        self._last_stamp = 0

    def count(self, occurrence: Occurrence) -> CountedEvent | None:
        """Returns the event to write; None if the limit of the object is reached.

        Events that are not written are counted all the same.
        """
        now = occurrence.at.timestamp()
        same = self._fold(occurrence, now)
        if same[-1] == _ANY_MESSAGE:
            occurrence = replace(occurrence, message=FOLDED_PREFIX + occurrence.message)
        if len(occurrence.message) > LONGEST_MESSAGE:
            occurrence = replace(occurrence, message=occurrence.message[:LONGEST_MESSAGE])
        before = self._counted.get(same)
        if before is None:
            counted = CountedEvent(self._new_name(occurrence), occurrence, occurrence.at, 1)
        else:
            counted = replace(before, occurrence=occurrence, count=before.count + 1)
        self._counted.put(same, counted)
        return counted if self._within_limit(occurrence.about, now) else None

    def _fold(self, occurrence: Occurrence, now: float) -> _Same:
        """Returns what identifies the event; the message no longer counts once there are many."""
        similar = (occurrence.about, occurrence.kind, occurrence.reason)
        latest, messages = self._similar.get(similar) or (now, ())
        if now - latest > SIMILAR_WITHIN:
            messages = ()
        if len(messages) < MOST_SIMILAR and occurrence.message not in messages:
            messages = (*messages, occurrence.message)
        self._similar.put(similar, (now, messages))
        return (*similar, occurrence.message if len(messages) < MOST_SIMILAR else _ANY_MESSAGE)

    def _within_limit(self, about: ObjectReference, now: float) -> bool:
        bucket = self._buckets.get(about) or Bucket.full(1 / SECONDS_PER_EVENT, BURST, now)
        wait, left = bucket.reserve(now)
        if wait > 0:
            return False
        self._buckets.put(about, left)
        return True

    def _new_name(self, occurrence: Occurrence) -> str:
        """Returns a name as client-go forms it, unique even for events at the same moment."""
        self._last_stamp = max(int(occurrence.at.timestamp() * 1e9), self._last_stamp + 1)
        return f"{occurrence.about.name[:LONGEST_NAME]}.{self._last_stamp:x}"


class EventRecorder:
    """Records the events of one component (`source.component`), and writes them while `run` runs.

    An event that changes before it is written is written once, in its latest form.
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
        self._unwritten: dict[str, CountedEvent] = {}
        self._tries: dict[str, int] = {}
        self._written: RecentlyUsed[str, bool] = RecentlyUsed(REMEMBERED)
        self._all_written = asyncio.Event()
        self._forbidden = False
        self._recorded_at = self._burst_began = 0.0

    def record(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        counted = self._correlator.count(
            Occurrence(about, kind, reason, printable(masked(message)), self._clock.now())
        )
        if counted is None:
            return
        if len(self._unwritten) >= LONGEST_QUEUE and counted.name not in self._unwritten:
            self._drop("queue_full")
            return
        self._unwritten[counted.name] = counted
        self._recorded_at = counted.occurrence.at.timestamp()
        if len(self._unwritten) <= MANY:
            self._burst_began = self._recorded_at
        if counted.name not in self._tries:  # otherwise its next attempt is scheduled already
            self._queue.add(counted.name)

    async def run(self) -> None:
        """Write events until cancelled, then the remaining ones within `FLUSH` seconds."""
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
            log.warning("Events were not written before the shutdown", count=len(self._unwritten))
        finally:
            self._queue.close()

    async def _work(self) -> None:
        while True:
            try:
                name = await self._queue.take()
            except QueueClosed:
                return
            try:
                await self._burst_over()
                await self._deliver(name)
            finally:
                self._queue.done(name)

    async def _burst_over(self) -> None:
        """Wait while many events are recorded: what they report comes before their writing."""
        while len(self._unwritten) > MANY:
            now = self._clock.now().timestamp()
            is_new = 0 <= now - self._recorded_at < BURST_PAUSE
            if not is_new or not 0 <= now - self._burst_began < LONGEST_BURST:
                return
            await asyncio.sleep(BURST_PAUSE)

    async def _deliver(self, name: str) -> None:
        counted = self._unwritten.get(name)
        if counted is None:  # written meanwhile, before a scheduled retry
            return
        try:
            await self._write(counted)
        except Fenced:
            self._settle(name, counted)
        except KubeError as error:
            self._fail(name, counted, error)
        except Exception as error:  # one event that cannot be written must not stop the others
            log.exception("Cannot write event", error=error, event=name)
            self._drop("failed")
            self._settle(name, counted)
        else:
            self._written.put(name, value=True)
            self._settle(name, counted)

    async def _write(self, counted: CountedEvent) -> None:
        """Create the event, or update it if it exists."""
        if not self._written.get(counted.name):
            try:
                await self._create(counted)
            except AlreadyExists:  # the answer to its creation was lost
                await self._update(counted)
            return
        try:
            await self._update(counted)
        except NotFound:  # the API server deletes events after an hour
            await self._create(counted)

    async def _create(self, counted: CountedEvent) -> None:
        event = _event(counted, self._component)
        await self._client.create(EVENTS, event, namespace=event.metadata.namespace)

    async def _update(self, counted: CountedEvent) -> None:
        occurrence = counted.occurrence
        changes: dict[str, object] = {
            "count": counted.count,
            "lastTimestamp": occurrence.at,
            "message": occurrence.message,
        }
        await self._client.patch(
            EVENTS, counted.name, StrategicPatch(changes), namespace=_namespace(occurrence.about)
        )

    def _fail(self, name: str, counted: CountedEvent, error: KubeError) -> None:
        tries = self._tries[name] = self._tries.get(name, 0) + 1
        if not is_passing(error):
            self._log_rejected(error, counted)
            self._drop("refused")
            self._settle(name, counted)
        elif tries >= TRIES:
            log.error("Giving up writing event", error=error, event=name, tries=tries)
            self._drop("gave_up")
            self._settle(name, counted)
        else:
            delay = self._random.uniform(0, RETRY) if tries == 1 else RETRY
            self._queue.next_pass(name, max(delay, hint(error) or 0.0), retry=True)

    def _log_rejected(self, error: KubeError, counted: CountedEvent) -> None:
        """Log the rejection. Missing permissions concern every event and are logged once."""
        if isinstance(error, Forbidden):
            if self._forbidden:
                return
            self._forbidden = True
        log.error("Server rejected event", error=error, event=counted.name)

    def _settle(self, name: str, counted: CountedEvent) -> None:
        """Forget the event, unless it was recorded again while it was being written."""
        self._tries.pop(name, None)
        if self._unwritten.get(name) is counted:
            del self._unwritten[name]
        elif name in self._unwritten:
            self._queue.add(name)
        if not self._unwritten:
            self._all_written.set()

    def _drop(self, reason: str) -> None:
        self._dropped.labels(self._component, reason).inc()


def is_passing(error: KubeError) -> bool:
    """Returns whether the same write may succeed later: not if the API server rejected it.

    A conflict is not a rejection: a quota of the namespace, for example, changed at that moment.
    """
    if isinstance(error, Unauthorized | TooManyRequests | Conflict):
        return True
    return not isinstance(error, ApiError) or error.status >= 500  # noqa: PLR2004 -- HTTP's number


def _event(counted: CountedEvent, component: str) -> Event:
    occurrence = counted.occurrence
    return Event(
        metadata=ObjectMeta(name=counted.name, namespace=_namespace(occurrence.about)),
        involved_object=occurrence.about,
        reason=occurrence.reason,
        message=occurrence.message,
        source=EventSource(component=component),
        first_timestamp=counted.first,
        last_timestamp=occurrence.at,
        count=counted.count,
        type=occurrence.kind,
        reporting_component=component,
    )


def _namespace(about: ObjectReference) -> str:
    return about.namespace or "default"
