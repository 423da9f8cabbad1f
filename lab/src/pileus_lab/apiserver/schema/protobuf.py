r"""Reads objects in Kubernetes' protobuf form, in which Go's typed clients send them.

k8s\0  Unknown{1: TypeMeta{1: apiVersion, 2: kind}, 2: raw, ...}
"""

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import cast

from pileus.clock import rfc3339
from pileus_lab.apiserver.schema import field_tables
from pileus_lab.apiserver.tree import Obj, grow

MAGIC = b"k8s\x00"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_SIGN = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STRING = 1
"""The number of IntOrString's string form."""

Member = int | bytes


class Garbled(ValueError):
    """The bytes are malformed."""


def decode(type_name: str, body: bytes) -> Obj:
    """Returns the object, with kind and apiVersion. Raises `Garbled`."""
    if not body.startswith(MAGIC):
        raise Garbled("the body is not in Kubernetes' protobuf form")
    envelope = dict(_members(body[len(MAGIC) :]))
    meta = dict(_members(_bytes(envelope.get(1, b""))))
    value = _message(type_name, _bytes(envelope.get(2, b"")))
    value["apiVersion"] = _text(_bytes(meta.get(1, b"")))
    value["kind"] = _text(_bytes(meta.get(2, b"")))
    return value


@cache
def _by_number(type_name: str) -> dict[tuple[int, ...], field_tables.Field]:
    fields = field_tables.types()[type_name].fields.values()
    return {field.numbers: field for field in fields if field.numbers}


def _message(type_name: str, body: bytes) -> Obj:
    value: Obj = {}
    _fill(type_name, body, (), value)
    return value


def _fill(type_name: str, body: bytes, above: tuple[int, ...], value: Obj) -> None:
    known = _by_number(type_name)
    for number, member in _members(body):
        here = (*above, number)
        field = known.get(here)
        if field is not None:
            _put(field, member, value)
        elif any(numbers[: len(here)] == here for numbers in known):
            _fill(type_name, _bytes(member), here, value)


def _put(field: field_tables.Field, member: Member, value: Obj) -> None:
    written = field.type.lstrip("*")
    if written.startswith("map:"):
        entry = dict(_members(_bytes(member)))
        inner = written.removeprefix("map:")
        key = _text(_bytes(entry.get(1, b"")))
        grow(value, field.name)[key] = _mapped(inner, entry.get(2, b""))
    elif written.startswith("[]"):
        found = value.setdefault(field.name, [])
        cast("list[object]", found).extend(_repeated(written[2:], member))
    else:
        value[field.name] = _value(written, member)


def _mapped(written: str, member: Member) -> object:
    if written.startswith("[]"):
        return [_value(written[2:], item) for _, item in _members(_bytes(member))]
    return _value(written, member)


def _repeated(written: str, member: Member) -> Iterator[object]:
    if written in {"int32", "int64"} and isinstance(member, bytes):
        at = 0
        while at < len(member):
            number, at = _varint(member, at)
            yield _signed(number)
    else:
        yield _value(written, member)


def _value(written: str, member: Member) -> object:
    read = _READERS.get(written)
    if read is not None:
        return read(member)
    return _message(written, _bytes(member))


def _bytes(member: Member) -> bytes:
    if isinstance(member, int):
        raise Garbled("a number where a text or message should be")
    return member


def _number(member: Member) -> int:
    if not isinstance(member, int):
        raise Garbled("a text or message where a number should be")
    return _signed(member)


def _signed(number: int) -> int:
    return number - (_SIGN << 1) if number >= _SIGN else number


def _text(member: Member) -> str:
    try:
        return _bytes(member).decode()
    except UnicodeDecodeError as error:
        raise Garbled(str(error)) from error


def _moment(member: Member) -> datetime | None:
    parts = dict(_members(_bytes(member)))
    if not parts:
        return None
    seconds, nanos = _number(parts.get(1, 0)), _number(parts.get(2, 0))
    return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)


def _time(member: Member) -> object:
    moment = _moment(member)
    return moment and rfc3339(moment, "seconds")


def _microtime(member: Member) -> object:
    moment = _moment(member)
    return moment and rfc3339(moment, "microseconds")


def _quantity(member: Member) -> object:
    return _text(dict(_members(_bytes(member))).get(1, b""))


def _int_or_string(member: Member) -> object:
    parts = dict(_members(_bytes(member)))
    if _number(parts.get(1, 0)) == _STRING:
        return _text(parts.get(3, b""))
    return _number(parts.get(2, 0))


def _any(member: Member) -> object:
    raw = _bytes(dict(_members(_bytes(member))).get(1, b""))
    try:
        return json.loads(raw) if raw else None
    except ValueError as error:
        raise Garbled(str(error)) from error


_READERS: dict[str, Callable[[Member], object]] = {
    "string": _text,
    "bool": lambda member: bool(_number(member)),
    "int": _number,
    "int32": _number,
    "int64": _number,
    "uint8": _number,
    "bytes": lambda member: base64.b64encode(_bytes(member)).decode(),
    "time": _time,
    "microtime": _microtime,
    "quantity": _quantity,
    "intorstring": _int_or_string,
    "any": _any,
}


def _members(body: bytes) -> Iterator[tuple[int, Member]]:
    """Yields field numbers and values."""
    at = 0
    while at < len(body):
        tag, at = _varint(body, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = _varint(body, at)
            yield number, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(kind)
        if kind == BYTES:
            size, at = _varint(body, at)
        if size is None or at + size > len(body):
            raise Garbled("the message is cut off")
        yield number, body[at : at + size]
        at += size


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(body):
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 -- the last byte has no high bit
            return value, at
    raise Garbled("the message is cut off")
