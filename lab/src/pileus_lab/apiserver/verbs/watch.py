"""Watch: changes of the selected objects from a version on."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf

from pileus_lab.apiserver import errors
from pileus_lab.apiserver.call import Call, Response
from pileus_lab.apiserver.resource import Resource
from pileus_lab.apiserver.schema import conversion
from pileus_lab.apiserver.state import State
from pileus_lab.apiserver.store import Change, Entry, Key, Shelf, encode
from pileus_lab.apiserver.tree import Obj, grow
from pileus_lab.apiserver.verbs.read import Chooser, check_list_options, whole_number

STREAM = "application/json"
INITIAL_END = {"k8s.io/initial-events-end": "true"}
LAST_BOOKMARK = 2.0
"""Seconds before its end at which a watch gets its last bookmark."""
BATCH = 256 * 1024
"""Approximate number of bytes to send at a time."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client requests."""

    chooser: Chooser
    since: int
    initial: bool
    """Whether all current objects come first, as added."""
    bookmarks: bool
    ends_initial: bool
    """Whether a bookmark marks the end of these."""
    seconds: float


Render = Callable[[Entry], bytes]


def watch(state: State, call: Call, render: Render | None = None) -> Response:
    """Answers with a stream of events, objects as `render` shows them.

    Raises `Problem` before the stream begins.
    """
    check_list_options(call)
    wish = _wish(state, call)
    shelf = state.shelf(call.resource)
    if not wish.initial and wish.since < shelf.forgotten:
        return Response(content_type=STREAM, stream=_refused(wish.since, shelf.forgotten))
    watcher = Watcher(state, call.resource, wish, render or call.resource.whole)
    return Response(content_type=STREAM, stream=watcher.events())


def _wish(state: State, call: Call) -> Wish:
    written = call.query.get("resourceVersion", "")
    if written and not written.isdigit():
        told = f'strconv.ParseUint: parsing "{written}": invalid syntax'
        told = f'resourceVersion: Invalid value: "{written}": {told}'
        raise errors.Problem(500, "", told)
    bookmarks = call.flag("allowWatchBookmarks")
    asked = call.query.get("sendInitialEvents")
    from_start = written in {"", "0"}
    initial = from_start if asked is None else asked.lower() in {"true", "1"}
    seconds = whole_number(call.query, "timeoutSeconds")
    least = state.options.watch_timeout
    return Wish(
        chooser=Chooser(call),
        since=int(written or 0) if not from_start else state.store.settled,
        initial=initial,
        bookmarks=bookmarks,
        ends_initial=bookmarks and initial,
        seconds=seconds or least * (1 + state.random.random()),
    )


async def _refused(since: int, oldest: int) -> AsyncGenerator[bytes]:
    status = errors.expired(f"too old resource version: {since} ({oldest})").status()
    yield _event(b"ERROR", encode(status))


def _event(kind: bytes, body: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind, body)


class Watcher:
    """One watch in progress. It ends with an error if it is slower than the history is long."""

    def __init__(self, state: State, resource: Resource, wish: Wish, render: Render) -> None:
        self._render = render
        self._store = state.store
        self._shelf: Shelf = state.shelf(resource)
        self._resource = resource
        self._wish = wish
        self._head = resource.head
        self._every = state.options.bookmark_every
        self._at = wish.since
        self._news = asyncio.Event()

    async def events(self) -> AsyncGenerator[bytes]:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._wish.seconds
        self._shelf.waiters[self._news.set] = None
        try:
            if self._wish.initial:
                for piece in self._initial():
                    yield piece
            async for piece in self._following(loop, end):
                yield piece
        finally:
            self._shelf.waiters.pop(self._news.set, None)

    async def _following(
        self, loop: asyncio.AbstractEventLoop, end: float
    ) -> AsyncGenerator[bytes]:
        next_bookmark = self._next_bookmark(loop.time(), end)
        while True:
            if self._at < self._shelf.forgotten:
                async for piece in _refused(self._at, self._shelf.forgotten):
                    yield piece
                return
            self._news.clear()
            for piece in self._batches():
                yield piece
            now = loop.time()
            if now >= end:
                return
            if self._wish.bookmarks and now >= next_bookmark:
                yield self._bookmark({})
                next_bookmark = self._next_bookmark(now, end)
            await self._wait(min(end, next_bookmark if self._wish.bookmarks else end) - now)

    def _next_bookmark(self, now: float, end: float) -> float:
        """Periodically and shortly before the end, so that the next watch can continue."""
        last = end - LAST_BOOKMARK
        return min(now + self._every, last if last > now else inf)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    def _initial(self) -> Iterator[bytes]:
        """All current objects, as added; changes follow."""
        self._at = self._store.settled
        before = self._shelf.at(self._at)
        entries = (before.get(key, self._shelf.entries.get(key)) for key in self._keys(before))
        chosen = [e for e in entries if e is not None and self._wish.chooser.matches(e)]
        yield from _gathered(self._shown(b"ADDED", entry) for entry in chosen)
        if self._wish.ends_initial:
            yield self._bookmark(INITIAL_END)

    def _keys(self, before: dict[Key, Entry | None]) -> list[Key]:
        return sorted({*self._shelf.keys, *before}) if before else list(self._shelf.keys)

    def _batches(self) -> Iterator[bytes]:
        """The changes since then, in chunks."""
        until = self._store.settled
        changes = list(self._shelf.since(self._at, until))
        self._at = max(self._at, until)
        yield from _gathered(piece for change in changes if (piece := self._seen(change)))

    def _seen(self, change: Change) -> bytes | None:
        """How this client sees a change: an object that leaves its selection is deleted for it."""
        chooser = self._wish.chooser
        was = chooser.matches(change.before)
        now = not change.gone and chooser.matches(change.after)
        if now:
            return self._shown(b"MODIFIED" if was else b"ADDED", change.after)
        if not was or change.before is None:
            return None
        if change.gone:
            return self._shown(b"DELETED", change.after)
        last = change.before.decode()
        grow(last, "metadata")["resourceVersion"] = str(change.version)
        return self._shown(b"DELETED", Entry(change.after.key, change.version, encode(last)))

    def _shown(self, kind: bytes, entry: Entry) -> bytes:
        return b"".join((b'{"type":"', kind, b'","object":', self._render(entry), b"}\n"))

    def _bookmark(self, annotations: dict[str, str]) -> bytes:
        meta: Obj = {"resourceVersion": str(self._at)}
        if annotations:
            meta["annotations"] = annotations
        empty = conversion.canonical(self._resource.schema, {"metadata": meta})
        return _event(b"BOOKMARK", self._head + encode(empty)[1:])


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Joins small pieces into larger ones."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size > BATCH:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
