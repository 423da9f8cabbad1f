"""Parsed values by name, with defaults, and where each value came from."""

from collections.abc import Mapping
from enum import Enum
from typing import Protocol, TypeVar, cast

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Declaration(Protocol[T_co]):
    """Anything with a name and a default: a flag, or an option of a provider."""

    @property
    def name(self) -> str: ...
    @property
    def default(self) -> T_co: ...


class Source(Enum):
    """Where a value came from; a later one in this list wins over an earlier one."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Values:
    """The value of each declaration: the given one, else the default. Its repr shows names only."""

    def __init__(self, given: Mapping[str, object], source: Source = Source.FLAG) -> None:
        self._given = dict(given)
        self._sources = dict.fromkeys(given, source)

    @classmethod
    def layered(cls, layers: Mapping[Source, Mapping[str, object]]) -> "Values":
        """Returns the values of all sources, each from the strongest source that gives it."""
        values = cls({})
        for source in Source:
            for name, value in layers.get(source, {}).items():
                values._given[name] = value
                values._sources[name] = source
        return values

    def __getitem__(self, declaration: Declaration[T]) -> T:
        return cast("T", self._given.get(declaration.name, declaration.default))

    def with_flag(self, declaration: Declaration[T], value: T) -> "Values":
        """Returns the values as if this one were given as a flag."""
        made = Values({**self._given, declaration.name: value})
        made._sources = {**self._sources, declaration.name: Source.FLAG}
        return made

    def given(self, declaration: Declaration[object]) -> bool:
        """Returns whether the user gave a value, even if it equals the default."""
        return declaration.name in self._given

    def __contains__(self, declaration: Declaration[object]) -> bool:
        return self.given(declaration)

    def source(self, declaration: Declaration[object]) -> Source:
        return self._sources.get(declaration.name, Source.DEFAULT)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Values) and self._given == other._given

    __hash__ = None  # type: ignore[assignment] -- values may be lists

    def __repr__(self) -> str:
        return f"Values({', '.join(sorted(self._given))})"
