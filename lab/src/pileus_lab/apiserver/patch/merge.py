"""JSON merge patch (RFC 7386)."""

from typing import cast

from pileus_lab.apiserver.tree import Obj, copied


def apply(target: object, patch: object) -> object:
    """Return the patched value; what was given stays as it was."""
    if not isinstance(patch, dict):
        return copied(patch)
    merged: Obj = dict(cast("Obj", target)) if isinstance(target, dict) else {}
    for key, value in cast("Obj", patch).items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply(merged.get(key), value)
    return merged
