"""A typed client of the API server: get, list, create, patch, delete and watch.

Lists are fetched in pages; a list that does not end, or is too large, is refused.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Generic

from pileus.dataclass import dataclass, replace
from pileus.fence import Fence, Open
from pileus.kube.access import Server
from pileus.kube.codec import Odd, Page, WatchEvent, codec_of, encode
from pileus.kube.errors import Expired, TooLong, Unreadable
from pileus.kube.exchange import Adaptive, Exchange, Throttle
from pileus.kube.model.meta import KubeObject, Resource, T
from pileus.kube.patch import Patch
from pileus.kube.transport import ANSWER_LIMIT, MEBIBYTE, Request, Transport
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)


class LineSplitter:
    """Splits chunks into complete lines, at a cost that does not grow with the length of a line."""

    def __init__(self, limit: int) -> None:
        """`limit` is the number of bytes that one line may have."""
        self._limit = limit
        self._begun = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without blank ones.

        Raises `TooLong` as soon as a line has more bytes than the limit.
        """
        first, *others = chunk.split(b"\n")
        if max(len(self._begun) + len(first), *map(len, others), 0) > self._limit:
            raise TooLong(f"a line has more than {self._limit} bytes")
        self._begun += first
        if not others:
            return []
        lines = [bytes(self._begun), *others]
        self._begun = bytearray(lines.pop())
        return [line for line in lines if line and not line.isspace()]


LONGEST_LIST = 900.0
"""Seconds for all pages of a list; the API server keeps their common version for 5 minutes."""
MOST_OBJECTS = 200_000
"""Objects in a list; Kubernetes supports 5,000 nodes and 10,000 Services."""
MOST_BYTES = 1024 * MEBIBYTE
LONGEST_TOKEN = 8192
"""Characters of a `continue` token, which has to fit into a URL."""


@asynccontextmanager
async def listing_in_time(request: str) -> AsyncGenerator[None]:
    """The block fetches a list. Raises `Unreadable` if that takes longer than `LONGEST_LIST`."""
    timer = asyncio.timeout(LONGEST_LIST)
    try:
        async with timer:
            yield
    except TimeoutError as error:
        if not timer.expired():
            raise
        problem = f"the list is not complete after {LONGEST_LIST:g} s"
        raise Unreadable(f"{request}: {problem}") from error


@dataclass(slots=True)
class Pages(Generic[T]):
    """What has come of a list so far."""

    path: str
    items: list[T] = field(default_factory=list[T])
    odd: list[Odd[T]] = field(default_factory=list[Odd[T]])
    resource_version: str = ""
    more: str = ""
    """The token for the next page, "" after the last."""
    _bytes: int = 0
    _tokens: set[int] = field(default_factory=set[int])
    """Hashes of the tokens so far; a token may be long."""

    def add(self, page: Page[T], size: int) -> None:
        """Take in a page of `size` bytes.

        Raises `Unreadable` if the list repeats itself or is longer than that of any real cluster.
        """
        self.items.extend(page.items)
        self.odd.extend(page.odd)
        self.resource_version, self.more = page.resource_version, page.more
        self._bytes += size
        if problem := self._problem():
            raise Unreadable(f"GET {self.path}: {problem}")
        self._tokens.add(hash(self.more))

    def _problem(self) -> str:
        if len(self.items) + len(self.odd) > MOST_OBJECTS or len(self._tokens) > MOST_OBJECTS:
            return f"the list has more than {MOST_OBJECTS} objects or pages"
        if self._bytes > MOST_BYTES:
            return f"the list has more than {MOST_BYTES} bytes"
        if len(self.more) > LONGEST_TOKEN:
            return f"the continue token has more than {LONGEST_TOKEN} characters"
        if self.more and hash(self.more) in self._tokens:
            return "the list does not end: its continue token repeats"
        return ""


LIST_TIMEOUT = 60.0
UNPAGED_LIMIT = 256 * MEBIBYTE
"""Bytes of a list that comes in one piece: about 17,000 nodes."""
DEAD_AFTER = 90.0
"""Seconds without a byte after which a watch is dead; a bookmark comes about every minute."""
GATHERED = 0.02
"""Seconds between two deliveries of a watch: many events in a row are read together. The first one
after a pause is delivered at once."""
MOST_REPORTED = 1000
"""Unreadable objects that are remembered, so that each is logged once."""

UNNAMED = Server()


@dataclass(frozen=True, slots=True)
class Selector:
    """Which objects of a collection are meant, in the API's own notation."""

    labels: str = ""
    fields: str = ""


