"""JSON to typed resources and back. An object that does not decode never affects the others."""

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Generic, Literal, cast

import msgspec

from pileus.clock import rfc3339
from pileus.dataclass import dataclass
from pileus.kube.decoding import Malformed, decode
from pileus.kube.errors import Unreadable, refusal_in_stream
from pileus.kube.model.meta import KubeObject, ObjectMeta, T, Wire

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "UNREADABLE"]


@dataclass(frozen=True, slots=True)
class Odd(Generic[T]):
    """An object that does not decode: as much of its metadata as does, and what is wrong."""

    object: T
    problem: str


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """What a watch says of one object.

    BOOKMARK: the object has metadata only. UNREADABLE: it was added or modified, but does not
    decode; `object` has only its name, namespace, UID and version, and `problem` says why.
    """

    type: EventType
    object: T
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list. `more` is the token for the next part, "" after the last."""

    items: Sequence[T]
    resource_version: str
    more: str
    odd: tuple[Odd[T], ...] = ()


class _ListMeta(Wire, frozen=True):
    resource_version: str = ""
    more: str = msgspec.field(name="continue", default="")


class _List(Wire, Generic[T], frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[T] | None = None


class _RawList(Wire, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct, Generic[T], frozen=True, gc=False):
    type: str
    object: T


class _RawEvent(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


class _Identity(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Bearer(Wire, frozen=True):
    metadata: _Identity = _Identity()


_BEARER = msgspec.json.Decoder(_Bearer)
_RAW_EVENT = msgspec.json.Decoder(_RawEvent)
_RAW_LIST = msgspec.json.Decoder(_RawList)
_SIMPLE = frozenset({str, int, bool, float, type(None)})
_PLAIN = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


class Codec(Generic[T]):
    """Decodes one kind. Use `codec_of`, which builds each only once."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._item = msgspec.json.Decoder(kind)
        self._list = cast("msgspec.json.Decoder[_List[T]]", _decoder(_List, kind))
        self._event = cast("msgspec.json.Decoder[_Event[T]]", _decoder(_Event, kind))

    def item(self, body: bytes | msgspec.Raw) -> T:
        """Raises `Unreadable` with the problem and its place."""
        try:
            return decode(self._item, body)
        except Malformed as error:
            raise Unreadable(f"not a {self._kind.__name__}: {error}") from error

    def page(self, body: bytes) -> Page[T]:
        """Raises `Unreadable` if it is not a list."""
        try:
            whole = decode(self._list, body)
        except Malformed:
            page = self._page_one_by_one(body)
        else:
            page = Page(whole.items or (), whole.metadata.resource_version, whole.metadata.more)
        for item in page.items:
            item.share_strings()
        if not page.resource_version:
            # Some other JSON, such as {}, must not be taken for "there is nothing any more".
            raise Unreadable(f"not a list of {self._kind.__name__}: it has no resourceVersion")
        return page

    def event(self, line: bytes, *, path: str) -> WatchEvent[T]:
        """Raises `Unreadable` if it is not an event; an `ApiError` for an ERROR event."""
        try:
            event = decode(self._event, line)
        except Malformed:
            return self._unusual_event(line, path)
        if event.type in _PLAIN:
            return WatchEvent(cast("EventType", event.type), event.object)
        return self._unusual_event(line, path)

    def _page_one_by_one(self, body: bytes) -> Page[T]:
        try:
            whole = decode(_RAW_LIST, body)
        except Malformed as error:
            raise Unreadable(f"not a list of {self._kind.__name__}: {error}") from error
        items: list[T] = []
        odd: list[Odd[T]] = []
        for raw in whole.items or ():
            try:
                items.append(self.item(raw))
            except Unreadable as error:
                odd.append(Odd(self._bare(raw), str(error)))
        return Page(items, whole.metadata.resource_version, whole.metadata.more, tuple(odd))

    def _unusual_event(self, line: bytes, path: str) -> WatchEvent[T]:
        try:
            event = decode(_RAW_EVENT, line)
        except Malformed as error:
            raise Unreadable(f"WATCH {path}: not an event: {error}") from error
        if event.type == "ERROR":
            raise refusal_in_stream(path, bytes(event.object))
        bare = self._bare(event.object)
        if event.type in {"DELETED", "BOOKMARK"}:
            return WatchEvent(cast("EventType", event.type), bare)
        return WatchEvent("UNREADABLE", bare, self._problem(event))

    def _problem(self, event: _RawEvent) -> str:
        try:
            self.item(event.object)
        except Unreadable as error:
            return str(error)
        return f"unknown type of event {event.type!r}"

    def _bare(self, raw: msgspec.Raw) -> T:
        try:
            known = decode(_BEARER, raw).metadata
        except Malformed:
            known = _Identity()
        return self._kind(
            metadata=ObjectMeta(
                name=known.name,
                namespace=known.namespace,
                uid=known.uid,
                resource_version=known.resource_version,
            )
        )


def encode(
    body: object, first: Mapping[str, object] | None = None, *, micro_times: bool = False
) -> bytes:
    """JSON as the API server reads it; `first` are fields that the body does not have.

    With `micro_times`, times get six digits: a micro time is refused without them.
    """
    if first is None and not micro_times:
        return msgspec.json.encode(body)
    builtins = msgspec.to_builtins(body, builtin_types=(datetime,) if micro_times else ())
    if first is not None:
        builtins = {**first, **builtins}
    return msgspec.json.encode(_with_micro_times(builtins) if micro_times else builtins)


def codec_of(kind: type[T]) -> Codec[T]:
    return cast("Codec[T]", _cached_codec(kind))


@functools.cache
def _cached_codec(kind: type[KubeObject]) -> Codec[KubeObject]:
    return Codec(kind)


def _decoder(generic: type[object], kind: type[KubeObject]) -> msgspec.json.Decoder[object]:
    specialize = cast("Mapping[type[KubeObject], type[object]]", generic)
    return msgspec.json.Decoder(specialize[kind])


def _with_micro_times(value: object) -> object:
    """Returns the value with times as text. Changes its dicts."""
    if isinstance(value, dict):
        items = cast("dict[object, object]", value)
        for key, inner in items.items():
            if type(inner) not in _SIMPLE:
                items[key] = _with_micro_times(inner)
        return items
    if isinstance(value, list | tuple):
        return [_with_micro_times(inner) for inner in cast("Sequence[object]", value)]
    return rfc3339(value, "microseconds") if isinstance(value, datetime) else value
