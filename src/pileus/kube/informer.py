"""Keeps a store in sync with the API server for one kind, and notifies handlers of changes.

    list ──▶ store ◀── watch ──▶ handlers        410: list again, and notify of the difference
      ▲                  │                       end of a watch: continue from the last version
      └──── expired ─────┘                       failure: retry with backoff; the store is kept

The list is streamed through the watch itself where the server can do that.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from random import Random
from typing import Generic, Protocol, TypeVar

from pileus.dataclass import dataclass
from pileus.kube.client import (
    EVERYTHING,
    MOST_OBJECTS,
    Client,
    Selector,
    WatchOptions,
    listing_in_time,
)
from pileus.kube.codec import WatchEvent
from pileus.kube.errors import (
    ApiError,
    Expired,
    Forbidden,
    KubeError,
    NotFound,
    ServerTimeout,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    Unreadable,
)
from pileus.kube.model.meta import KubeObject, Resource, T
from pileus.kube.store import (
    Added,
    Change,
    Deleted,
    Index,
    NamespacedName,
    Store,
    Table,
    Updated,
    changes,
    difference,
    key_of,
)
from pileus.telemetry.log import Log

END_OF_LIST = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends a streaming list."""
WATCH_SECONDS = (300, 600)
FRUITLESS = 1.0
"""A watch that ends sooner, without an event, is a failure: going on at once would be a spin."""
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
RELIST_AFTER = 5
"""Refusals in a row after which the version itself is suspected."""

T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)
log = Log(__name__)


