"""Declarations of the annotations and configuration keys that a provider reads.

    INTERNAL = Option("acme.example/internal", FLAG, False, "No public address.", RECREATE)
    SIZE = Option("acme.example/size", one_of("small", "large"), "small", "Size of the balancer.")
    ANNOTATIONS = Options(INTERNAL, SIZE, namespace=("acme.example/", "acme.dev/"))

    values = ANNOTATIONS.read(wish.options)      # raises Misconfigured with every mistake
    if values[INTERNAL]: ...                     # typed: a bool

Parsing, suggestions, the warnings of a plan and the reference are derived from the declaration.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from itertools import islice
from typing import Any, Generic, TypeVar, cast

from pileus.cloud.errors import Misconfigured
from pileus.cloud.selectors import Selector, parse_selector
from pileus.dataclass import dataclass
from pileus.fix import LONGEST, quoted
from pileus.settings.go_bool import go_bool
from pileus.settings.kinds import Kind, integer, one_of
from pileus.settings.values import Values
from pileus.suggest import closest, did_you_mean

__all__ = (
    "CORE_NAMESPACE",
    "CREATE_ONLY",
    "FLAG",
    "KEPT_BACK",
    "LIVE",
    "NAMES",
    "RECREATE",
    "TEXT",
    "Kind",
    "OnChange",
    "Option",
    "Options",
    "Parsed",
    "Values",
    "integer",
    "meant_for",
    "one_of",
)

V = TypeVar("V")

MOST_PROBLEMS = 10
"""Mistakes that are described; of more, only the number is reported. A Service can have
thousands of annotations, and a suggestion for each would take seconds."""


class OnChange(StrEnum):
    """What happens when the value of an existing object's option changes."""

    LIVE = "applied at once"
    RECREATE = "recreates the object: connections break"
    CREATE_ONLY = "only used at creation: a later change has no effect"


class Role(StrEnum):
    """What the manager does with the value of an annotation."""

    SETTING = "passed to the provider"
    ADOPTS = "ID of the load balancer that the Service takes over (`Wish.adopts`)"
    SELECTS_MEMBERS = "node selector: only matching nodes are in `BalancerSpec.members`"
    REPORTED = "written by the manager (`Balancer.annotations`); values of users have no effect"


SETTING, ADOPTS, SELECTS_MEMBERS = Role.SETTING, Role.ADOPTS, Role.SELECTS_MEMBERS
REPORTED = Role.REPORTED
LIVE, RECREATE, CREATE_ONLY = OnChange.LIVE, OnChange.RECREATE, OnChange.CREATE_ONLY


@dataclass(frozen=True, slots=True)
class Option(Generic[V]):
    """One annotation or configuration key."""

    name: str
    kind: Kind[V]
    default: V
    text: str
    on_change: OnChange = LIVE
    secret: bool = False
    """Whether its value is left out of messages."""
    role: Role = Role.SETTING
    """ADOPTS requires the kind TEXT, and sets `Wish.adopts`. SELECTS_MEMBERS requires the kind
    SELECTOR, and limits `BalancerSpec.members`. REPORTED is only written. None of these values is
    in `Wish.options`."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The values that could be read, and a message for each mistake, `MOST_PROBLEMS` at most."""

    values: Values
    problems: tuple[str, ...] = field(default=())


