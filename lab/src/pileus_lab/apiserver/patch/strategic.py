"""Strategic merge patch: a merge patch that knows by which key each list merges.

Directives: `$patch` (replace, delete, merge), `$retainKeys`, `$setElementOrder/<list>`,
`$deleteFromPrimitiveList/<list>`.
"""

from typing import cast

from pileus_lab.apiserver.schema import table
from pileus_lab.apiserver.tree import Obj, copied

DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
DELETE = "$deleteFromPrimitiveList/"
ORDER = "$setElementOrder/"

_UNTYPED = table.Type("", {})


class Unfit(Exception):
    """The patch is malformed (400)."""


class Keyless(Exception):
    """An item of a list does not say which one it is (500)."""


def apply(type_name: str, target: Obj, patch: Obj) -> Obj:
    """Return the patched object; what was given stays as it was. Errors: `Unfit`, `Keyless`."""
    return _merge(table.types()[type_name], target, patch)


def _merge(kind: table.Type, target: Obj, patch: Obj) -> Obj:
    patch = dict(patch)
    directive = patch.pop(DIRECTIVE, None)
    if directive == "replace":
        return _plain(patch)
    if directive == "delete":
        return {}
    if directive not in {None, "merge"}:
        raise Unfit(f"unknown patch type found: {directive}")
    merged = _retained(target, patch)
    _delete_primitives(merged, patch)
    for key, value in patch.items():
        if key.startswith((DELETE, ORDER)) or key == RETAIN:
            continue
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _member(kind, key, merged.get(key), patch)
    _order_rest(kind, merged, patch)
    return merged


def _retained(target: Obj, patch: Obj) -> Obj:
    keys = patch.get(RETAIN)
    if keys is None:
        return dict(target)
    if not isinstance(keys, list):
        raise Unfit("invalid patch format of retainKeys")
    kept = set(cast("list[object]", keys))
    named = {k for k, v in patch.items() if not k.startswith("$") and v is not None}
    if named - kept:
        raise Unfit("retainKeys must contain all the keys present in the patch")
    return {k: v for k, v in target.items() if k in kept}


def _member(kind: table.Type, key: str, current: object, patch: Obj) -> object:
    value, field = patch[key], kind.fields.get(key)
    if isinstance(value, dict):
        given = cast("Obj", value)
        inner = cast("Obj", current) if isinstance(current, dict) else {}
        return _merge(_inner(field), inner, given)
    if isinstance(value, list) and field is not None and field.merge_key is not None:
        have = cast("list[object]", current) if isinstance(current, list) else []
        wanted = cast("list[object]", value)
        return _merge_list(field, have, wanted, _order(patch, key))
    return copied(cast("object", value))


def _inner(field: table.Field | None) -> table.Type:
    if field is None or not field.has_fields:
        return _UNTYPED
    if field.is_map:
        return _UNTYPED
    return table.types()[field.target]


def _merge_list(
    field: table.Field, current: list[object], wanted: list[object], order: list[object] | None
) -> list[object]:
    if not field.has_fields:
        merged = current + [v for v in wanted if v not in current]
        return _ordered(merged, wanted if order is None else order, current, "")
    key = field.merge_key or ""
    kind = table.types()[field.target]
    result = [cast("Obj", item) for item in current if isinstance(item, dict)]
    for item in wanted:
        if not isinstance(item, dict):
            raise Unfit(f"expected an object in the list of {field.target}")
        patch = cast("Obj", item)
        if patch.get(DIRECTIVE) == "replace":
            return [_plain(i) for i in _objects(wanted) if DIRECTIVE not in i]
        result = _merge_item(kind, key, result, patch)
    return _ordered(list(result), wanted if order is None else order, current, key)


def _objects(values: list[object]) -> list[Obj]:
    return [cast("Obj", v) for v in values if isinstance(v, dict)]


def _merge_item(kind: table.Type, key: str, current: list[Obj], patch: Obj) -> list[Obj]:
    if key not in patch:
        shown = " ".join(f"{name}:{value}" for name, value in sorted(patch.items()))
        raise Keyless(f"map: map[{shown}] does not contain declared merge key: {key}")
    same = [i for i, item in enumerate(current) if item.get(key) == patch[key]]
    if patch.get(DIRECTIVE) == "delete":
        return [item for i, item in enumerate(current) if i not in same]
    if not same:
        return [*current, _merge(kind, {}, patch)]
    at = same[0]
    return [*current[:at], _merge(kind, current[at], patch), *current[at + 1 :]]


def _order(patch: Obj, key: str) -> list[object] | None:
    order = patch.get(ORDER + key)
    return cast("list[object]", order) if isinstance(order, list) else None


def _ordered(
    merged: list[object], order: list[object], before: list[object], key: str
) -> list[object]:
    """Put items as the real server does: those of `order` in that order; the others as they were.

    Of one of each, that stands first which stood first before; a new one stands before all others.
    """

    def identity(item: object) -> object:
        return cast("Obj", item).get(key) if key and isinstance(item, dict) else item

    ranks, old = [identity(item) for item in order], [identity(item) for item in before]
    named = [m for m in merged if identity(m) in ranks]
    named.sort(key=lambda m: ranks.index(identity(m)))
    others = [m for m in merged if identity(m) not in ranks]
    result: list[object] = []
    while named and others:
        one, other = identity(named[0]), identity(others[0])
        kept = one in old and other in old and old.index(other) < old.index(one)
        result.append(others.pop(0) if kept else named.pop(0))
    return result + named + others


def _delete_primitives(merged: Obj, patch: Obj) -> None:
    for directive, values in patch.items():
        if not directive.startswith(DELETE):
            continue
        key = directive.removeprefix(DELETE)
        current = merged.get(key)
        if isinstance(current, list) and isinstance(values, list):
            gone = cast("list[object]", values)
            merged[key] = [v for v in cast("list[object]", current) if v not in gone]


def _order_rest(kind: table.Type, merged: Obj, patch: Obj) -> None:
    """An order may be given for a list that the patch does not change otherwise."""
    for directive in patch:
        key = directive.removeprefix(ORDER)
        field, current = kind.fields.get(key), merged.get(key)
        if key == directive or key in patch or field is None or not isinstance(current, list):
            continue
        order = _order(patch, key) or []
        found = cast("list[object]", current)
        merged[key] = _ordered(found, order, found, field.merge_key or "")


def _plain(patch: Obj) -> Obj:
    """Return a patch as the object that it describes where there was none."""
    return {k: copied(v) for k, v in patch.items() if v is not None and k[:1] != "$"}
