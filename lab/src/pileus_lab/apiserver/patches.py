"""The three kinds of patch, as pure functions: JSON merge, JSON, strategic merge."""

from typing import cast

from msgspec.json import encode

from pileus_lab.apiserver.schema import field_tables
from pileus_lab.apiserver.tree import Obj, clone, copied


def apply_merge_patch(target: object, patch: object) -> object:
    """Returns the patched value; the arguments are not changed."""
    if not isinstance(patch, dict):
        return copied(patch)
    merged: Obj = dict(cast("Obj", target)) if isinstance(target, dict) else {}
    for key, value in cast("Obj", patch).items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply_merge_patch(merged.get(key), value)
    return merged


LIMIT = 10_000
"""Maximum number of operations in one patch, as in the real server."""
COPY_LIMIT = 3 * 1024 * 1024
"""Maximum bytes of JSON that the copy operations of one patch may add, as in the real server."""


class Unprocessable(Exception):
    """The operations do not fit this object (422)."""


class Malformed(Exception):
    """The patch is malformed (400)."""


def apply_json_patch(target: Obj, operations: object) -> Obj:
    """Returns the patched object. Raises `Unprocessable`, `Malformed`."""
    if not isinstance(operations, list):
        raise Malformed(
            "error decoding patch: json: cannot unmarshal object into Go value of type "
            "jsonpatch.Patch"
        )
    result, copies = cast("object", clone(target)), 0
    for operation in cast("list[object]", operations):
        if not isinstance(operation, dict):
            raise Malformed("error decoding patch: operation is not an object")
        copies += _copied_bytes(result, cast("Obj", operation))
        if copies > COPY_LIMIT:
            raise Unprocessable(
                "Unable to complete the copy, the accumulated size increase of copy operations is "
                f"{copies}, exceeding the limit {COPY_LIMIT}"
            )
        result = _perform(result, cast("Obj", operation))
    if not isinstance(result, dict):
        raise Unprocessable("the result is not an object")
    return cast("Obj", result)


def _perform(root: object, operation: Obj) -> object:
    kind, path = operation.get("op"), operation.get("path")
    if not isinstance(path, str):
        raise Unprocessable(f"{kind} operation is missing its path")
    match kind:
        case "add":
            return _add(root, path, _value(operation))
        case "remove":
            _remove(root, path, "remove")
            return root
        case "replace":
            return _replace(root, path, _value(operation))
        case "move":
            source = str(operation.get("from", ""))
            return _add(root, path, _remove(root, source, "move"))
        case "copy":
            return _add(root, path, copied(_get(root, str(operation.get("from", "")), "copy")))
        case "test":
            return _test(root, path, operation)
        case _:
            raise Unprocessable(f"Unexpected kind: {kind}")


def _copied_bytes(root: object, operation: Obj) -> int:
    if operation.get("op") != "copy":
        return 0
    return len(encode(_get(root, str(operation.get("from", "")), "copy")))


def _value(operation: Obj) -> object:
    if "value" not in operation:
        raise Unprocessable(f"{operation.get('op')} operation is missing its value")
    return copied(operation["value"])


def _test(root: object, path: str, operation: Obj) -> object:
    try:
        found = _get(root, path, "test")
    except Unprocessable:
        if operation.get("value") is None:
            return root
        raise
    if not _equal(found, operation.get("value")):
        raise Unprocessable(f"testing value {path} failed: test failed")
    return root


def _equal(one: object, other: object) -> bool:
    """1 and True are equal in Python, but not in JSON."""
    return type(one) is type(other) and one == other


def _steps(path: str) -> list[str]:
    if not path:
        return []
    if not path.startswith("/"):
        raise Unprocessable(f'path "{path}" does not start with "/"')
    return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]


def _parent(root: object, path: str, kind: str) -> tuple[object, str]:
    *above, last = _steps(path)
    for step in above:
        root = _child(root, step, path, kind)
    return root, last


def _get(root: object, path: str, kind: str) -> object:
    for step in _steps(path):
        root = _child(root, step, path, kind)
    return root


