"""How long ago something was, in the words of kubectl: 42s, 5m, 3h, 2d."""

from datetime import datetime

_STEPS = ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h"))
_DAY = 86400


def age(at: datetime, now: datetime) -> str:
    seconds = max(int((now - at).total_seconds()), 0)
    for limit, unit, letter in _STEPS:
        if seconds < limit:
            return f"{seconds // unit}{letter}"
    return f"{seconds // _DAY}d"