class Handler(Protocol[T_contra]):
    """Notified of changes after the store has them. Must be quick: it runs between two events."""

    def added(self, new: T_contra, /) -> None: ...
    def updated(self, old: T_contra, new: T_contra, /) -> None:
        """It changed; or, at a resync, it did not, and `old is new`."""
        ...

    def deleted(self, old: T_contra, /) -> None:
        """It is deleted; `old` is the last known state."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerOptions:
    namespace: str = ""
    selector: Selector = EVERYTHING
    resync: float = 0.0
    """Seconds; handlers are notified of all objects again every 1 to 2 periods."""
    streaming: bool = True
    """Whether to try a streaming list first."""


class Informer(Generic[T]):
    """Follows one kind of object for as long as `run` runs.

    Guarantees: after `wait_synced` the store has everything. The notifications, replayed,
    give the content of the store. An object leaves the store only by an event
    or by a full list without it. Failures of the server or the network never end `run`.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        random: Random,
        indexes: Mapping[str, Index[T]] | None = None,
        options: InformerOptions | None = None,
    ) -> None:
        self.resource = resource
        self.failure: KubeError | None = None
        """The current error; None while connected."""
        self._client = client
        self._options = options or InformerOptions()
        self._random = random
        self._table = Table(indexes)
        self._handlers: list[Handler[T]] = []
        self._synced = asyncio.Event()
        self._streaming = self._options.streaming
        self._version = ""
        self._relist_reason = "start"
        self._failures = 0
        self._last_failure: KubeError | None = None
        self._now: Callable[[], float] | None = None
        self._last_contact = 0.0

    @property
    def store(self) -> Store[T]:
        return self._table

    def add_indexes(self, indexes: Mapping[str, Index[T]]) -> None:
        """Add indexes to the store; those that it has already are kept."""
        for name, function in indexes.items():
            self._table.add_index(name, function)

    @property
    def has_synced(self) -> bool:
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def age(self) -> float:
        """Seconds since the last byte from the server; 0 before the start."""
        return self._now() - self._last_contact if self._now else 0.0

    def notify_again(self, key: NamespacedName) -> None:
        """Call the handlers for one object as at a resync, although it has not changed."""
        item = self._table.get(key)
        if item is not None:
            for handler in self._handlers:
                self._notify(handler, Updated(item, item))

    def subscribe(self, handler: Handler[T]) -> None:
        """Notify `handler` of all objects now, and of every change from now on."""
        self._handlers.append(handler)
        for item in self._table.list():
            self._notify(handler, Added(item))

    async def run(self) -> None:
        """Follow the server until cancelled."""
        self._now = asyncio.get_running_loop().time
        self._last_contact = self._now()
        age = self._client.metrics.watch_age
        age.labels(self.resource.plural).set_function(self.age)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                if self._options.resync:
                    period = self._options.resync * self._random.uniform(1, 2)
                    group.create_task(self._resync(period))
        finally:
            age.remove(self.resource.plural)

    async def _follow(self) -> None:
        while True:
            try:
                await self._round()
            except KubeError as error:
                await asyncio.sleep(self._failed(error))
            except Exception as error:  # a bug may cost one watch, but never the process
                log.exception("Watch failed", error=error, resource=self.resource.plural)
                text = f"WATCH {self.resource.plural}: {type(error).__name__}: {error}"
                await asyncio.sleep(self._failed(Unreadable(text)))

    async def _round(self) -> None:
        """One watch, from the beginning to its regular end; before it a list, where needed."""
        if not self._version and self._streaming:
            try:
                await self._watch()
            except KubeError as error:
                if self._version or not _refuses_streaming(error):
                    raise
                self._streaming = False
                log.info("No streaming list", v=2, resource=self.resource.plural, err=error)
            else:
                return
        if not self._version:
            await self._list()
        await self._watch()

    async def _list(self) -> None:
        listed = await self._client.list(
            self.resource, namespace=self._options.namespace, selector=self._options.selector
        )
        found = {key_of(item): item for item in listed.items if self._has_name(item)}
        unreadable = {key_of(item): item.metadata.uid for item in listed.unreadable}
        self._touch()
        self._replace(found, unreadable, listed.resource_version)

    async def _watch(self) -> None:
        now = asyncio.get_running_loop().time
        started, fruitless = now(), True
        options = WatchOptions(
            resource_version=self._version,
            initial_events=not self._version,
            duration=self._random.randint(*WATCH_SECONDS),
            on_contact=self._touch,
        )
        events = self._client.watch(
            self.resource,
            namespace=self._options.namespace,
            selector=self._options.selector,
            options=options,
        )
        async with aclosing(events):
            if options.initial_events:
                async with listing_in_time(f"WATCH {self.resource.plural}"):
                    await self._receive_list(events)
            async for event in events:
                fruitless = False
                self._recovered()
                self._receive(event)
        if fruitless and now() - started < FRUITLESS:
            raise KubeError(f"WATCH {self.resource.plural}: ended at once, without an event")
        self._recovered()

    async def _receive_list(self, events: AsyncIterator[WatchEvent[T]]) -> None:
        found: dict[NamespacedName, T] = {}
        unreadable: dict[NamespacedName, str] = {}
        async for event in events:
            item, key = event.object, key_of(event.object)
            if event.type == "BOOKMARK":
                if _ends_list(item):
                    self._replace(found, unreadable, item.metadata.resource_version)
                    return
                continue
            found.pop(key, None)
            unreadable.pop(key, None)
            if event.type == "UNREADABLE":
                unreadable[key] = item.metadata.uid
            elif event.type != "DELETED" and self._has_name(item):
                item.share_strings(self._table.get(key))
                found[key] = item
            if len(found) + len(unreadable) > MOST_OBJECTS:
                text = f"the list has more than {MOST_OBJECTS} objects"
                raise Unreadable(f"WATCH {self.resource.plural}: {text}")
        raise _Unfinished(f"WATCH {self.resource.plural}: ended before the list was whole")

    def _replace(
        self,
        found: Mapping[NamespacedName, T],
        unreadable: Mapping[NamespacedName, str],
        version: str,
    ) -> None:
        for change in difference(self._table, found, unreadable=unreadable):
            self._commit(change)
        self._version = version
        self._synced.set()
        relists = self._client.metrics.watch_relists
        relists.labels(self.resource.plural, self._relist_reason).inc()
        log.info("Listed", v=3, resource=self.resource.plural, count=len(found), version=version)

    def _receive(self, event: WatchEvent[T]) -> None:
        item = event.object
        self._version = item.metadata.resource_version or self._version
        match event.type:
            case "ADDED" | "MODIFIED" if self._has_name(item):
                old = self._table.get(key_of(item))
                item.share_strings(old)
                happened = changes(old, item)
            case "DELETED":
                happened = changes(self._table.get(key_of(item)), None)
            case _:
                return
        for change in happened:
            self._commit(change)

    def _commit(self, change: Change[T]) -> None:
        self._table.apply(change)
        for handler in tuple(self._handlers):
            self._notify(handler, change)

    def _notify(self, handler: Handler[T], change: Change[T]) -> None:
        try:
            match change:
                case Added(new):
                    handler.added(new)
                case Updated(old, new):
                    handler.updated(old, new)
                case Deleted(old):
                    handler.deleted(old)
        except Exception as error:  # one handler's bug must not harm the others
            log.exception("Handler failed", error=error, resource=self.resource.plural)

    async def _resync(self, period: float) -> None:
        while True:
            await asyncio.sleep(period)
            for item in self._table.list():
                for handler in tuple(self._handlers):
                    self._notify(handler, Updated(item, item))

    def _has_name(self, item: T) -> bool:
        if not item.metadata.name:
            log.error("Skipped an object without a name", resource=self.resource.plural)
        return bool(item.metadata.name)

    def _touch(self) -> None:
        self._last_contact = asyncio.get_running_loop().time()
        self.failure = None

    def _recovered(self) -> None:
        self._failures, self._last_failure = 0, None

    def _failed(self, error: KubeError) -> float:
        """Take note of a failure; returns the seconds to wait."""
        again = isinstance(self._last_failure, Expired) or not isinstance(error, Expired)
        self.failure = self._last_failure = error
        self._failures = self._failures + 1 if again else 1
        reason = relist_reason(error, self._failures)
        if reason and self._version:
            self._version, self._relist_reason = "", reason
        delay = delay_after(self._failures, error, self._random)
        log.warning(
            "Lost connection to the API server, retrying",
            resource=self.resource.plural,
            delay=round(delay, 3),
            relist=not self._version,
            err=error,
        )
        return delay


