"""Settings as frozen dataclasses: each field declares a flag, next to the code that uses it.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class LifecycleSettings:
        period: float = setting(
            "node-monitor-period", DURATION, 5.0, "Pause between two checks of all nodes.",
            section="Cloud-node-lifecycle-controller", check=POSITIVE,
        )

Everything else is derived from that one declaration: the flag and its help, the environment
variable, the key of the configuration file, validation, `/configz` and the reference page. A class
may have a method `problems(config)` for rules about several fields, and a method `configz()` for
entries that are computed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, fields, replace
from enum import StrEnum
from functools import cache
from typing import Any, Required, TypedDict, TypeVar, Unpack, cast

from pileus.dataclass import dataclass
from pileus.settings.flags import AnyFlag, Flag
from pileus.settings.go_quote import quote
from pileus.settings.kinds import BOOL, STRING, Kind
from pileus.settings.values import Values
from pileus.suggest import did_you_mean

T = TypeVar("T")
U = TypeVar("U")
E = TypeVar("E", bound=StrEnum)
S = TypeVar("S")

Check = Callable[[Flag[T], T], str | None]
"""Returns what is wrong with a value of the flag, or None."""
Read = Callable[[str, T], U]
"""Makes the field's value from the flag's name and value. Raises ValueError with the message."""

_SETTING, _NESTED = "setting", "nested"


class Extras(TypedDict, total=False):
    """What a declaration may say besides name, kind, default and help."""

    section: Required[str]
    """The title of the section of help and reference."""
    details: str
    short: str
    deprecated: str
    only_flag: bool
    only_file: bool
    check: Check[Any]
    configz: str
    """The place in `/configz`, such as `Generic.Debugging.enableProfiling`; empty: not shown."""


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What a field declares."""

    flag: AnyFlag
    section: str
    check: Check[Any] | None = None
    configz: str = ""
    read: Read[Any, Any] | None = None
    optional: bool = False
    """Whether the field is None unless the user gave a value."""


def setting(name: str, kind: Kind[T], default: T, text: str, /, **extras: Unpack[Extras]) -> T:
    """Declares a field with a flag."""
    return cast("T", _field(_declared(name, kind, default, text, extras), default))


def switch(name: str, text: str, /, *, default: bool = False, **extras: Unpack[Extras]) -> bool:
    """Declares a field that is on or off."""
    return setting(name, BOOL, default, text, **extras)


def optional(
    name: str, kind: Kind[T], shown: T, text: str, /, **extras: Unpack[Extras]
) -> T | None:
    """Declares a field that is None unless the user gave a value. Help shows `shown`."""
    declared = replace(_declared(name, kind, shown, text, extras), optional=True)
    return cast("T | None", _field(declared, None))


def choice(name: str, default: E, text: str, /, **extras: Unpack[Extras]) -> E:
    """Declares a field whose value is one of an enumeration's."""
    values = type(default)
    words = tuple(str(value) for value in values)

    def read(name: str, word: str) -> E:
        if word not in words:
            raise ValueError(
                f"{name} must be one of {', '.join(words)}, but got {quote(word)}"
                f"{did_you_mean(word, words)}"
            )
        return values(word)

    # Read as any text: a wrong word is reported with all other problems, not as bad syntax.
    kind = replace(STRING, choices=words)
    declared = _declared(name, kind, str(default), text, extras)
    return cast("E", _field(replace(declared, read=read), default))


def converted(
    read: Read[T, U], name: str, kind: Kind[T], default: T, text: str, /, **extras: Unpack[Extras]
) -> U:
    """Declares a field whose value is made from the flag's. `read` must accept the default."""
    declared = replace(_declared(name, kind, default, text, extras), read=read)
    return cast("U", _field(declared, read(name, default)))


def _declared(name: str, kind: Kind[T], default: T, text: str, extras: Extras) -> Setting:
    flag = Flag(
        name,
        kind,
        default,
        text,
        details=extras.get("details", ""),
        short=extras.get("short", ""),
        deprecated=extras.get("deprecated", ""),
        only_flag=extras.get("only_flag", False),
        only_file=extras.get("only_file", False),
    )
    return Setting(flag, extras["section"], extras.get("check"), extras.get("configz", ""))


def _field(declared: Setting, default: object) -> object:
    metadata = {_SETTING: declared}
    if type(default).__hash__ is None:  # dataclasses refuse defaults that can change
        return field(default_factory=lambda: default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, eq=False)
