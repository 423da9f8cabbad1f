"""Small commands' arguments: declared as data, refused with what was probably meant."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from pileus.suggest import closest


class Help(Exception):
    """Not an error: the user asked for this text."""


class UsageError(Exception):
    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument: `name` is positional, `--name` a flag."""

    name: str
    text: str
    kind: type = str
    """`bool`: a switch without a value."""
    default: object = None
    choices: tuple[str, ...] = ()
    many: bool = False
    """A positional: one or more; a flag: may be given again."""


@dataclass(frozen=True, slots=True)
class Usage:
    text: str
    arguments: tuple[Argument, ...] = ()
    closing: str = ""
    """Lines below all else that the help says."""


class Given:
    """What the user gave, by the arguments' names without dashes."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        return str(self._values[name] or "")

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(cast("list[str]", self._values[name] or []))

    def number(self, name: str) -> int | None:
        return cast("int | None", self._values[name])

    def real(self, name: str) -> float:
        return float(self._values[name])

    def is_set(self, name: str) -> bool:
        return bool(self._values[name])


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:  # noqa: ANN401 -- argparse's own signature
        raise UsageError(f"{self.prog}: {message}", f"`{self.prog} --help` says more")


def parse(program: str, usage: Usage, arguments: Sequence[str]) -> Given:
    """Errors: `UsageError`, or `Help` when that was asked for."""
    parser = _Parser(prog=program, description=usage.text, add_help=False, allow_abbrev=False)
    for argument in usage.arguments:
        _add(parser, argument)
    if {"-h", "--help"} & set(arguments):
        raise Help(parser.format_help() + usage.closing)
    given, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        flags = [argument.name for argument in usage.arguments if argument.name.startswith("-")]
        meant = closest(unknown[0].partition("=")[0], flags)
        what = "flag" if unknown[0].startswith("-") else "argument"
        raise UsageError(
            f'{program}: unknown {what} "{unknown[0]}"', f"did you mean {meant}?" if meant else ""
        )
    values = vars(given)
    for argument in usage.arguments:
        _check_choice(program, argument, values)
    return Given({name.replace("_", "-"): value for name, value in values.items()})


def _add(parser: argparse.ArgumentParser, argument: Argument) -> None:
    flag = argument.name.startswith("--")
    names = ("-o", argument.name) if argument.name == "--output" else (argument.name,)
    shown = (
        f"{argument.text} ({', '.join(argument.choices)})" if argument.choices else argument.text
    )
    shown = shown.replace("%", "%%")
    if argument.kind is bool:
        parser.add_argument(*names, action="store_true", help=shown)
    elif flag:
        action = "append" if argument.many else "store"
        parser.add_argument(
            *names, action=action, type=argument.kind, default=argument.default, help=shown
        )
    else:
        parser.add_argument(
            *names, nargs="+" if argument.many else None, type=argument.kind, help=shown
        )


def _check_choice(program: str, argument: Argument, values: dict[str, Any]) -> None:
    given = values[argument.name.lstrip("-").replace("-", "_")]
    if argument.choices and given is not None and given not in argument.choices:
        meant = closest(str(given), argument.choices)
        known = ", ".join(argument.choices)
        raise UsageError(
            f'{program}: {argument.name} cannot be "{given}" (known: {known})',
            f"did you mean {meant}?" if meant else "",
        )
