"""What is known of one kind of object, indexed, and what changes when more becomes known."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from pileus.dataclass import dataclass
from pileus.kube.model.meta import KubeObject, T
from pileus.telemetry.log import Log

log = Log(__name__)

T_co = TypeVar("T_co", bound=KubeObject, covariant=True)


class NamespacedName(msgspec.Struct, frozen=True, order=True, gc=False):
    """Which object is meant; the namespace of a cluster-wide one is ""."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


Index = Callable[[T], Iterable[Hashable]]
"""The values under which an object is to be found."""
_Index = dict[Hashable, NamespacedName | dict[NamespacedName, None]]
"""By value: the only object with it, or all. Most values are of one object, such as its UID."""


class Store(Protocol[T_co]):
    """A view of the cluster for reading. It changes only between two awaits of the reader."""

    def get(self, key: NamespacedName) -> T_co | None: ...

    def list(self) -> tuple[T_co, ...]:
        """All objects, as they are now; the order means nothing."""
        ...

    def by_index(self, index: str, value: Hashable) -> tuple[T_co, ...]:
        """All objects for which the index function of that name gives `value`."""
        ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Added(Generic[T]):
    new: T


@dataclass(frozen=True, slots=True)
class Updated(Generic[T]):
    old: T
    new: T


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    old: T


Change = Added[T] | Updated[T] | Deleted[T]


class Table(Generic[T]):
    """The store that an informer writes."""

    def __init__(self, indexes: Mapping[str, Index[T]] | None = None) -> None:
        self._items: dict[NamespacedName, T] = {}
        self._functions = dict(indexes or {})
        self._found: dict[str, _Index] = {name: {} for name in self._functions}

    def add_index(self, name: str, function: Index[T]) -> None:
        """Index all items, now and later, by `function`. An index of that name is kept."""
        if name in self._functions:
            return
        self._functions[name] = function
        self._found[name] = {}
        for key, item in self._items.items():
            for value in self._values(name, item):
                _insert(self._found[name], value, key)

    def get(self, key: NamespacedName) -> T | None:
        return self._items.get(key)

    def list(self) -> tuple[T, ...]:
        return tuple(self._items.values())

    def by_index(self, index: str, value: Hashable) -> tuple[T, ...]:
        match self._found[index].get(value, {}):
            case NamespacedName() as key:
                return (self._items[key],)
            case keys:
                return tuple(self._items[key] for key in keys)

    def __len__(self) -> int:
        return len(self._items)

    def apply(self, change: Change[T]) -> None:
        match change:
            case Added(new):
                self._put(new)
            case Updated(old, new):
                self._remove(old)
                self._put(new)
            case Deleted(old):
                self._remove(old)

    def _put(self, item: T) -> None:
        key = key_of(item)
        self._items[key] = item
        for index in self._functions:
            for value in self._values(index, item):
                _insert(self._found[index], value, key)

    def _remove(self, item: T) -> None:
        key = key_of(item)
        del self._items[key]
        for index in self._functions:
            for value in self._values(index, item):
                _discard(self._found[index], value, key)

    def _values(self, index: str, item: T) -> frozenset[Hashable]:
        try:
            return frozenset(self._functions[index](item))
        except Exception as error:  # another's function must not stop the informer
            log.exception("Index function failed", error=error, index=index, key=key_of(item))
            return frozenset()


def key_of(item: KubeObject) -> NamespacedName:
    return NamespacedName(item.metadata.namespace, item.metadata.name)


def changes(old: T | None, new: T | None) -> tuple[Change[T], ...]:
    """What has happened to one name, given what was and what is. Empty: nothing.

    Another UID under the same name is another object: one was deleted, one added.
    """
    match old, new:
        case None, None:
            return ()
        case None, _:
            return (Added(new),)
        case _, None:
            return (Deleted(old),)
        case _ if _is_another(old, new):
            return (Deleted(old), Added(new))
        case _ if _is_same(old, new):
            return ()
        case _:
            return (Updated(old, new),)


def difference(
    store: Store[T], found: Mapping[NamespacedName, T], *, unreadable: Mapping[NamespacedName, str]
) -> list[Change[T]]:
    """What has happened since, given a full list.

    `unreadable` are names (with UIDs) of objects that exist but do not decode: what is known of
    them stays, because an object that does not decode still exists.
    """
    happened: list[Change[T]] = []
    for old in store.list():
        key = key_of(old)
        if key not in found and unreadable.get(key) not in {"", old.metadata.uid}:
            happened.append(Deleted(old))
    for key, new in found.items():
        happened.extend(changes(store.get(key), new))
    return happened


def _is_another(old: KubeObject, new: KubeObject) -> bool:
    known = bool(old.metadata.uid and new.metadata.uid)
    return known and old.metadata.uid != new.metadata.uid


def _is_same(old: KubeObject, new: KubeObject) -> bool:
    if old.metadata.resource_version and new.metadata.resource_version:
        return old.metadata.resource_version == new.metadata.resource_version
    return old == new


def _insert(index: _Index, value: Hashable, key: NamespacedName) -> None:
    known = index.get(value)
    if known is None or known == key:
        index[value] = key
    elif isinstance(known, NamespacedName):
        index[value] = {known: None, key: None}
    else:
        known[key] = None


def _discard(index: _Index, value: Hashable, key: NamespacedName) -> None:
    known = index.get(value)
    if known == key:
        del index[value]
    elif isinstance(known, dict):
        known.pop(key, None)
        if not known:
            del index[value]
