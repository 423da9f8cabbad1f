"""Flags: what one is, and how a command line is read.

A flag is declared once (`pileus.settings.declare`); parsing, help, the configuration file, the
environment and the reference page all work from that declaration.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, TypeAlias, TypeVar

from pileus.dataclass import dataclass
from pileus.settings.go_quote import quote
from pileus.settings.kinds import BOOL, Kind
from pileus.suggest import closest

T = TypeVar("T")


class FlagError(Exception):
    """A setting cannot be understood. The text says what and where; `hint` what to try."""

    def __init__(self, message: str, *, hint: str = "", usage: bool = True) -> None:
        super().__init__(message)
        self.hint = hint
        self.usage = usage
        """Whether the list of flags would help."""


@dataclass(frozen=True, slots=True, eq=False)
class Flag(Generic[T]):
    """One setting of the program, with everything there is to say about it."""

    name: str
    kind: Kind[T]
    default: T
    help: str
    """A noun phrase with its unit, at most 160 characters."""
    details: str = field(default="", kw_only=True)
    """What only the reference page says, such as long lists."""
    short: str = field(default="", kw_only=True)
    deprecated: str = field(default="", kw_only=True)
    """Why it should not be used any more; it is then left out of help."""
    only_flag: bool = field(default=False, kw_only=True)
    """Whether it makes sense on the command line alone."""
    only_file: bool = field(default=False, kw_only=True)
    """Whether it can be given in the configuration file alone."""

    @property
    def variable(self) -> str:
        """The environment variable of the same meaning."""
        return "PILEUS_" + self.name.upper().replace("-", "_")

    def shown_default(self) -> str:
        """The default in the flag's own notation."""
        return self.kind.render(self.default)

    def written(self, value: T) -> str | None:
        """Returns the value as on a command line; None if none gives this value."""
        text = self.kind.render(value)
        for candidate in (text, text.removeprefix("[").removesuffix("]")):
            if self.kind.parse(candidate) == value:
                return candidate
        return None


AnyFlag: TypeAlias = Flag[Any]


def switch(
    name: str, text: str, *, default: bool = False, deprecated: str = "", details: str = ""
) -> Flag[bool]:
    """Declare a flag that is on or off."""
    return Flag(name, BOOL, default, text, deprecated=deprecated, details=details)


@dataclass(frozen=True, slots=True)
class Group:
    """Flags that help shows together. `ours`: the Go program has none of them."""

    title: str
    flags: tuple[AnyFlag, ...]
    ours: bool = False


class Table:
    """All flags of the program, found by name; `_` and `-` are the same in names."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = tuple(groups)
        self._by_name = {flag.name: flag for group in self.groups for flag in group.flags}
        self._by_short = {flag.short: flag for flag in self if flag.short}

    def __iter__(self) -> Iterator[AnyFlag]:
        return iter(self._by_name.values())

    def find(self, name: str) -> AnyFlag | None:
        return self._by_name.get(name.replace("_", "-"))

    def find_short(self, letter: str) -> AnyFlag | None:
        return self._by_short.get(letter)

    def suggest(self, name: str, prefix: str = "") -> str:
        """Return a question naming the flag that was probably meant, or nothing."""
        command_line = bool(prefix)
        usable = (
            flag.name
            for flag in self
            if not flag.deprecated and not (command_line and flag.only_file)
        )
        meant = closest(name.replace("_", "-"), usable)
        return f"did you mean {prefix}{meant}?" if meant else ""


@dataclass(frozen=True, slots=True)
class Arguments:
    """A command line that was understood."""

    values: Mapping[str, object]
    positional: tuple[str, ...]


def parse_arguments(table: Table, arguments: Sequence[str]) -> Arguments:
    """Read a command line in GNU style. Raises FlagError at the first thing that is wrong."""
    return _Reader(table, arguments).read()


class _Reader:
    def __init__(self, table: Table, arguments: Sequence[str]) -> None:
        self._table = table
        self._rest = deque(arguments)
        self._values: dict[str, object] = {}

    def read(self) -> Arguments:
        positional: list[str] = []
        while self._rest:
            word = self._rest.popleft()
            if word == "--":
                positional.extend(self._rest)
                break
            if word.startswith("--"):
                self._long(word)
            elif word.startswith("-") and word != "-":
                self._short(word)
            else:
                positional.append(word)
        return Arguments(self._values, tuple(positional))

    def _long(self, word: str) -> None:
        name, equals, text = word[2:].partition("=")
        if not name or name.startswith("-"):
            raise FlagError(f"bad flag syntax: {word}")
        if (flag := self._table.find(name)) is None:
            raise FlagError(f"unknown flag: --{name}", hint=self._table.suggest(name, "--"))
        if flag.only_file:
            raise FlagError(f"{flag.name} can only be given in the file of --config")
        self._set(flag, text if equals else self._value(flag, f"--{name}"))

    def _short(self, word: str) -> None:
        letters = word[1:]
        while letters:
            letter, rest = letters[0], letters
            letters = letters[1:]
            if (flag := self._table.find_short(letter)) is None:
                hint = self._table.suggest(word[1:].partition("=")[0], "--")
                raise FlagError(f"unknown shorthand flag: '{letter}' in -{rest}", hint=hint)
            if letters.startswith("=") or (letters and flag.kind.bare is None):
                self._set(flag, letters.removeprefix("="))
                return
            self._set(flag, self._value(flag, f"'{letter}' in -{rest}"))

    def _value(self, flag: AnyFlag, shown: str) -> str:
        if flag.kind.bare is not None:
            return flag.kind.bare
        if not self._rest:
            raise FlagError(f"flag needs an argument: {shown}")
        return self._rest.popleft()

    def _set(self, flag: AnyFlag, text: str) -> None:
        try:
            value = flag.kind.parse(text)
        except ValueError as error:
            shown = f"-{flag.short}, --{flag.name}" if flag.short else f"--{flag.name}"
            message = f"invalid argument {quote(text)} for {quote(shown)} flag: {error}"
            raise FlagError(message) from None
        if flag.kind.join and flag.name in self._values:
            value = flag.kind.join(self._values[flag.name], value)
        self._values[flag.name] = value