class Options:
    """All options of a provider's annotations, or of its configuration file."""

    def __init__(self, *options: Option[Any], namespace: str | tuple[str, ...] = "") -> None:
        """Declare the options.

        `namespace` is one prefix or several. A key with such a prefix is read, and is a mistake
        if it is not declared. Other keys are ignored. The prefix "" matches every key.
        Raises ValueError if an option is declared twice or outside of every namespace.
        """
        self._options = _by_name(options)
        self._namespaces = (namespace,) if isinstance(namespace, str) else namespace
        outside = [name for name in self._options if not name.startswith(self._namespaces)]
        if outside:
            raise ValueError(
                f"{', '.join(outside)}: declared outside of every namespace "
                f"({', '.join(self._namespaces) or 'none given'}), so it would never be read. "
                "Add its prefix to `namespace`"
            )

    def parse(self, given: Mapping[str, object]) -> Parsed:
        """Returns the values and all mistakes. An option with a mistake has its default."""
        values: dict[str, object] = {}
        problems: list[str] = []
        uncounted = 0
        for name, value in given.items():
            if not name.startswith(self._namespaces):
                continue
            if len(problems) >= MOST_PROBLEMS and name not in self._options:
                uncounted += 1
                continue
            try:
                values[name] = self._parse_one(name, value)
            except ValueError as error:
                problems.append(str(error))
        uncounted += len(problems[MOST_PROBLEMS:])
        more = (f"and {uncounted} more",) if uncounted else ()
        return Parsed(Values(values), (*problems[:MOST_PROBLEMS], *more))

    def read(self, given: Mapping[str, object]) -> Values:
        """Returns the values. Raises Misconfigured with every mistake."""
        parsed = self.parse(given)
        if parsed.problems:
            raise Misconfigured("; ".join(parsed.problems))
        return parsed.values

    def problems(self, given: Mapping[str, object]) -> tuple[str, ...]:
        """Returns a message for each mistake, with a suggestion where a similar name is known."""
        return self.parse(given).problems

    def corrections(self, annotations: Mapping[str, str]) -> tuple[str, ...]:
        """Returns the arguments of `kubectl annotate --overwrite` that fix the reported mistakes.

        A misspelt name or value is replaced by the most similar known one; other mistakes are
        removed. Values are quoted for a shell, because users paste the command.
        """
        own = (item for item in annotations.items() if item[0].startswith(self._namespaces))
        wrong = (item for item in own if self._is_wrong(*item))
        return tuple(
            fix
            for name, value in islice(wrong, MOST_PROBLEMS)
            for fix in self._corrections(name, value)
        )

    def _is_wrong(self, name: str, value: str) -> bool:
        return name not in self._options or bool(self.problems({name: value}))

    def _corrections(self, name: str, value: str) -> Iterator[str]:
        option = self._options.get(name)
        meant = closest(name, self._options) if option is None else None
        if option is not None and (nearest := closest(value, option.kind.choices)):
            yield f"{name}={nearest}"
        else:
            yield f"{name}-"
        is_short = len(value) <= LONGEST
        if meant is not None and is_short and not self.problems({meant: value}):
            yield f"{meant}={shlex.quote(value)}"

    def with_role(self, role: Role) -> tuple[Option[object], ...]:
        """Returns the options that have this role, in order of declaration."""
        return tuple(each for each in self._options.values() if each.role is role)

    @property
    def reported(self) -> frozenset[str]:
        """The names that the manager may write to a Service (`Balancer.annotations`)."""
        roles = (*self.with_role(Role.ADOPTS), *self.with_role(Role.REPORTED))
        return frozenset(each.name for each in roles)

    def settings(self, given: Mapping[str, V]) -> dict[str, V]:
        """Returns the entries that are declared and passed to the provider, values unchanged."""
        known = {each.name for each in self.with_role(Role.SETTING)}
        return {name: value for name, value in given.items() if name in known}

    def declared(self, given: Mapping[str, V]) -> dict[str, V]:
        """Returns the entries whose name is declared, values unchanged."""
        return {name: value for name, value in given.items() if name in self._options}

    def changed(self, before: Values, after: Values) -> tuple[Option[Any], ...]:
        """Returns the options whose value differs, in order of declaration."""
        return tuple(o for o in self._options.values() if before[o] != after[o])

    def reference(self) -> str:
        """Returns a Markdown table with one row per option, in order of declaration."""
        head = "| name | type | default | when changed | meaning |\n|---|---|---|---|---|\n"
        return head + "".join(_row(option) for option in self._options.values())

    def _parse_one(self, name: str, value: object) -> object:
        option = self._options.get(name)
        if option is None:
            what = "annotation" if any(self._namespaces) else "key"
            raise ValueError(f'unknown {what} "{name}"{did_you_mean(name, self._options)}')
        text = _as_text(value)
        try:
            return option.kind.parse(text)
        except ValueError as error:
            if option.secret:  # no colon after its name: what follows would be masked as well
                raise ValueError(f"{name} has an invalid value: must be {error}") from error
            raise ValueError(f"{name}: invalid value {quoted(text)}: must be {error}") from error


def _by_name(options: Iterable[Option[Any]]) -> dict[str, Option[Any]]:
    found: dict[str, Option[Any]] = {}
    for option in options:
        if (first := found.get(option.name)) is not None:
            raise ValueError(
                f'option "{option.name}" is declared twice, as "{first.text}" and as '
                f'"{option.text}": remove or rename one of them'
            )
        found[option.name] = option
    return found


CORE_NAMESPACE = "pileus.dev/"
"""Prefix of the manager's own annotations."""
KEPT_BACK = (CORE_NAMESPACE, "kubectl.kubernetes.io/")
"""Prefixes of annotations that are never passed to a provider."""


def meant_for(declared: Options | None, annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the annotations of a Service that are passed to the provider in `Wish.options`.

    These are the declared ones, also if the value is invalid: the provider rejects it. A misspelt
    name is not passed on; `problems` reports it. If the provider declares no annotations
    (`declared` is None), all are passed on except those with a prefix in `KEPT_BACK`.
    """
    if declared is not None:
        return declared.settings(annotations)
    return {name: v for name, v in annotations.items() if not name.startswith(KEPT_BACK)}


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(_as_text(item) for item in cast("list[object]", value))
    return str(value)


def _row(option: Option[Any]) -> str:
    default = "" if option.default in {None, "", ()} else f"`{_as_text(option.default)}`"
    cells = (f"`{option.name}`", option.kind.name, default, option.on_change.value, option.text)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _flag(text: str) -> bool:
    value = go_bool(text)
    if value is None:
        raise ValueError("true or false")
    return value


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


TEXT: Kind[str] = Kind("text", str)
SELECTOR: Kind[Selector] = Kind("node selector", parse_selector)
FLAG: Kind[bool] = Kind("true or false", _flag)
NAMES: Kind[tuple[str, ...]] = Kind("comma-separated list", _names)
