"""Kubernetes objects as plain dicts, and their YAML with comments.

A `Commented` dict is a dict that has a comment in YAML. Comparisons and JSON do not see it.
"""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import yaml

Object = dict[str, Any]
WIDTH = 100
_LONGEST_FLOW = 88


class Commented(dict[str, Any]):
    """A dict with a comment."""

    def __init__(self, comment: str, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.comment = comment


def documents(objects: Iterable[Object]) -> str:
    """Returns the objects as YAML, for `kubectl apply -f -`."""
    return "---\n".join("".join(f"{line}\n" for line in _document(one)) for one in objects)


def _document(one: Object) -> Iterator[str]:
    yield from _comment(one, "")
    yield from _mapping(one, "")


def _comment(value: object, indent: str) -> Iterator[str]:
    if isinstance(value, Commented):
        for paragraph in value.comment.splitlines():
            for line in textwrap.wrap(paragraph, WIDTH - len(indent) - 2) or [""]:
                yield f"{indent}# {line}".rstrip()


def _mapping(content: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in content.items():
        name = _scalar(key)
        if not _is_nested(value):
            yield f"{indent}{name}: {_flow(value)}"
            continue
        yield f"{indent}{name}:"
        if isinstance(value, Mapping):
            inner = cast("Mapping[str, Any]", value)
            yield from _comment(inner, f"{indent}  ")
            yield from _mapping(inner, f"{indent}  ")
        else:
            yield from _sequence(cast("Sequence[Any]", value), f"{indent}  ")


def _sequence(items: Sequence[Any], indent: str) -> Iterator[str]:
    for item in items:
        if not isinstance(item, Mapping):
            yield f"{indent}- {_flow(item)}"
            continue
        inner = cast("Mapping[str, Any]", item)
        yield from _comment(inner, indent)
        first, *rest = _mapping(inner, f"{indent}  ")
        yield f"{indent}- {first.removeprefix(f'{indent}  ')}"
        yield from rest


def _is_nested(value: object) -> bool:
    if isinstance(value, Mapping):
        return bool(cast("Mapping[str, Any]", value))
    if not isinstance(value, list | tuple):
        return False
    items = cast("Sequence[object]", value)
    return any(map(_needs_a_line, items)) or len(_flow(items)) > _LONGEST_FLOW


def _needs_a_line(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple) or str(value).startswith("--")


def _flow(value: object) -> str:
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return f"[{', '.join(_scalar(item, flow=True) for item in items)}]"
    return _scalar(value)


def _scalar(value: object, *, flow: bool = False) -> str:
    """Returns text as YAML in one line; other scalars as JSON, which is YAML as well."""
    if not isinstance(value, str) or "\n" in value:
        return json.dumps(value)
    shown = yaml.safe_dump([value], default_flow_style=flow, width=float("inf")).strip()
    plain = shown[1:-1] if flow else shown.removeprefix("- ")
    return json.dumps(value) if plain.startswith("'") else plain
