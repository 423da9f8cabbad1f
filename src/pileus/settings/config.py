"""The configuration of the program, made of settings classes, and the table of their flags."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from pileus.settings.declare import Nested, build, fields_of, settings_of
from pileus.settings.flags import AnyFlag, Group, Table
from pileus.settings.values import Values

S = TypeVar("S")


@runtime_checkable
class Checked(Protocol):
    """A settings class with rules about several settings."""

    def problems(self, config: "Config") -> Iterable[str]:
        """Returns what is wrong. `config` has the settings of all other classes."""
        ...


@runtime_checkable
class Warned(Protocol):
    """A settings class with values that are valid and probably not meant."""

    def warnings(self) -> Iterable[tuple[str, Mapping[str, str]]]:
        """Returns log messages with their fields. Only called if there are no problems."""
        ...


@runtime_checkable
class CheckedIfEnabled(Protocol):
    """Settings of a controller, with rules that matter only if the controller runs."""

    def problems_if_enabled(self, config: "Config") -> Iterable[str]:
        """Returns what is wrong for the running controller."""
        ...


@runtime_checkable
class Shown(Protocol):
    """A settings class with computed entries of `/configz`."""

    def configz(self) -> Mapping[str, object]:
        """Returns entries by place, such as `NodeController.ConcurrentNodeSyncs`."""
        ...


class Config:
    """The configuration of the program: an instance of each settings class. Never changes."""

    def __init__(self, classes: Iterable[type[Any]], values: Values) -> None:
        self.values = values
        self._made: dict[type[Any], object] = {}
        self._unread: dict[type[Any], tuple[str, ...]] = {}
        for cls in classes:
            found: list[str] = []
            self._made[cls] = Nested(cls).build(values, found)
            self._unread[cls] = tuple(found)

    def __getitem__(self, cls: type[S]) -> S:
        """Returns the settings of a class; of one that is not registered, its defaults."""
        return cast("S", self._made.get(cls)) if cls in self._made else build(cls, self.values)

    def having(self, settings: object) -> "Config":
        """Returns this configuration with other settings of one class."""
        other = Config((), self.values)
        other._made = {**self._made, type(settings): settings}
        other._unread = self._unread
        return other

    @property
    def classes(self) -> tuple[type[Any], ...]:
        return tuple(self._made)

    def problems_of(self, cls: type[Any], *, enabled: bool = False) -> tuple[str, ...]:
        """Returns what is wrong with the settings of one class; empty if nothing is.

        `enabled`: whether it belongs to a controller that runs.
        """
        made: object = self[cls]
        found = [*self._unread[cls]]
        if isinstance(made, Checked):
            found += made.problems(self)
        if enabled and isinstance(made, CheckedIfEnabled):
            found += made.problems_if_enabled(self)
        return tuple(found)

    def warnings(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yields the log message and its fields for what is valid and probably not meant."""
        for made in self._made.values():
            if isinstance(made, Warned):
                yield from made.warnings()

    def configz(self) -> dict[str, Any]:
        """Returns the entries of `/configz` as a document of plain values."""
        document: dict[str, Any] = {}
        for cls, made in self._made.items():
            for one in settings_of(cls):
                if one.configz:
                    _place(document, one.configz, one.flag.kind.plain(self.values[one.flag]))
            if isinstance(made, Shown):
                for place, value in made.configz().items():
                    _place(document, place, value)
        return document


def _place(document: dict[str, Any], place: str, value: object) -> None:
    *outer, last = place.split(".")
    for key in outer:
        document = document.setdefault(key, {})
    document[last] = value


GO_SECTIONS = (
    "Debugging",
    "Leader-migration",
    "Generic",
    "Cloud-node-controller",
    "Cloud-node-lifecycle-controller",
    "Service-lb-controller",
    "Node-ipam-controller",
    "Webhook",
    "Webhook serving",
    "Secure serving",
    "Authentication",
    "Authorization",
    "Misc",
)
"""The sections of the Go program's help, in its order."""
OUR_SECTIONS = (
    "Pileus",
    "Pileus: node lifecycle",
    "Pileus: services",
    "Pileus: SSH keys",
    "Pileus: routes",
    "Pileus: history",
)
"""The sections that follow. Others come after them, in the order of registration."""
LAST_SECTION = "Global"


def table_of(classes: Iterable[type[Any]]) -> Table:
    """Returns the flags of all classes, in sections.

    Raises ValueError if two fields declare the same flag, naming both.
    """
    declared_by: dict[str, str] = {}
    titles = (*GO_SECTIONS, *OUR_SECTIONS)
    sections: dict[str, list[AnyFlag]] = {title: [] for title in titles}
    for cls in classes:
        for name, one in fields_of(cls).items():
            here = f"{cls.__module__}.{cls.__qualname__}.{name}"
            first = declared_by.setdefault(one.flag.name, here)
            if first != here:
                raise ValueError(
                    f"flag --{one.flag.name} is declared twice, by {first} and by {here}: "
                    "remove or rename one of them"
                )
            sections.setdefault(one.section, []).append(one.flag)
    last = sections.pop(LAST_SECTION, [])
    return Table(
        Group(title, tuple(flags), ours=title not in {*GO_SECTIONS, LAST_SECTION})
        for title, flags in (*sections.items(), (LAST_SECTION, last))
        if flags
    )
