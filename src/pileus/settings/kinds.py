"""Kinds of values: how each is read, written and shown. Flags and providers' options use them.

Reading a flag raises ValueError with the message of the Go program, so that a search for the
message finds answers.
"""

import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Generic, TypeVar, cast

from pileus.dataclass import dataclass
from pileus.quantity import exact
from pileus.settings.go_bool import go_bool
from pileus.settings.go_csv import parse_list, render_list
from pileus.settings.go_duration import parse_duration, render_duration
from pileus.settings.go_quote import quote
from pileus.suggest import did_you_mean

T = TypeVar("T")


def _plain(value: object) -> object:
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of value: its name, and how its text is read and written."""

    name: str
    """The type as help and reference show it; empty for a switch."""
    parse: Callable[[str], T]
    """Raises ValueError. Of a provider's option, the text completes: `invalid value: must be …`."""
    choices: tuple[str, ...] = ()
    """Every valid value, where they can be listed."""
    render: Callable[[T], str] = field(default=str, kw_only=True)
    plain: Callable[[T], object] = field(default=_plain, kw_only=True)
    """How `/configz` shows it: text, number, truth value or list."""
    join: Callable[[T, T], T] | None = field(default=None, kw_only=True)
    """How a further use adds to the earlier one; None: the last use wins."""
    bare: str | None = field(default=None, kw_only=True)
    """What `--name` without a value means; None: a value is needed."""
    natural: tuple[type, ...] = field(default=(str,), kw_only=True)
    """What a configuration file may hold for it; `list` and `dict` hold plain scalars."""
    item: Callable[[str], T] | None = field(default=None, kw_only=True)
    """How one element of such a list is read; None: as on the command line."""
    document: Callable[[object], T] | None = field(default=None, kw_only=True)
    """How the value is read from a configuration file if it has a structure of its own."""


def parse_bool(text: str) -> bool:
    value = go_bool(text)
    if value is None:
        raise ValueError(f"strconv.ParseBool: parsing {quote(text)}: invalid syntax")
    return value


def render_bool(value: bool) -> str:  # noqa: FBT001 -- the value is the whole point
    return "true" if value else "false"


_DIGITS = re.compile(
    r"0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO]?(?:_?[0-7])*|[1-9](?:_?[0-9])*"
)


def _integer(function: str, low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        digits = text[1:] if low < 0 and text[:1] in {"+", "-"} else text
        if not text.isascii() or not _DIGITS.fullmatch(digits):
            raise ValueError(f"strconv.{function}: parsing {quote(text)}: invalid syntax")
        value = _by_prefix(digits) * (-1 if text[0] == "-" else 1)
        if not low <= value <= high:
            raise ValueError(f"strconv.{function}: parsing {quote(text)}: value out of range")
        return value

    return parse


def _by_prefix(digits: str) -> int:
    octal = digits[0] == "0" and digits[1:2].isdigit()
    return int(digits, 8) if octal else int(digits, 0)


_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127


def _parse_float(text: str) -> float:
    if not _FLOAT.fullmatch(text):
        raise ValueError(f"strconv.ParseFloat: parsing {quote(text)}: invalid syntax")
    if abs(value := float(text)) > _LARGEST_FLOAT32:
        raise ValueError(f"strconv.ParseFloat: parsing {quote(text)}: value out of range")
    return value


def _parse_ip(text: str) -> str:
    if not text.strip():
        return ""
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        address = None
    if address is None or "%" in text:
        raise ValueError(f"failed to parse IP: {quote(text)}")
    return str(address)


def parse_quantity(text: str) -> int:
    """Return the bytes that a Kubernetes quantity (512, 2Ki, 3M, 1e3) stands for, rounded up."""
    try:
        number = exact(text)
    except ValueError:
        raise ValueError(
            "quantities must be a number with an optional suffix, such as 512, 1K, 2Ki, 3M or 1e3"
        ) from None
    if number < 0:
        raise ValueError("must not be negative")
    return math.ceil(number)


def joined(first: tuple[T, ...], more: tuple[T, ...]) -> tuple[T, ...]:
    """Adds the elements of a further use of a flag to those of the earlier ones."""
    return first + more


def _parse_ints(text: str) -> tuple[int, ...]:
    return tuple(INT32.parse(part) for part in text.split(",")) if text else ()


def _parse_switches(text: str) -> Mapping[str, bool]:
    switches: dict[str, bool] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        name, equals, word = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ValueError(f"missing bool value for {name}")
        try:
            switches[name] = parse_bool(word)
        except ValueError as error:
            raise ValueError(f"invalid value of {name}={word}, err: {error}") from None
    return switches


def _render_switches(value: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={render_bool(on)}" for name, on in sorted(value.items()))


BOOL: Kind[bool] = Kind(name="", parse=parse_bool, render=render_bool, bare="true", natural=(bool,))
INT: Kind[int] = Kind(
    name="int", parse=_integer("ParseInt", -(2**63), 2**63 - 1), render=str, natural=(int,)
)
INT32: Kind[int] = Kind(
    name="int32", parse=_integer("ParseInt", -(2**31), 2**31 - 1), render=str, natural=(int,)
)
LEVEL: Kind[int] = Kind(
    name="Level", parse=_integer("ParseUint", 0, 2**31 - 1), render=str, natural=(int,)
)
FLOAT: Kind[float] = Kind(
    name="float32", parse=_parse_float, render=lambda value: f"{value:g}", natural=(int, float)
)
DURATION: Kind[float] = Kind(
    name="duration", parse=parse_duration, render=render_duration, plain=render_duration
)
STRING: Kind[str] = Kind(name="string", parse=str, render=str)
STRINGS: Kind[tuple[str, ...]] = Kind(
    name="strings",
    parse=parse_list,
    render=lambda value: f"[{render_list(value)}]",
    join=joined,
    natural=(list, str),
    item=lambda text: (text,),
)
INTS: Kind[tuple[int, ...]] = Kind(
    name="int32Slice",
    parse=_parse_ints,
    render=lambda value: "[" + ",".join(map(str, value)) + "]",
    join=joined,
    natural=(list, int),
)
IP: Kind[str] = Kind(name="ip", parse=_parse_ip, render=str)
QUANTITY: Kind[int] = Kind(name="quantity", parse=parse_quantity, render=str, natural=(str, int))
SWITCHES: Kind[Mapping[str, bool]] = Kind(
    name="mapStringBool",
    parse=_parse_switches,
    render=_render_switches,
    join=lambda first, more: {**first, **more},
    natural=(dict, str),
)


def one_of(*choices: str) -> Kind[str]:
    """Returns the kind of a value that is one of several words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}{did_you_mean(text, choices)}")
        return text

    return Kind(" or ".join(choices), parse, choices)


def integer(least: int, most: int) -> Kind[int]:
    """Returns the kind of a whole number in a range."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text) or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return Kind(f"{least}…{most}", parse)
