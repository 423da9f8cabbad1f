"""Converts JSON to objects of a kind and back, like the Go structs of the real server.

Unknown and duplicate fields are found here too.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import cache, lru_cache
from typing import Any, cast

import msgspec

from pileus.clock import rfc3339
from pileus_lab.apiserver.schema import field_tables
from pileus_lab.apiserver.store import encode
from pileus_lab.apiserver.tree import Obj, without_nulls

SECONDS = "2006-01-02T15:04:05Z07:00"
MICROS = "2006-01-02T15:04:05.000000Z07:00"
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")
_QUANTITY = re.compile(r"([+-]?[0-9.]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_KNOWN = 4096
"""Number of canonical values to cache: each write of an object repeats most of them."""


class Time(str):
    __slots__ = ()


class MicroTime(str):
    __slots__ = ()


class Quantity(str):
    __slots__ = ()


class Base64(str):
    __slots__ = ()


def read_scalar(kind: type, value: object) -> object:
    """Returns the canonical value (a `dec_hook` of msgspec). Raises `ValueError`."""
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
    """Returns plain text (an `enc_hook` of msgspec)."""
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
    """Returns the canonical form: "0.5" is "500m", "1024Mi" is "1Gi"."""
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
    """Returns the number of a canonical quantity."""
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
    """Returns an integer and the largest power of 1000 that represent the value, rounded up."""
    nanos = (value.scaleb(power) * 10**9).to_integral_value(rounding="ROUND_UP")
    count, exponent = int(nanos), -9
    while count and count % 1000 == 0 and exponent < max(_DECIMAL.values()):
        count, exponent = count // 1000, exponent + 3
    return (count, exponent) if count else (0, 0)


def _json_name(value: object) -> str:
    names: dict[type, str] = {bool: "bool", int: "int", float: "float", dict: "object"}
    return names.get(type(value), "array")


_PLAIN: dict[str, Any] = {
    "string": str,
    "bool": bool,
    "int": int,
    "int32": int,
    "int64": int,
    "uint8": int,
    "time": Time,
    "microtime": MicroTime,
    "quantity": Quantity,
    "intorstring": int | str,
    "bytes": Base64,
    "any": Any,
}
_ZERO: dict[str, object] = {
    "string": "",
    "bool": False,
    "int": 0,
    "int32": 0,
    "int64": 0,
    "uint8": 0,
    "intorstring": 0,
    "bytes": "",
}
_PATH = re.compile(r" - at `\$\.?(.*)`$")
_EXPECTED = re.compile(r"Expected `[^`]*`, got `(\w+)`")
_JSON_NAMES = {"str": "string", "int": "number", "float": "number"}


class Unfit(ValueError):
    """The JSON does not fit the type; the message is that of Go."""


def canonical(type_name: str, value: Obj) -> Obj:
    """Returns the object as the server stores it. Raises `Unfit`."""
    try:
        read = msgspec.convert(_present(value), _struct(type_name), dec_hook=read_scalar)
    except msgspec.ValidationError as error:
        raise Unfit(_go_words(type_name, str(error))) from error
    return _written(read)


def known(type_name: str, value: Obj) -> Obj | None:
    """Like `canonical`; None if a field is unknown or of a wrong type."""
    try:
        strict = _struct(type_name, known_only=True)
        read = msgspec.convert(_present(value), strict, dec_hook=read_scalar)
    except msgspec.ValidationError:
        return None
    return _written(read)


def _present(value: Obj) -> object:
    """The value without its nulls; the text is searched first, which is much faster."""
    return without_nulls(value) if b"null" in encode(value) else value


def _written(read: msgspec.Struct) -> Obj:
    return cast("Obj", msgspec.to_builtins(read, enc_hook=write))


@cache
def _struct(type_name: str, *, known_only: bool = False) -> type[msgspec.Struct]:
    described = field_tables.types()[type_name].fields.values()
    fields = [_member(field, known_only=known_only) for field in described]
    names = {python: json for python, (json, _) in fields}
    return msgspec.defstruct(
        type_name.replace(".", "_"),
        [(python, *rest) for python, (_, rest) in fields],
        rename=names,
        omit_defaults=True,
        forbid_unknown_fields=known_only,
        kw_only=True,
        gc=False,
    )


def _member(
    field: field_tables.Field, *, known_only: bool
) -> tuple[str, tuple[str, tuple[Any, Any]]]:
    annotation = _annotation(field.type, known_only=known_only)
    default = _default(field, known_only=known_only)
    if default is None or default.is_none:
        annotation |= None
    made = default.made if default else msgspec.field(default=None)
    return f"{field.name}_", (field.name, (annotation, made))


class _Default(msgspec.Struct):
    made: Any
    is_none: bool = False


def _default(field: field_tables.Field, *, known_only: bool) -> _Default | None:
    """Returns the zero value of the field; a factory if Go writes even the zero."""
    omitted = bool(field.flags & {"omitempty", "omitzero"})
    if field.type.startswith("*") or field.type in {"time", "microtime", "quantity", "any"}:
        moment = field.type in {"time", "microtime"}  # structs, which Go's omitempty never omits
        return _nothing(omitted=omitted and (not moment or "omitzero" in field.flags))
    if field.is_list or field.is_map:
        if not omitted:
            return _nothing(omitted=False)
        return _Default(msgspec.field(default_factory=list if field.is_list else dict))
    if field.has_fields:
        return _Default(msgspec.field(default_factory=_struct(field.target, known_only=known_only)))
    zero = _ZERO[field.type]
    if omitted:
        return _Default(msgspec.field(default=zero))
    return _Default(msgspec.field(default_factory=_always(zero)))


def _nothing(*, omitted: bool) -> _Default:
    if omitted:
        return _Default(msgspec.field(default=None), is_none=True)
    return _Default(msgspec.field(default_factory=_always(None)), is_none=True)


def _always(value: object) -> Callable[[], object]:
    return lambda: value


def _annotation(written: str, *, known_only: bool) -> Any:  # noqa: ANN401 -- made at run time
    if written.startswith("*"):
        return _annotation(written[1:], known_only=known_only)
    if written.startswith("[]"):
        return list[_annotation(written[2:], known_only=known_only)]
    if written.startswith("map:"):
        return dict[str, _annotation(written[4:], known_only=known_only)]
    return _PLAIN[written] if written in _PLAIN else _struct(written, known_only=known_only)


def _go_words(type_name: str, complaint: str) -> str:
    path = _PATH.search(complaint)
    said = _PATH.sub("", complaint)
    got = _EXPECTED.match(said)
    if got is None:
        return said
    kind = _JSON_NAMES.get(got[1], got[1])
    steps = [s for s in re.split(r"\.|\[\d*\.*\]", path[1]) if s] if path else []
    owner, wanted = _place(type_name, steps)
    named = ".".join((owner.rpartition(".")[2], *steps))
    return f"json: cannot unmarshal {kind} into Go struct field {named} of type {wanted}"


def _place(type_name: str, steps: list[str]) -> tuple[str, str]:
    """Returns the type that owns the last step, and the Go type that was expected there."""
    owner, wanted = type_name, type_name
    for step in steps:
        field = (
            field_tables.types()[wanted].fields.get(step)
            if wanted in field_tables.types()
            else None
        )
        if field is None:
            continue
        owner, wanted = wanted, field.target
    if wanted in field_tables.types():
        return owner, "v1." + wanted.rpartition(".")[2]
    return owner, wanted


class _Pairs(list[tuple[str, object]]):
    """A JSON object with its members in order, including duplicates."""


def may_repeat(body: bytes, value: Obj) -> bool:
    """Whether the text may contain a field twice; fast if it does not.

    A dropped duplicate also dropped its quotes; only numeric escapes can hide more.
    """
    return b"\\u" in body or body.count(b'"') != encode(value).count(b'"')


def complaints(type_name: str, body: bytes) -> list[str]:
    """Returns a message for each unknown or duplicate field, in the order of the text."""
    return list(
        _walk(field_tables.types()[type_name], json.loads(body, object_pairs_hook=_Pairs), "")
    )


def unknown(type_name: str, value: Obj) -> list[str]:
    """Returns a message for each unknown field of a parsed object."""
    return list(_walk(field_tables.types()[type_name], _paired(value), ""))


def _paired(value: object) -> object:
    if isinstance(value, dict):
        return _Pairs((k, _paired(v)) for k, v in cast("Obj", value).items())
    if isinstance(value, list):
        return [_paired(v) for v in cast("list[object]", value)]
    return value


def _walk(kind: field_tables.Type, value: object, path: str) -> Iterator[str]:
    if not isinstance(value, _Pairs):
        return
    seen: set[str] = set()
    for name, member in value:
        here = f"{path}.{name}" if path else name
        if name in seen:
            yield f'duplicate field "{here}"'
            continue
        seen.add(name)
        field = kind.fields.get(name)
        if field is None:
            yield f'unknown field "{here}"'
        elif field.has_fields:
            yield from _inside(field, member, here)


def _inside(field: field_tables.Field, member: object, path: str) -> Iterator[str]:
    kind = field_tables.types()[field.target]
    if field.is_list and isinstance(member, list):
        for index, item in enumerate(cast("list[object]", member)):
            yield from _walk(kind, item, f"{path}[{index}]")
    elif field.is_map and isinstance(member, _Pairs):
        for key, item in member:
            yield from _walk(kind, item, f"{path}.{key}")
    else:
        yield from _walk(kind, member, path)
