"""Arguments of small commands, declared as data; help and errors are derived from them."""

import argparse
import re
from collections.abc import Sequence
from typing import Any, cast

from pileus.app import help as help_text
from pileus.cli.terminal import Terminal
from pileus.dataclass import dataclass
from pileus.suggest import closest


class Help(Exception):
    """Not an error: the user requested help. The text depends on the terminal."""

    def __init__(self, program: str, usage: "Usage") -> None:
        super().__init__(program)
        self.program = program
        self.usage = usage


class UsageError(Exception):
    """A command line that cannot be understood. `hint` says what to try."""

    def __init__(self, message: str, hint: str = "", usage: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        self.usage = usage
        """The command's usage; empty: the caller adds it."""


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

    @property
    def is_flag(self) -> bool:
        return self.name.startswith("--")

    @property
    def names(self) -> tuple[str, ...]:
        return ("-o", self.name) if self.name == "--output" else (self.name,)


HELP = Argument(name="--help", text="Print this text and exit.", kind=bool)
_WORDS = {str: "string", int: "int", float: "float"}


@dataclass(frozen=True, slots=True)
class Usage:
    text: str
    arguments: tuple[Argument, ...] = ()
    closing: str = ""
    """Lines at the end of the help."""

    def line(self, program: str) -> str:
        """The command with its arguments: `pileus local instances stop NAME... [flags]`."""
        words = [
            f"{argument.name.upper()}{'...' if argument.many else ''}"
            for argument in self.arguments
            if not argument.is_flag
        ]
        return " ".join((program, *words, "[flags]"))


class Given:
    """The given values, by the arguments' names without dashes."""

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
        required = message.removeprefix("the following arguments are required: ")
        raise UsageError(message if required == message else f"missing {required.upper()}")


def parse(program: str, usage: Usage, arguments: Sequence[str]) -> Given:
    """Returns the given values. Raises UsageError, or Help if help is requested."""
    if {"-h", "--help"} & set(arguments):
        raise Help(program, usage)
    try:
        return _parsed(program, usage, arguments)
    except UsageError as error:
        raise UsageError(str(error), error.hint, usage.line(program)) from None


def _parsed(program: str, usage: Usage, arguments: Sequence[str]) -> Given:
    parser = _Parser(prog=program, add_help=False, allow_abbrev=False)
    for argument in usage.arguments:
        _add(parser, argument)
    _check_flags(usage, arguments)
    given, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        raise UsageError(f'unknown argument "{unknown[0]}"')
    values = vars(given)
    for argument in usage.arguments:
        _check_choice(argument, values)
    return Given({name.replace("_", "-"): value for name, value in values.items()})


def _check_flags(usage: Usage, arguments: Sequence[str]) -> None:
    """Raises UsageError for an unknown flag; this is reported before missing arguments."""
    known = [name for argument in usage.arguments for name in argument.names]
    for word in arguments:
        flag = word.partition("=")[0]
        if word == "--":
            return
        if re.match("--?[a-zA-Z]", word) and flag not in known:
            names = {name.removeprefix("--") for name in known if name.startswith("--")}
            meant = closest(flag.lstrip("-"), names)
            hint = f"did you mean --{meant}?" if meant else ""
            raise UsageError(f'unknown flag "{flag}"', hint)


def _add(parser: argparse.ArgumentParser, argument: Argument) -> None:
    if argument.kind is bool:
        parser.add_argument(*argument.names, action="store_true")
    elif argument.is_flag:
        action = "append" if argument.many else "store"
        parser.add_argument(
            *argument.names, action=action, type=argument.kind, default=argument.default
        )
    else:
        nargs = "+" if argument.many else None
        parser.add_argument(*argument.names, nargs=nargs, type=argument.kind)


def _check_choice(argument: Argument, values: dict[str, Any]) -> None:
    given = values[argument.name.lstrip("-").replace("-", "_")]
    if argument.choices and given is not None and given not in argument.choices:
        meant = closest(str(given), argument.choices)
        known = ", ".join(argument.choices)
        raise UsageError(
            f'{argument.name} cannot be "{given}" (known: {known})',
            f"did you mean {meant}?" if meant else "",
        )


def help_of(program: str, usage: Usage, terminal: Terminal) -> str:
    """Returns the help of a command, in the style of the manager's help."""
    width = help_text.width_of(terminal.width(terminal.out))
    plain = [argument for argument in usage.arguments if not argument.is_flag]
    flags = sorted(
        (*(each for each in usage.arguments if each.is_flag), HELP), key=lambda a: a.name
    )
    parts = [help_text.wrapped(usage.text, width), f"\nUsage:\n  {usage.line(program)}\n"]
    if plain:
        entries = [(f"  {each.name.upper()}", _described(each)) for each in plain]
        parts.append(help_text.listing("Arguments", entries, width))
    entries = [(_head(each), _described(each)) for each in flags]
    parts.append(help_text.listing("Flags", entries, width))
    return "".join((*parts, usage.closing))


def _head(argument: Argument) -> str:
    short = {"--output": "  -o, ", "--help": "  -h, "}.get(argument.name, " " * 6)
    return f"{short}{argument.name} {_WORDS.get(argument.kind, '')}".rstrip()


def _described(argument: Argument) -> str:
    known = f" One of: {', '.join(argument.choices)}." if argument.choices else ""
    default = f" (default {argument.default})" if argument.default not in {None, ""} else ""
    return f"{argument.text}{known}{default}"


def answered(error: Help | UsageError, program: str, terminal: Terminal) -> int:
    """Print help, or the error in a command line. Returns the exit code."""
    if isinstance(error, Help):
        terminal.out.write(help_of(error.program, error.usage, terminal))
        return 0
    usage = error.usage or f"{program} [flags]"
    command = usage.split(" [")[0].rstrip()
    words = [word for word in command.split() if not word.strip(".").isupper()]
    return terminal.misused(" ".join(words), usage, str(error), error.hint)
