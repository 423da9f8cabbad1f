"""JSON patch (RFC 6902): a list of operations, all or nothing."""

from typing import cast

from msgspec.json import encode

from pileus_lab.apiserver.tree import Obj, clone, copied

LIMIT = 10_000
"""Operations in one patch, as the real server limits them."""
COPY_LIMIT = 3 * 1024 * 1024
"""Bytes of JSON that the copy operations of one patch may add, as the real server limits them."""


class Unprocessable(Exception):
    """The operations do not fit this object (422)."""


class Malformed(Exception):
    """The patch is not one (400)."""


def apply(target: Obj, operations: object) -> Obj:
    """Return the patched object. Errors: `Unprocessable`, `Malformed`."""
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