class _Unfinished(KubeError):
    """A streaming list came to a regular end without being marked as whole."""


def delay_after(failures: int, error: KubeError, random: Random) -> float:
    """Seconds to wait after the n-th failure in a row; doubling, with jitter.

    An expired version is not a failure of the server: no wait at first.
    """
    if failures == 1 and isinstance(error, Expired):
        return 0.0
    doubled = min(FIRST_DELAY * 2.0 ** min(failures - 1, 16), LONGEST_DELAY)
    asked = error.retry_after if isinstance(error, ApiError) else None
    return max(doubled * random.uniform(0.5, 1.5), asked or 0.0)


def relist_reason(error: KubeError, failures: int) -> str:
    """Returns why a watch cannot continue from its version; "" if it can."""
    match error:
        case Expired():
            return "expired"
        case Unreadable():
            return "unreadable"
        case ApiError() if failures >= RELIST_AFTER:
            return "refused"
        case _:
            return ""


_PASSING = (
    Forbidden,
    NotFound,
    ServerTimeout,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unauthorized,
)


def _refuses_streaming(error: KubeError) -> bool:
    """Whether a server says, in one of several ways, that it knows no streaming lists."""
    match error:
        case ApiError():
            return not isinstance(error, _PASSING)
        case Unreachable():
            return error.timed_out
        case _:
            return isinstance(error, _Unfinished)


def _ends_list(item: KubeObject) -> bool:
    marked = (item.metadata.annotations or {}).get(END_OF_LIST) == "true"
    return marked and bool(item.metadata.resource_version)
