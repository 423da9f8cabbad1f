"""Lists: filters, fields and pages, as the services of OpenStack have them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from pileus_lab.openstack.state import Record, Request

CONTROLS = frozenset({
    "limit",
    "marker",
    "page_reverse",
    "fields",
    "sort_key",
    "sort_dir",
    "sort",
    "all_tenants",
    "all_projects",
    "tenant_id",
    "project_id",
    "with_count",
    "loadbalancer_id",
    "pool_id",
    "deleted",
})
"""Parameters that select no items. The model has one project: its ID selects everything."""
TAGS: Mapping[str, Callable[[set[str], set[str]], bool]] = {
    "tags": lambda has, asked: asked <= has,
    "tags-any": lambda has, asked: bool(asked & has),
    "not-tags": lambda has, asked: not asked <= has,
    "not-tags-any": lambda has, asked: not asked & has,
}


def selected(items: Iterable[Record], request: Request) -> list[Record]:
    """Returns the items that have all values in the query; several values of a name are or-ed."""
    found = list(items)
    for name, values in request.query.items():
        if name in CONTROLS:
            continue
        test = _tag_test(name, values) if name in TAGS else _field_test(name, values)
        found = [one for one in found if test(one)]
    return found


def _tag_test(name: str, values: Sequence[str]) -> Callable[[Record], bool]:
    asked = {tag for value in values for tag in value.split(",")}
    return lambda one: TAGS[name](set(one.get("tags", ())), asked)


def _field_test(name: str, values: Sequence[str]) -> Callable[[Record], bool]:
    if name == "fixed_ips":
        pairs = [value.partition("=") for value in values]
        return lambda one: any(
            fixed.get(key) == value for fixed in one.get("fixed_ips", ()) for key, _, value in pairs
        )
    if name == "security_groups":
        return lambda one: not {*values}.isdisjoint(one.get(name, ()))
    asked = {value.lower() if value.lower() in {"true", "false"} else value for value in values}
    return lambda one: name not in one or _text(one[name]) in asked


def _text(value: Any) -> str:  # noqa: ANN401 -- JSON
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def page_of(
    items: Sequence[Record],
    request: Request,
    key: str,
    most: int,
    *,
    neutron: bool = False,
) -> dict[str, Any] | None:
    """Returns one page of the items under `key`, with a link to the next if the page is full.

    At most `most` items (0: not limited), fewer if the query asks for fewer. None if the marker is
    unknown. The next page may be empty: no service looks ahead. Neutron and Octavia can return some
    fields only. Neutron also links from every page of a limited list to the one before.
    """
    query = request.query
    start = _start_of(items, query.get("marker", [""])[-1])
    if start is None:
        return None
    limit = _limit(query, most)
    shown = items[start : start + limit] if limit else items[start:]
    body: dict[str, Any] = {key: with_fields(shown, query)}
    if limit and len(shown) == limit:
        body[f"{key}_links"] = [{"rel": "next", "href": _link(request, str(shown[-1]["id"]))}]
    if limit and neutron:
        first = str(shown[0]["id"]) if shown else ""
        back = {"rel": "previous", "href": f"{_link(request, first)}&page_reverse=True"}
        body.setdefault(f"{key}_links", []).append(back)
    return body


def _start_of(items: Sequence[Record], marker: str) -> int | None:
    if not marker:
        return 0
    places = (place for place, one in enumerate(items) if one["id"] == marker)
    place = next(places, None)
    return None if place is None else place + 1


def _limit(query: Mapping[str, list[str]], most: int) -> int:
    text = query.get("limit", [""])[-1]
    asked = int(text) if text.isdigit() else 0
    return min(asked or most, most or asked)


def with_fields(items: Sequence[Record], query: Mapping[str, list[str]]) -> list[Record]:
    wanted = query.get("fields")
    if not wanted:
        return list(items)
    return [{name: one[name] for name in wanted if name in one} for one in items]


def _link(request: Request, marker: str) -> str:
    return _address(request.call.path, request.call.query, marker)


@lru_cache(maxsize=4096)
def _address(path: str, query: tuple[tuple[str, str], ...], marker: str) -> str:
    """As the service has it; only its query counts."""
    kept = [one for one in query if one[0] != "marker"]
    return f"http://openstack.example{path}?{urlencode([*kept, ('marker', marker)])}"
