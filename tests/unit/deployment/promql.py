"""Reads PromQL far enough to name its metrics and labels. Raises `NotPromql` for anything else."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s+
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>\d+(?:\.\d+)?(?:ms|[smhdwy])?|\$__rate_interval)
    | (?P<name>[a-zA-Z_:][\w:]*)
    | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^(){}\[\],=<>])
    """,
    re.VERBOSE,
)
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "offset", "bool"}


class NotPromql(Exception):
    pass


@dataclass(frozen=True)
class Selector:
    metric: str
    labels: tuple[tuple[str, str, str], ...] = ()
    """Name, operator and value."""


@dataclass(frozen=True)
class Query:
    selectors: tuple[Selector, ...]
    grouping: tuple[str, ...]
    """Labels of `by`, `on` and the like."""
    functions: tuple[str, ...]


def parsed(text: str) -> Query:
    tokens = list(_tokens(text))
    selectors: list[Selector] = []
    grouping: list[str] = []
    functions: list[str] = []
    place = 0
    while place < len(tokens):
        kind, value = tokens[place]
        following = tokens[place + 1][1] if place + 1 < len(tokens) else ""
        place += 1
        if value == "{":
            place, found = _matchers(tokens, place - 1)
            (_, _, name), *rest = found
            selectors.append(Selector(name.removesuffix("(_total)?"), tuple(rest)))
            continue
        if kind != "name" or value in _WORDS:
            continue
        if value in _GROUPING:
            place, labels = _list(tokens, place)
            grouping += labels
        elif following == "(" or following in _GROUPING:
            functions.append(value)
        else:
            place, found = _matchers(tokens, place)
            selectors.append(Selector(value, found))
    return Query(tuple(selectors), tuple(grouping), tuple(functions))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise NotPromql(f"{text!r} at {text[place : place + 20]!r}")
        place = found.end()
        if found.lastgroup:
            yield found.lastgroup, found[0]


def _list(tokens: list[tuple[str, str]], place: int) -> tuple[int, list[str]]:
    _expect(tokens, place, "(")
    labels: list[str] = []
    while tokens[place][1] != ")":
        place += 1
        kind, value = tokens[place]
        if kind == "name":
            labels.append(value)
    return place + 1, labels


def _matchers(
    tokens: list[tuple[str, str]], place: int
) -> tuple[int, tuple[tuple[str, str, str], ...]]:
    if place >= len(tokens) or tokens[place][1] != "{":
        return place, ()
    found: list[tuple[str, str, str]] = []
    place += 1
    while tokens[place][1] != "}":
        (_, name), (_, operator), (kind, value) = tokens[place : place + 3]
        if kind != "text" or operator not in {"=", "!=", "=~", "!~"}:
            raise NotPromql(f"{name}{operator}{value}")
        found.append((name, operator, value[1:-1]))
        place += 3
        if tokens[place][1] == ",":
            place += 1
    return place + 1, tuple(found)


def _expect(tokens: list[tuple[str, str]], place: int, sign: str) -> None:
    if place >= len(tokens) or tokens[place][1] != sign:
        raise NotPromql(f"{sign} is missing")
