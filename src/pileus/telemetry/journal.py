"""The journal: the recent decisions of this process about each object, in memory.

    pass ──▶ entries, one per object ──▶ ring in memory ──▶ /history on the secure port
                                     └─▶ sinks: a file, an OpenTelemetry collector

An entry says what a pass observed, planned, called and wrote, and how it ended. Passes that found
nothing to do are not kept. An entry that repeats the last one of its controller about the object
replaces it, and counts.
The ring is bounded in entries per object, in entries and in bytes; the oldest entries are dropped.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import msgspec

from pileus.dataclass import dataclass

VERSION = 1
"""Version of the JSON form: raised when a field changes its meaning or is removed."""
LONGEST_TEXT = 400
"""Characters of one text of an entry."""
MOST_LINES, MOST_DETAILS, MOST_CALLS, MOST_REQUESTS, MOST_WRITES = 40, 20, 20, 10, 20
"""Plan lines of an entry, details of a line, calls of an entry, requests of a call, writes."""
LONGEST_ENTRY = 32 * 1024
"""Bytes of an entry as JSON; a longer one loses its details and requests."""
_REQUEST_ID = re.compile(r" \(request ID [^)]*\)")


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    pass


class Subject(_Value, frozen=True, kw_only=True):
    """The object that an entry is about."""

    kind: str
    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def place(self) -> tuple[str, str, str]:
        """Under which the entries of an object are kept, also of its namesakes over time."""
        return self.kind, self.namespace, self.name or self.uid

    @property
    def title(self) -> str:
        """`Node web-1`, `Service shop/web`."""
        name = self.name or f"with UID {self.uid}"
        return f"{self.kind} {self.namespace}/{name}" if self.namespace else f"{self.kind} {name}"


class Line(_Value, frozen=True, kw_only=True):
    """One line of a plan: a change, or (with `reason`) what blocks the object."""

    place: str = ""
    """`cloud` or `cluster`."""
    action: str = ""
    """`create`, `update`, `replace` or `delete`."""
    summary: str
    """The change in one line; with `reason`, its message."""
    details: tuple[str, ...] = ()
    waits_for: str = ""
    reason: str = ""


class HttpRequest(_Value, frozen=True, kw_only=True):
    """One request of a provider to its cloud."""

    request: str
    """Method and path, without the query."""
    status: int
    seconds: float
    id: str = ""
    """The request ID that the cloud answered with."""


class Call(_Value, frozen=True, kw_only=True):
    """One call of a provider's method."""

    method: str
    """Such as `instances.find`."""
    items: int = 1
    """How many nodes or load balancers it was about; calls of several passes are merged."""
    is_write: bool = False
    started: float
    """Seconds since the pass began; negative if the call had begun before."""
    seconds: float
    result: str = "success"
    """`success`, `cancelled` or the name of the error."""
    message: str = ""
    requests: tuple[HttpRequest, ...] = ()

    @property
    def has_failed(self) -> bool:
        return self.result not in {"success", "cancelled"}


class Write(_Value, frozen=True, kw_only=True):
    """One write to the API server."""

    request: str
    """Method and path."""
    started: float
    seconds: float
    status: int = 0
    """Of the answer; 0: there was none."""
    message: str = ""
    id: str = ""
    """The audit ID that the API server answered with."""

    @property
    def has_failed(self) -> bool:
        return not 200 <= self.status < 300  # noqa: PLR2004 -- HTTP's own numbers


class Entry(_Value, frozen=True, kw_only=True):
    """One decision about one object."""

    sequence: int = 0
    """Rises with every change of the journal."""
    at: datetime
    """When the pass ended."""
    first: datetime
    """When the first of `count` equal passes ended."""
    count: int = 1
    object: Subject
    controller: str
    seconds: float
    observed: str = ""
    plan: tuple[Line, ...] = ()
    calls: tuple[Call, ...] = ()
    writes: tuple[Write, ...] = ()
    result: str
    """`done`, `failed`, `stopped` (not the leader any more) or `cancelled`."""
    message: str = ""
    """Why it failed."""
    next_in: float | None = None
    """Seconds until the next pass that is already planned; None: when something changes."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was planned, written or failed."""
        is_noted = any(call.is_write or call.has_failed for call in self.calls)
        return not (self.plan or self.writes or self.result == "failed" or is_noted)

    def repeats(self, other: "Entry") -> bool:
        """Whether it says the same as another entry, apart from times and calls."""
        return (
            self.controller == other.controller
            and self.observed == other.observed
            and self.plan == other.plan
            and self.result == other.result
            and _REQUEST_ID.sub("", self.message) == _REQUEST_ID.sub("", other.message)
            and not self.writes
            and not other.writes
        )


class History(_Value, frozen=True, kw_only=True):
    """What the secure port answers."""

    version: int
    identity: str = ""
    """The process, as in its lease."""
    leading: bool = False
    """Whether the process is the leader: others decide nothing."""
    since: datetime
    """When the journal began: the start of the process."""
    now: datetime
    sequence: int
    """Of the newest entry; ask for entries after it to get what is new."""
    dropped: int = 0
    """Entries that were dropped to keep the bounds."""
    entries: tuple[msgspec.Raw, ...] = ()
    """The newest last."""
    objects: int = 0
    """Objects with entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much the journal keeps."""

    per_object: int = 50
    entries: int = 10_000
    total_bytes: int = 16 * 1024 * 1024