class Nested:
    """A field that is itself a settings class, perhaps with other names and defaults."""

    type: type[Any]
    prefix: str = ""
    section: str = ""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    omit: frozenset[str] = frozenset()
    shared: bool = False
    """Whether its flags are declared by the class itself, not by the field."""

    def adapted(self, name: str, declared: Setting) -> Setting:
        """Returns the declaration of a field with this nesting's prefix and changes."""
        flag, change = declared.flag, self.changes.get(name, {})
        flag = replace(
            flag,
            name=self.prefix + flag.name,
            help=self._prefixed(flag.help),
            details=self._prefixed(flag.details),
        )
        return replace(
            declared, flag=replace(flag, **change), section=self.section or declared.section
        )

    def _prefixed(self, text: str) -> str:
        """Adds the prefix to flags of this class that the text mentions."""
        own = {one.flag.name for one in settings_of(self.type)} if self.prefix else set[str]()
        return re.sub(
            r"--([a-z0-9-]*[a-z0-9])",
            lambda found: f"--{self.prefix}{found[1]}" if found[1] in own else found[0],
            text,
        )

    def build(self, values: Values, found: list[str]) -> object:
        """Returns an instance. Adds to `found` what cannot be read; defaults replace it."""
        given: dict[str, object] = {}
        for one in fields(self.type):
            if one.name in self.omit:
                continue
            if (part := cast("Nested | None", one.metadata.get(_NESTED))) is not None:
                given[one.name] = part.build(values, [] if part.shared else found)
            elif (declared := cast("Setting | None", one.metadata.get(_SETTING))) is not None:
                given[one.name] = _value(self.adapted(one.name, declared), values, found)
            elif "default" in self.changes.get(one.name, {}):
                given[one.name] = self.changes[one.name]["default"]
        return self.type(**given)

    def settings(self) -> Iterator[tuple[str, Setting]]:
        """Yields the name of each field and its declaration, those of nested classes included."""
        for one in fields(self.type):
            if one.name in self.omit:
                continue
            if (part := cast("Nested | None", one.metadata.get(_NESTED))) is not None:
                if part.shared:
                    continue
                yield from ((f"{one.name}.{name}", each) for name, each in part.settings())
            elif (declared := cast("Setting | None", one.metadata.get(_SETTING))) is not None:
                yield one.name, self.adapted(one.name, declared)


def nested(
    cls: type[S],
    *,
    prefix: str = "",
    section: str = "",
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    omit: Iterable[str] = (),
) -> S:
    """Declares a field that is itself a settings class.

    `prefix` is put before the names of its flags. `changes`: other attributes of the flag
    (`default`, `help`) by field name. `omit`: fields that keep their default and have no flag.
    """
    part = Nested(cls, prefix, section, changes or {}, frozenset(omit))
    made = field(default_factory=lambda: part.build(Values({}), []), metadata={_NESTED: part})
    return cast("S", made)


def shared(cls: type[S]) -> S:
    """Declares a field that holds the settings of another registered class."""
    part = Nested(cls, shared=True)
    made = field(default_factory=lambda: part.build(Values({}), []), metadata={_NESTED: part})
    return cast("S", made)


def _value(declared: Setting, values: Values, found: list[str]) -> object:
    flag = declared.flag
    if declared.optional and flag not in values:
        return None
    try:
        return _read(declared, values[flag])
    except ValueError as error:
        found.append(str(error))
        return None if declared.optional else _read(declared, flag.default)


def _read(declared: Setting, value: object) -> object:
    flag = declared.flag
    if declared.check is not None and (problem := declared.check(flag, value)) is not None:
        raise ValueError(problem)
    return value if declared.read is None else declared.read(flag.name, value)


def refuse_invalid(settings: object) -> None:
    """Raises ValueError if a field fails its check. For `__post_init__`."""
    for name, one in fields_of(type(settings)).items():
        if one.check is None or one.read is not None or "." in name:
            continue
        value = cast("object", getattr(settings, name))
        if value is not None and (problem := one.check(one.flag, value)) is not None:
            raise ValueError(problem)


@cache
def fields_of(cls: type[Any]) -> Mapping[str, Setting]:
    """Returns what the fields of a settings class declare, by name."""
    return dict(Nested(cls).settings())


def settings_of(cls: type[Any]) -> tuple[Setting, ...]:
    """Returns what the fields of a settings class declare, in order."""
    return tuple(fields_of(cls).values())


def flag_of(cls: type[Any], name: str) -> AnyFlag:
    """Returns the flag of a field; `outer.inner` names a field of a nested class."""
    return fields_of(cls)[name].flag


def build(cls: type[S], values: Values) -> S:
    """Returns the settings of one class. Raises ValueError if a value cannot be used."""
    found: list[str] = []
    made = cast("S", Nested(cls).build(values, found))
    if found:
        raise ValueError(", ".join(found))
    return made
