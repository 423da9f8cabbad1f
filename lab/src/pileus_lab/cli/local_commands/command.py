"""A command of `pileus local`: its arguments, and what it does with a cloud."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pileus.cli.arguments import Argument, Given, Usage, UsageError
from pileus_lab.local.api import Api

COMMON = (
    Argument(name="--output", text="Output format.", choices=("table", "json"), default="table"),
    Argument(name="--endpoint", text="Socket of the cloud; default: this user's own."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The output of a command: rows of a table or a sentence, and the same as data."""

    value: object
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    usage: Usage
    run: Callable[[Given, Api], Awaitable[Shown]]


def command(
    text: str, run: Callable[[Given, Api], Awaitable[Shown]], *arguments: Argument
) -> Command:
    return Command(Usage(text, (*arguments, *COMMON)), run)


def pairs(given: Given, name: str) -> dict[str, str]:
    """Raises `UsageError` unless each is written `key=value`."""
    found: dict[str, str] = {}
    for text in given.texts(name):
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise UsageError(f'"{text}" must be written key=value')
        found[key] = value
    return found
