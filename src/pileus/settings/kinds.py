"""The kinds of values that flags have: how each is read, written and shown in help.

Reading raises ValueError with the words of the Go program, so that a user who searches for
the message finds what others wrote about it.
"""

import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pileus.settings.go_bool import go_bool
from pileus.settings.go_csv import parse_list, render_list
from pileus.settings.go_duration import parse_duration, render_duration
from pileus.settings.go_quote import quote

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[T]):
    """How values of one type are spelled."""

    word: str
    """The type as help shows it; empty for a switch."""
    parse: Callable[[str], T]
    render: Callable[[T], str]
    join: Callable[[T, T], T] | None = None
    """How a further use adds to the earlier one; None: the last use wins."""
    bare: str | None = None
    """What `--name` without a value means; None: a value is needed."""
    natural: tuple[type, ...] = (str,)
    """What a configuration file may hold for it; `list` and `dict` hold plain scalars."""
    item: Callable[[str], T] | None = None
    """How one element of such a list is read; None: as on the command line."""
    document: Callable[[object], T] | None = None
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


_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(|[kKMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+|m|u|n)"
)
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def parse_quantity(text: str) -> int:
    """Return the bytes that a Kubernetes quantity (512, 2Ki, 3M, 1e3) stands for, rounded up."""
    matched = _QUANTITY.fullmatch(text)
    if matched is None:
        raise ValueError(
            "quantities must be a number with an optional suffix, such as 512, 1K, 2Ki, 3M or 1e3"
        )
    number, suffix = float(matched[1]), matched[2]
    if number < 0:
        raise ValueError("must not be negative")
    if suffix in {"m", "u", "n"}:
        return math.ceil(number / {"m": 10**3, "u": 10**6, "n": 10**9}[suffix])
    if suffix[1:2].isdigit() or suffix[1:2] in {"+", "-"}:
        return math.ceil(float(matched[1] + suffix))
    base = 1024 if suffix.endswith("i") else 1000
    return math.ceil(number * base ** _POWERS[suffix.removesuffix("i")])


def joined(first: tuple[T, ...], more: tuple[T, ...]) -> tuple[T, ...]:
    """Adds the elements of a further use of a flag to those of the earlier ones."""
    return first + more


def _parse_ints(text: str) -> tuple[int, ...]:
    return tuple(INT32.parse(part) for part in text.split(",")) if text else ()


@dataclass(frozen=True, slots=True)
class ModuleLevel:
    """Log verbosity for the source files that match a pattern."""

    pattern: str
    level: int


def _parse_modules(text: str) -> tuple[ModuleLevel, ...]:
    return tuple(_parse_module(part) for part in text.split(",") if part)


def _parse_module(part: str) -> ModuleLevel:
    pattern, _, level = part.partition("=")
    if not pattern or not level or "=" in level:
        raise ValueError(f"{quote(part)} does not have the pattern=N format")
    try:
        return ModuleLevel(pattern, LEVEL.parse(level))
    except ValueError as error:
        raise ValueError(f"parsing verbosity in {quote(part)}: {error}") from None


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


BOOL: Kind[bool] = Kind(word="", parse=parse_bool, render=render_bool, bare="true", natural=(bool,))
INT: Kind[int] = Kind(
    word="int", parse=_integer("ParseInt", -(2**63), 2**63 - 1), render=str, natural=(int,)
)
INT32: Kind[int] = Kind(
    word="int32", parse=_integer("ParseInt", -(2**31), 2**31 - 1), render=str, natural=(int,)
)
LEVEL: Kind[int] = Kind(
    word="Level", parse=_integer("ParseUint", 0, 2**31 - 1), render=str, natural=(int,)
)
FLOAT: Kind[float] = Kind(
    word="float32", parse=_parse_float, render=lambda value: f"{value:g}", natural=(int, float)
)
DURATION: Kind[float] = Kind(word="duration", parse=parse_duration, render=render_duration)
STRING: Kind[str] = Kind(word="string", parse=str, render=str)
STRINGS: Kind[tuple[str, ...]] = Kind(
    word="strings",
    parse=parse_list,
    render=lambda value: f"[{render_list(value)}]",
    join=joined,
    natural=(list, str),
    item=lambda text: (text,),
)
INTS: Kind[tuple[int, ...]] = Kind(
    word="int32Slice",
    parse=_parse_ints,
    render=lambda value: "[" + ",".join(map(str, value)) + "]",
    join=joined,
    natural=(list, int),
)
IP: Kind[str] = Kind(word="ip", parse=_parse_ip, render=str)
QUANTITY: Kind[int] = Kind(word="quantity", parse=parse_quantity, render=str, natural=(str, int))
MODULES: Kind[tuple[ModuleLevel, ...]] = Kind(
    word="pattern=N,...",
    parse=_parse_modules,
    render=lambda value: ",".join(f"{one.pattern}={one.level}" for one in value),
    join=joined,
)
SWITCHES: Kind[Mapping[str, bool]] = Kind(
    word="mapStringBool",
    parse=_parse_switches,
    render=_render_switches,
    join=lambda first, more: {**first, **more},
    natural=(dict, str),
)