def _child(parent: object, step: str, path: str, kind: str) -> object:
    if isinstance(parent, dict) and step in parent:
        return cast("Obj", parent)[step]
    if isinstance(parent, list):
        found = cast("list[object]", parent)
        return found[_index(step, len(found) - 1, path, kind)]
    raise _missing(path, kind)


def _missing(path: str, kind: str) -> Unprocessable:
    return Unprocessable(
        f'{kind} operation does not apply: doc is missing path: "{path}": missing value'
    )


def _index(step: str, last: int, path: str, kind: str) -> int:
    try:
        index = int(step)
    except ValueError:
        raise _missing(path, kind) from None
    if not -last - 1 <= index <= last:
        raise Unprocessable(
            f"{kind} operation does not apply: doc is missing path: {path}: Unable to access "
            f"invalid index: {step}: invalid index referenced"
        )
    return index


def _add(root: object, path: str, value: object) -> object:
    if not path:
        return value
    parent, last = _parent(root, path, "add")
    if isinstance(parent, dict):
        cast("Obj", parent)[last] = value
    elif isinstance(parent, list):
        found = cast("list[object]", parent)
        at = len(found) if last == "-" else _index(last, len(found), path, "add")
        found.insert(at, value)
    else:
        raise _missing(path, "add")
    return root


def _remove(root: object, path: str, kind: str) -> object:
    parent, last = _parent(root, path, kind)
    removed = _child(parent, last, path, kind)
    if isinstance(parent, dict):
        del cast("Obj", parent)[last]
    elif isinstance(parent, list):
        found = cast("list[object]", parent)
        del found[_index(last, len(found) - 1, path, kind)]
    return removed


def _replace(root: object, path: str, value: object) -> object:
    if not path:
        return value
    parent, last = _parent(root, path, "replace")
    if isinstance(parent, dict):  # the real server does not mind if there was none
        cast("Obj", parent)[last] = value
    elif isinstance(parent, list):
        found = cast("list[object]", parent)
        found[_index(last, len(found) - 1, path, "replace")] = value
    else:
        raise _missing(path, "replace")
    return root


DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
DELETE = "$deleteFromPrimitiveList/"
ORDER = "$setElementOrder/"

_UNTYPED = field_tables.Type("", {})


class Unfit(Exception):
    """The patch is malformed (400)."""


class Keyless(Exception):
    """An item of a list lacks its merge key (500)."""


def apply_strategic_patch(type_name: str, target: Obj, patch: Obj) -> Obj:
    """Returns the patched object; the arguments are not changed. Raises `Unfit`, `Keyless`."""
    return _merge(field_tables.types()[type_name], target, patch)


def _merge(kind: field_tables.Type, target: Obj, patch: Obj) -> Obj:
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


def _member(kind: field_tables.Type, key: str, current: object, patch: Obj) -> object:
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


def _inner(field: field_tables.Field | None) -> field_tables.Type:
    if field is None or not field.has_fields:
        return _UNTYPED
    if field.is_map:
        return _UNTYPED
    return field_tables.types()[field.target]


def _merge_list(
    field: field_tables.Field,
    current: list[object],
    wanted: list[object],
    order: list[object] | None,
) -> list[object]:
    if not field.has_fields:
        merged = current + [v for v in wanted if v not in current]
        return _ordered(merged, wanted if order is None else order, current, "")
    key = field.merge_key or ""
    kind = field_tables.types()[field.target]
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


def _merge_item(kind: field_tables.Type, key: str, current: list[Obj], patch: Obj) -> list[Obj]:
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
    """Orders items as the real server does.

    Those of `order` are in that order. Otherwise existing items keep their order; a new one is
    placed before all others.
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


def _order_rest(kind: field_tables.Type, merged: Obj, patch: Obj) -> None:
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
    """Returns the object that a patch describes if there was none."""
    return {k: copied(v) for k, v in patch.items() if v is not None and k[:1] != "$"}
