"""Accessors for JSON objects whose shape a schema has checked."""

from collections.abc import Callable
from typing import cast

Obj = dict[str, object]
"""A JSON object, shaped as its schema says."""


def look(value: object, *path: str) -> object:
    """Returns the value at the path, or None."""
    for step in path:
        if not isinstance(value, dict):
            return None
        # No cast, which would take as long as all else here: nothing is called more often.
        value = value.get(step)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return value  # pyright: ignore[reportUnknownVariableType]


def branch(value: object, *path: str) -> Obj:
    """Returns the object at the path; an empty, detached one if there is none."""
    found = look(value, *path)
    return cast("Obj", found) if isinstance(found, dict) else {}


def grow(value: Obj, *path: str) -> Obj:
    """Returns the object at the path; creates it if there is none."""
    for step in path:
        inner = value.get(step)
        if not isinstance(inner, dict):
            inner = value[step] = {}
        value = cast("Obj", inner)
    return value


def text(value: object, *path: str) -> str:
    found = look(value, *path)
    return found if isinstance(found, str) else ""


def number(value: object, *path: str) -> int:
    found = look(value, *path)
    return found if isinstance(found, int) else 0


def items(value: object, *path: str) -> list[object]:
    found = look(value, *path)
    return cast("list[object]", found) if isinstance(found, list) else []


def rows(value: object, *path: str) -> list[Obj]:
    return [cast("Obj", item) for item in items(value, *path) if isinstance(item, dict)]


def texts(value: object, *path: str) -> list[str]:
    return [item for item in items(value, *path) if isinstance(item, str)]


def words(value: object, *path: str) -> dict[str, str]:
    """Returns a map of strings, such as labels."""
    return {k: v for k, v in branch(value, *path).items() if isinstance(v, str)}


def default(value: Obj, **fields: object) -> None:
    """Sets each field that is missing."""
    for name, wanted in fields.items():
        value.setdefault(name, wanted)


def copied(value: object) -> object:
    """Returns a deep copy."""
    if isinstance(value, dict):
        return {k: copied(v) for k, v in cast("Obj", value).items()}
    if isinstance(value, list):
        return [copied(v) for v in cast("list[object]", value)]
    return value


def clone(value: Obj) -> Obj:
    return cast("Obj", copied(value))


def without_nulls(value: object) -> object:
    """Returns the value without null members, as a Go struct would read it."""
    if isinstance(value, dict):
        members = cast("Obj", value).items()
        return {k: without_nulls(v) for k, v in members if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in cast("list[object]", value)]
    return value


def name_of(value: Obj) -> str:
    return text(value, "metadata", "name")


def namespace_of(value: Obj) -> str:
    return text(value, "metadata", "namespace")


Mutate = Callable[[Obj], None]
