"""JSON that a careless or hostile program could send: deep, wide, of wrong types, hardly JSON."""

from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st

from pileus.kube.model import (
    authentication_v1,
    authorization_v1,
    coordination_v1,
    core_v1,
)
from pileus.kube.model.meta import Resource

RESOURCES: tuple[Resource[Any], ...] = tuple(
    value
    for module in (authentication_v1, authorization_v1, coordination_v1, core_v1)
    for value in vars(module).values()
    if isinstance(value, Resource)
)


def deep(levels: int) -> bytes:
    return b'{"f:a":' * levels + b"{}" + b"}" * levels


def nested_lists(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


DEPTHS = st.sampled_from((3, 63, 64, 65, 900, 990, 1100, 9999))
WELL_FORMED = (
    st.sampled_from((
        b"null",
        b"true",
        b"{}",
        b"[]",
        b"-0",
        b"-1",
        b"0.5",
        b"1e3",
        b"1e999",
        b"-1e400",
        b"1e-99999999999",
        b"9" * 30,
        b"9" * 5000,
        b"2147483648",
        b"9223372036854775808",
        b'""',
        b'"x"',
        b'"\\u0000"',
        b'"\\ud83d\\ude00"',
        b'"[{\\"]}\\\\"',
        b'"2026-01-02T03:04:05Z"',
        b'"2026-01-02T03:04:05"',
        b'"9999-12-31T23:59:59-14:00"',
        b'"0001-01-01T00:00:00+14:00"',
        b'["", null, {}, 1]',
        b'{"a": null, "a": 1, "a": "x"}',
        b'"' + b"w" * 70_000 + b'"',
        b"[" + b"{}," * 5000 + b"{}]",
    ))
    | DEPTHS.map(deep)
    | DEPTHS.map(nested_lists)
)
"""Values that every JSON parser accepts in a field that it skips."""
MALFORMED = st.sampled_from((
    b"NaN",
    b"-Infinity",
    b"01",
    b"+1",
    b'"\\ud800"',
    b'"\\ud800\\ud800"',
    b'"\\x"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"a\x00b"',
    b'"never ends',
    b"{",
    b"]",
    b"'x'",
    b"[}" * 2000,
    b"",
))


@st.composite
def objects(draw: st.DrawFn, kind: type[msgspec.Struct], values: st.SearchStrategy[bytes]) -> bytes:
    """An object with fields of `kind`, some of them twice, and values that do not belong there."""
    parts = [b'"unknown":' + draw(values)] if draw(st.booleans()) else []
    fields = msgspec.structs.fields(kind)
    for field in draw(st.lists(st.sampled_from(fields), max_size=6)) if fields else ():
        inner = next(structs_in(field.type), None)
        value = draw(objects(inner, values)) if inner and draw(st.booleans()) else draw(values)
        listed = b"[" + value + b"]" if draw(st.booleans()) else value
        parts.append(b'"%s":%s' % (field.encode_name.encode(), listed))
    return b"{" + b",".join(parts) + b"}"


def structs_in(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    """The message types within `tuple[X, ...] | None` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from structs_in(part)
