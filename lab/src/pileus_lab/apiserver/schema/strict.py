"""Finds unknown and duplicate fields in what a client sent."""

import json
from collections.abc import Iterator
from typing import cast

from pileus_lab.apiserver.schema import table
from pileus_lab.apiserver.store import encode
from pileus_lab.apiserver.tree import Obj


class _Pairs(list[tuple[str, object]]):
    """A JSON object with its members in order, duplicates and all."""


def may_repeat(body: bytes, value: Obj) -> bool:
    """Whether some field may be twice in the text of this value; quick if there is none.

    A field that was dropped for its twin took its quotes along; only escapes by number hide more.
    """
    return b"\\u" in body or body.count(b'"') != encode(value).count(b'"')


def complaints(type_name: str, body: bytes) -> list[str]:
    """Return a complaint per unknown or duplicate field, in the order of the text."""
    return list(_walk(table.types()[type_name], json.loads(body, object_pairs_hook=_Pairs), ""))


def unknown(type_name: str, value: Obj) -> list[str]:
    """Return a complaint per unknown field of an object that is parsed already."""
    return list(_walk(table.types()[type_name], _paired(value), ""))


def _paired(value: object) -> object:
    if isinstance(value, dict):
        return _Pairs((k, _paired(v)) for k, v in cast("Obj", value).items())
    if isinstance(value, list):
        return [_paired(v) for v in cast("list[object]", value)]
    return value


def _walk(kind: table.Type, value: object, path: str) -> Iterator[str]:
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


def _inside(field: table.Field, member: object, path: str) -> Iterator[str]:
    kind = table.types()[field.target]
    if field.is_list and isinstance(member, list):
        for index, item in enumerate(cast("list[object]", member)):
            yield from _walk(kind, item, f"{path}[{index}]")
    elif field.is_map and isinstance(member, _Pairs):
        for key, item in member:
            yield from _walk(kind, item, f"{path}.{key}")
    else:
        yield from _walk(kind, member, path)