_ENTRY = msgspec.json.Decoder(Entry)


class _Kept(msgspec.Struct, frozen=True, gc=False):
    """An entry as JSON, which takes a third of the memory of its values."""

    text: bytes
    place: tuple[str, str, str]
    controller: str

    @property
    def entry(self) -> Entry:
        return _ENTRY.decode(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which entries are asked for; empty fields mean all."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    controller: str = ""
    after: int = 0
    limit: int = 500

    def has(self, entry: Entry) -> bool:
        about = entry.object
        return (
            entry.sequence > self.after
            and self.kind in {"", about.kind}
            and self.namespace in {"", about.namespace}
            and self.name in {"", about.name, about.uid}
            and self.controller in {"", entry.controller}
        )


class Journal:
    """The ring of entries."""

    def __init__(self, since: datetime, bounds: Bounds | None = None, identity: str = "") -> None:
        self.since = since
        self.bounds = bounds or Bounds()
        self.identity = identity
        self.leads: Callable[[], bool] = lambda: True
        """Returns whether the process is the leader."""
        self.size = 0
        """Bytes of all entries as JSON."""
        self.dropped = 0
        self.sequence = 0
        self._kept: dict[int, _Kept] = {}
        self._by_object: dict[tuple[str, str, str], list[int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def objects(self) -> int:
        return len(self._by_object)

    def add(self, entry: Entry) -> None:
        """Keep the entry, unless it is quiet. Drops the oldest entries beyond the bounds."""
        if entry.is_quiet or not self.bounds.entries:
            return
        entry = self._merged(entry)
        self.sequence += 1
        entry = msgspec.structs.replace(entry, sequence=self.sequence)
        text = msgspec.json.encode(entry)
        if len(text) > LONGEST_ENTRY:
            entry = shortened(entry)
            text = msgspec.json.encode(entry)
        own = self._by_object.setdefault(entry.object.place, [])
        place = self._kept[own[0]].place if own else entry.object.place
        self._kept[self.sequence] = _Kept(text, place, sys.intern(entry.controller))
        own.append(self.sequence)
        self.size += len(text)
        self._shrink(place)

    def record(self, _: object, entries: Sequence[Entry]) -> None:
        """Keep the entries of a pass that ended."""
        for entry in entries:
            self.add(entry)

    def history(self, question: Question, now: datetime) -> History:
        """Returns the newest entries that are asked for, at most `limit` of them."""
        found: list[msgspec.Raw] = []
        for number, kept in self._newest_first(question):
            if len(found) >= max(question.limit, 0) or number <= question.after:
                break
            if question.has(kept.entry):
                found.append(msgspec.Raw(kept.text))
        return History(
            version=VERSION,
            identity=self.identity,
            leading=self.leads(),
            since=self.since,
            now=now,
            sequence=self.sequence,
            dropped=self.dropped,
            entries=tuple(reversed(found)),
            objects=self.objects,
        )

    def _newest_first(self, question: Question) -> Iterator[tuple[int, _Kept]]:
        one = self._by_object.get((question.kind, question.namespace, question.name))
        return ((number, self._kept[number]) for number in reversed(one or self._kept))

    def _merged(self, entry: Entry) -> Entry:
        """Returns the entry; if it repeats the last one of its controller, that one is dropped."""
        own = self._by_object.get(entry.object.place, ())
        all_last = (self._kept[number] for number in reversed(own))
        kept = next((one for one in all_last if one.controller == entry.controller), None)
        if kept is None:
            return entry
        last = kept.entry
        if not entry.repeats(last):
            return entry
        self._drop(last.sequence)
        return msgspec.structs.replace(entry, first=last.first, count=last.count + 1)

    def _shrink(self, place: tuple[str, str, str]) -> None:
        own = self._by_object[place]
        while len(own) > self.bounds.per_object:
            self._drop(own[0])
            self.dropped += 1
        while len(self) > self.bounds.entries or self.size > self.bounds.total_bytes:
            self._drop(next(iter(self._kept)))
            self.dropped += 1

    def _drop(self, number: int) -> None:
        kept = self._kept.pop(number)
        self.size -= len(kept.text)
        own = self._by_object[kept.place]
        own.remove(number)
        if not own:
            del self._by_object[kept.place]


def shortened(entry: Entry) -> Entry:
    """Returns the entry without the details of its plan and the requests of its calls."""
    replace = msgspec.structs.replace
    return replace(
        entry,
        plan=tuple(replace(line, details=()) for line in entry.plan[: MOST_LINES // 2]),
        calls=tuple(replace(call, requests=()) for call in entry.calls[: MOST_CALLS // 2]),
        writes=entry.writes[: MOST_WRITES // 2],
    )


def cut(text: str) -> str:
    """Returns the text, shortened to what an entry keeps of it."""
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def decoded(history: History) -> Sequence[Entry]:
    """Returns the entries of an answer."""
    return [msgspec.json.decode(entry, type=Entry) for entry in history.entries]
