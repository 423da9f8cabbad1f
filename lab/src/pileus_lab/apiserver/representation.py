"""Forms of an answer, chosen by the Accept header: objects, tables, metadata alone."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from math import inf

from pileus_lab.apiserver import errors
from pileus_lab.apiserver.resource import UNKNOWN, Column, Resource
from pileus_lab.apiserver.store import Entry, encode
from pileus_lab.apiserver.tree import Obj, branch

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY
META = "meta.k8s.io/v1"


def age(since: str, now: datetime) -> str:
    """Returns a duration in the short form of the real server: 5m10s, 3h, 2d4h."""
    if not since:
        return UNKNOWN
    seconds = int((now - datetime.fromisoformat(since)).total_seconds())
    if seconds < -1:
        return "<invalid>"
    show = next(shown for limit, shown in _AGES if seconds < limit)
    return show(max(seconds, 0))


def _two(large: int, units: str, seconds: int, small: int) -> str:
    rest = seconds % large // small
    whole = f"{seconds // large}{units[0]}"
    return f"{whole}{rest}{units[1]}" if rest else whole


_AGES: tuple[tuple[float, Callable[[int], str]], ...] = (
    (2 * MINUTE, lambda s: f"{s}s"),
    (10 * MINUTE, lambda s: _two(MINUTE, "ms", s, 1)),
    (3 * HOUR, lambda s: f"{s // MINUTE}m"),
    (8 * HOUR, lambda s: _two(HOUR, "hm", s, MINUTE)),
    (2 * DAY, lambda s: f"{s // HOUR}h"),
    (8 * DAY, lambda s: _two(DAY, "dh", s, HOUR)),
    (2 * YEAR, lambda s: f"{s // DAY}d"),
    (8 * YEAR, lambda s: _two(YEAR, "yd", s, DAY)),
    (inf, lambda s: f"{s // YEAR}y"),
)


def render(
    resource: Resource, entries: Iterable[Entry], meta: Obj, *, now: datetime, include: str
) -> bytes:
    """Returns a Table; `include` is how much of each object its row contains."""
    rows = [_row(resource, entry, now, include) for entry in entries]
    columns = [_definition(column) for column in resource.columns]
    table: Obj = {"kind": "Table", "apiVersion": META, "metadata": meta}
    return encode({**table, "columnDefinitions": columns, "rows": rows})


def _definition(column: Column) -> Obj:
    return {
        "name": column.name,
        "type": "string",
        "format": "name" if column.name == "Name" else "",
        "description": "",
        "priority": int(column.wide),
    }


def _row(resource: Resource, entry: Entry, now: datetime, include: str) -> Obj:
    value = entry.decode()
    cells = [_cell(column, value, now) for column in resource.columns]
    if include == "None":
        return {"cells": cells, "object": None}
    if include == "Object":
        whole: Obj = {"kind": resource.kind, "apiVersion": resource.api_version}
        shown = resource.face.outward(value) if resource.face else value
        return {"cells": cells, "object": {**whole, **shown}}
    return {"cells": cells, "object": partial(value)}


def _cell(column: Column, value: Obj, now: datetime) -> object:
    cell = column.cell(value)
    return age(str(cell), now) if column.type == "age" else cell


def partial(value: Obj) -> Obj:
    """Returns the metadata of the object."""
    meta = branch(value, "metadata")
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": meta}


OFFERED = ("application/json", "application/json;stream=watch")
FORMS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
ANY = frozenset({"*/*", "application/*", "application/json"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """Objects (""), a Table, or metadata alone."""

    form: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


@lru_cache(64)
def choose(accept: str) -> Wanted:
    """Returns the first supported form. Raises `Problem` 406."""
    if not accept:
        return Wanted()
    for part in accept.split(","):
        media, *rest = (piece.strip() for piece in part.split(";"))
        if media.lower() not in ANY:
            continue
        parameters = {key: value for key, _, value in (p.partition("=") for p in rest)}
        form = parameters.get("as", "")
        if not form:
            return Wanted("", parameters)
        if form in FORMS and parameters.get("v", "v1") == "v1":
            return Wanted(form, parameters)
    raise errors.not_acceptable(OFFERED)
