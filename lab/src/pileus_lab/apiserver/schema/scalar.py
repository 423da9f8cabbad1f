"""Values that are more than a JSON text: times, quantities, bytes; each with its one spelling."""

import base64
import binascii
import re
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from pileus.clock import rfc3339

SECONDS = "2006-01-02T15:04:05Z07:00"
MICROS = "2006-01-02T15:04:05.000000Z07:00"
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")
_QUANTITY = re.compile(r"([+-]?[0-9.]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_KNOWN = 4096
"""Spellings of each kind that are remembered: each write of an object brings most of them again."""


class Time(str):
    __slots__ = ()


class MicroTime(str):
    __slots__ = ()


class Quantity(str):
    __slots__ = ()


class Base64(str):
    __slots__ = ()


def read(kind: type, value: object) -> object:
    """Return the value in its one spelling (a `dec_hook` of msgspec). Errors: `ValueError`."""
    if kind is Quantity and isinstance(value, str | int | float):
        return Quantity(quantity(str(value)))
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{_json_name(value)}`")
    if kind is Time:
        return Time(time(value))
    if kind is MicroTime:
        return MicroTime(microtime(value))
    return Base64(_base64(value))


def write(value: object) -> object:
    """Return a plain text (an `enc_hook` of msgspec)."""
    return str(value)


@lru_cache(_KNOWN)
def time(written: str) -> str:
    return rfc3339(_moment(written, SECONDS), "seconds")


@lru_cache(_KNOWN)
def microtime(written: str) -> str:
    match = _TIME.fullmatch(written)
    if match and (match[2] is None or len(match[2]) < len(".000000")):
        rest = written[len(match[1]) :]
        raise ValueError(
            f'parsing time "{written}" as "{MICROS}": cannot parse "{rest}" as ".000000"'
        )
    return rfc3339(_moment(written, MICROS), "microseconds")


def _moment(written: str, layout: str) -> datetime:
    try:
        moment = datetime.fromisoformat(written) if _TIME.fullmatch(written) else None
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError(
            f'parsing time "{written}" as "{layout}": cannot parse "{written}" as "2006"'
        )
    return moment


def _base64(written: str) -> str:
    try:
        base64.b64decode(written, validate=True)
    except binascii.Error as error:
        raise ValueError("illegal base64 data at input byte 0") from error
    return written


@lru_cache(_KNOWN)
def quantity(written: str) -> str:
    """Return the canonical spelling: "0.5" is "500m", "1024Mi" is "1Gi"."""
    match = _QUANTITY.fullmatch(written)
    if match is None:
        raise ValueError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    digits, suffix = match[1], match[2] or ""
    try:
        value = Decimal(digits)
    except InvalidOperation:
        raise ValueError("unable to parse numeric part of quantity") from None
    if suffix in _BINARY:
        return _in_binary(value, _BINARY[suffix])
    if suffix[:1] in {"e", "E"} and len(suffix) > 1:
        return _in_exponents(value, int(suffix[1:]))
    return _in_decimal(value, _DECIMAL[suffix])


def amount(written: str) -> Decimal:
    """Return the number that a canonical quantity stands for."""
    match = _QUANTITY.fullmatch(written)
    if match is None:
        return Decimal(0)
    suffix = match[2] or ""
    if suffix in _BINARY:
        return Decimal(match[1]) * 2 ** _BINARY[suffix]
    power = int(suffix[1:]) if suffix[:1] in {"e", "E"} and len(suffix) > 1 else _DECIMAL[suffix]
    return Decimal(match[1]).scaleb(power)


def _in_binary(value: Decimal, power: int) -> str:
    whole = value * 2**power
    if whole != whole.to_integral_value():
        return _in_decimal(whole, 0)
    count = int(whole)
    for suffix, bits in reversed(_BINARY.items()):
        if count and count % (1 << bits) == 0:
            return f"{count >> bits}{suffix}"
    return str(count)


def _in_decimal(value: Decimal, power: int) -> str:
    number, suffix = _steps(value, power)
    names = {p: name for name, p in _DECIMAL.items()}
    return f"{number}{names[suffix]}"


def _in_exponents(value: Decimal, power: int) -> str:
    number, exponent = _steps(value, power)
    return f"{number}e{exponent}" if exponent else str(number)


def _steps(value: Decimal, power: int) -> tuple[int, int]:
    """Return an integer and the largest power of 1000 with which it says the same, rounded up."""
    nanos = (value.scaleb(power) * 10**9).to_integral_value(rounding="ROUND_UP")
    count, exponent = int(nanos), -9
    while count and count % 1000 == 0 and exponent < max(_DECIMAL.values()):
        count, exponent = count // 1000, exponent + 3
    return (count, exponent) if count else (0, 0)


def _json_name(value: object) -> str:
    names: dict[type, str] = {bool: "bool", int: "int", float: "float", dict: "object"}
    return names.get(type(value), "array")