EVERYTHING = Selector()


@dataclass(frozen=True, slots=True)
class Preconditions:
    """What must hold for a deletion to happen; else it is a `Conflict`."""

    uid: str = ""
    resource_version: str = ""


NONE = Preconditions()


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """A consistent list, as of `resource_version`."""

    items: tuple[T, ...]
    resource_version: str
    unreadable: tuple[T, ...] = ()
    """Objects that exist but do not decode: only name, namespace, UID and version are known."""


def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    resource_version: str = ""
    """Events after this version; "" means: what there is, as ADDED events, then changes."""
    initial_events: bool = False
    """Ask for a streaming list: ADDED events, then a bookmark marked as their end."""
    duration: int = 300
    """Seconds after which the server ends the watch."""
    on_contact: Callable[[], None] = field(default=_nothing, repr=False)
    """Called whenever data arrives, also part of an event."""


class Client:
    """One identity at one API server.

    Writes ask the fence right before they leave. Every request has a deadline. A server that
    says "later" (429; 503 for reads) with a Retry-After is asked again then, a few times; nothing
    else is retried. Errors: those of `pileus.kube.errors`, and `pileus.fence.Fenced`.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        user_agent: str,
        metrics: Metrics,
        fence: Fence | None = None,
        throttle: Throttle | None = None,
        server: Server = UNNAMED,
    ) -> None:
        self.metrics = metrics
        self._exchange = Exchange(
            transport,
            metrics=metrics,
            fence=fence or Open(),
            throttle=throttle or Adaptive(),
            server=server,
        )
        self._reported: dict[tuple[str, str, str], str] = {}
        self._headers = {"Accept": "application/json", "User-Agent": user_agent}

    async def get(self, resource: Resource[T], name: str, *, namespace: str = "") -> T:
        path = _path(resource, name, namespace)
        return await self._typed(resource, self._request("GET", path))

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        limit: int = 500,
    ) -> Listed[T]:
        """Everything, fetched in pages of `limit`.

        When the pages' common version expires on the way, one unpaged list takes their place. If a
        page is too long, the list is fetched again in smaller pages.
        """
        path = resource.path(namespace=namespace)
        query = _selecting(selector)
        whole = replace(self._request("GET", path, query=query), timeout=LIST_TIMEOUT)
        paged = replace(whole, query={**query, "limit": str(limit)})
        try:
            return await self._list_pages(resource, paged)
        except Expired as error:
            log.info("List expired between pages, fetching it at once", path=path, err=error)
            return await self._list_pages(resource, replace(whole, limit=UNPAGED_LIMIT))
        except TooLong as error:
            if limit == 1:
                raise
            log.warning("Fetching the list in smaller pages", path=path, limit=limit, err=error)
        fewer = max(limit // 10, 1)
        return await self.list(resource, namespace=namespace, selector=selector, limit=fewer)

    async def create(
        self,
        resource: Resource[T],
        body: T | Mapping[str, object],
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> T:
        """Create an object, or (with `name` and `subresource`) something below one."""
        path = resource.path(name, namespace=namespace, subresource=subresource)
        request = self._request("POST", path, body=_encode(resource, body, subresource))
        return await self._typed(resource, request)

    async def update(
        self,
        resource: Resource[T],
        body: T | Mapping[str, object],
        *,
        name: str,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """Replace the whole object: what `body` does not name is lost. Mostly one wants `patch`."""
        path = _path(resource, name, namespace, subresource)
        request = self._request("PUT", path, body=_encode(resource, body, subresource))
        return await self._typed(resource, request)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        path = _path(resource, name, namespace, subresource)
        body = encode(patch.body, micro_times=resource.has_micro_times)
        request = self._request("PATCH", path, body=body, content_type=patch.content_type)
        return await self._typed(resource, request)

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        *,
        namespace: str = "",
        preconditions: Preconditions = NONE,
    ) -> None:
        """Ask for its deletion; finalizers may keep it for a while."""
        path = _path(resource, name, namespace)
        await self._exchange.send(
            self._request("DELETE", path, body=_delete_options(preconditions))
        )

    async def watch(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        options: WatchOptions | None = None,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Changes as they happen, until the server ends the watch. Wrap it in `aclosing`.

        Errors: also `Expired` when the version is too old, at the start or in the stream, and
        `Unreachable` when nothing was heard for `DEAD_AFTER` seconds.
        """
        options = options or WatchOptions()
        path = resource.path(namespace=namespace)
        query = {**_selecting(selector), **_watching(options)}
        request = self._request("GET", path, query=query)
        request = replace(request, timeout=None, idle_timeout=DEAD_AFTER, gather=GATHERED)
        codec, splitter = codec_of(resource.type), LineSplitter(ANSWER_LIMIT)
        async with self._exchange.stream(request) as reply:
            options.on_contact()
            async for chunk in reply.chunks():
                options.on_contact()
                for line in _fed(splitter, chunk, path):
                    yield self._noted(resource, codec.event(line, path=path))

    async def raw(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """The body of the answer to anything else, such as `GET /healthz`."""
        request = self._request(method, path, query=query, body=body, content_type=content_type)
        return await self._exchange.send(request)

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> Request:
        headers = self._headers if body is None else {**self._headers, "Content-Type": content_type}
        return Request(method=method, path=path, query=query or {}, headers=headers, body=body)

    async def _typed(self, resource: Resource[T], request: Request) -> T:
        body = await self._exchange.send(request)
        try:
            return codec_of(resource.type).item(body)
        except Unreadable as error:
            raise Unreadable(f"{request.method} {request.path}: {error}") from error

    async def _list_pages(self, resource: Resource[T], request: Request) -> Listed[T]:
        pages = Pages[T](request.path)
        async with listing_in_time(f"GET {request.path}"):
            await self._add_page(resource, request, pages)
            while pages.more:
                query = {**request.query, "continue": pages.more}
                await self._add_page(resource, replace(request, query=query), pages)
        for one in pages.odd:
            self._report(resource, one)
        unreadable = tuple(one.object for one in pages.odd)
        return Listed(tuple(pages.items), pages.resource_version, unreadable)

    async def _add_page(self, resource: Resource[T], request: Request, pages: Pages[T]) -> None:
        body = await self._exchange.send(request)
        try:
            page = codec_of(resource.type).page(body)
        except Unreadable as error:
            raise Unreadable(f"GET {request.path}: {error}") from error
        pages.add(page, len(body))

    def _noted(self, resource: Resource[T], event: WatchEvent[T]) -> WatchEvent[T]:
        if event.type == "UNREADABLE":
            self._report(resource, Odd(event.object, event.problem))
        return event

    def _report(self, resource: Resource[T], odd: Odd[T]) -> None:
        """Count the object, and log it once for each problem that it has."""
        self.metrics.unreadable_objects.labels(resource.plural).inc()
        metadata = odd.object.metadata
        key = (resource.plural, metadata.namespace, metadata.name)
        if self._reported.get(key) == odd.problem:
            return
        if len(self._reported) >= MOST_REPORTED:
            self._reported.clear()
        self._reported[key] = odd.problem
        log.error(
            "Skipped an object that does not decode",
            kind=resource.kind,
            namespace=metadata.namespace,
            name=metadata.name or "(unknown)",
            problem=odd.problem,
        )


def _fed(splitter: LineSplitter, chunk: bytes, path: str) -> Sequence[bytes]:
    try:
        return splitter.feed(chunk)
    except TooLong as error:
        raise TooLong(f"WATCH {path}: {error}") from error


def _path(resource: Resource[T], name: str, namespace: str, subresource: str = "") -> str:
    if not name or "/" in name or name in {".", ".."}:
        # With an empty name the path would be that of the whole collection.
        raise ValueError(f"{name!r} cannot be the name of a {resource.kind}")
    return resource.path(name, namespace=namespace, subresource=subresource)


def _selecting(selector: Selector) -> dict[str, str]:
    query = {"labelSelector": selector.labels, "fieldSelector": selector.fields}
    return {key: value for key, value in query.items() if value}


def _watching(options: WatchOptions) -> dict[str, str]:
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(options.duration),
    }
    if options.resource_version:
        query["resourceVersion"] = options.resource_version
    if options.initial_events:
        query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    return query


def _encode(resource: Resource[T], body: T | Mapping[str, object], subresource: str) -> bytes:
    if subresource and not isinstance(body, KubeObject):  # of a kind of its own, e.g. TokenRequest
        return encode(body, micro_times=resource.has_micro_times)
    named = {"apiVersion": resource.api_version, "kind": resource.kind}
    return encode(body, named, micro_times=resource.has_micro_times)


def _delete_options(preconditions: Preconditions) -> bytes | None:
    wanted = {"uid": preconditions.uid, "resourceVersion": preconditions.resource_version}
    wanted = {key: value for key, value in wanted.items() if value}
    if not wanted:
        return None
    return encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": wanted})
