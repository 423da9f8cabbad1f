"""What a resource is: its names, fields and rules. A new one is a declaration of a few lines."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pileus_lab.apiserver.errors import Problem, Subject, invalid
from pileus_lab.apiserver.field_errors import Fault
from pileus_lab.apiserver.store import Entry, encode
from pileus_lab.apiserver.tree import Obj, look, name_of, namespace_of, text

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)


def _nothing(_value: Obj) -> None:
    return


def _no_faults(_value: Obj) -> Iterable[Fault]:
    return ()


def _no_change_faults(_new: Obj, _old: Obj) -> Iterable[Fault]:
    return ()


def _no_preparation(_new: Obj, _old: Obj) -> None:
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a write applies to an object, in this order; each may be left out."""

    default: Callable[[Obj], None] = _nothing
    """Sets defaults; on every write."""
    create: Callable[[Obj], None] = _nothing
    """Sets the initial values of a new object."""
    update: Callable[[Obj, Obj], None] = _no_preparation
    """Adjusts the new object to the old one."""
    validate_new: Callable[[Obj], Iterable[Fault]] = _no_faults
    validate: Callable[[Obj], Iterable[Fault]] = _no_faults
    """Validates a new or changed object."""
    validate_update: Callable[[Obj, Obj], Iterable[Fault]] = _no_change_faults
    """Validates a change from the old object to the new one."""
    name_faults: Callable[[str], Iterable[str]] | None = None
    """Validates the name; default: a DNS subdomain."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; `wide` ones are shown only with `-o wide`."""

    name: str
    cell: Callable[[Obj], object]
    wide: bool = False
    type: str = "string"


@dataclass(frozen=True, slots=True)
class Subresource:
    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


STATUS_VERBS = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Face:
    """The form of a resource in another group; it is stored in the form of the first."""

    stored: str
    """Name of the collection in the store."""
    outward: Callable[[Obj], Obj]
    inward: Callable[[Obj], Obj]


@dataclass(frozen=True, kw_only=True)
class Resource:
    kind: str
    plural: str
    schema: str
    """Name of the type in the field tables."""
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    counts_generations: bool = False
    """`metadata.generation` increases with each change outside of metadata and status."""
    rules: Rules = field(default_factory=Rules)
    columns: tuple[Column, ...] = ()
    selectable: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Fields besides name and namespace that a field selector may use, with their paths."""
    face: Face | None = None
    returns_deleted: bool = False
    """A deletion answers with the object instead of a Status."""
    creates_on_update: bool = False
    """A PUT to a missing name creates the object."""
    status_is_apart: bool = False
    """A write to the status cannot change metadata."""
    needs_version: bool = False
    """A PUT must contain the resourceVersion that it is based on."""

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @cached_property
    def subject(self) -> Subject:
        return Subject(self.group, self.plural)

    @cached_property
    def shelf(self) -> str:
        return self.face.stored if self.face else str(self.subject)

    @cached_property
    def has_status(self) -> bool:
        return any(s.name == "status" for s in self.subresources)

    @cached_property
    def fields(self) -> frozenset[str]:
        """The fields that a field selector may use."""
        own = {"metadata.name", *self.selectable}
        return frozenset(own | {"metadata.namespace"} if self.namespaced else own)

    def select(self, value: Obj, name: str) -> str:
        """Returns the values that a field selector compares."""
        if name == "metadata.name":
            return name_of(value)
        if name == "metadata.namespace":
            return namespace_of(value)
        found = look(value, *self.selectable[name])
        if isinstance(found, bool):
            return "true" if found else "false"
        return "" if found is None else str(found)

    @cached_property
    def head(self) -> bytes:
        """How each object begins; lists leave it out of their items, and so does the store."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    def item(self, entry: Entry) -> bytes:
        """Returns the object's bytes as an item of a list, in the form of this group."""
        return entry.raw if self.face is None else encode(self.face.outward(entry.decode()))

    def whole(self, entry: Entry) -> bytes:
        """Returns the object's bytes with kind and version."""
        return self.head + self.item(entry)[1:]

    def unfit(self, name: str, faults: list[Fault]) -> Problem:
        return invalid(self.group, self.kind, name, faults)


NONE = "<none>"
UNKNOWN = "<unknown>"


def created(value: Obj) -> object:
    """The creation time; `representation.py` shows it as an age."""
    return text(value, "metadata", "creationTimestamp")


NAME = Column("Name", name_of)
AGE = Column("Age", created, type="age")
