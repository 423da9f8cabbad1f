"""Go's notation for durations: `300ms`, `1.5h`, `2h45m`; a float of seconds inside.

Printed forms are normalised as Go prints them: 100m is `1h40m0s`, 0.3 s is `300ms`.
"""

import re

from pileus.settings.go_quote import quote

_MICRO_SIGN = "\N{MICRO SIGN}"
_UNITS = {
    "ns": 1,
    "us": 10**3,
    _MICRO_SIGN + "s": 10**3,
    "\N{GREEK SMALL LETTER MU}s": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_SECOND = 10**9
_LONGEST = 2**63 - 1
_PART = re.compile(r"(?P<whole>[0-9]*)(?P<fraction>\.[0-9]*)?(?P<unit>[^0-9.]*)")


def parse_duration(text: str) -> float:
    """Return the seconds that `text` stands for; ValueError with Go's own words otherwise."""
    unsigned = text[1:] if text[:1] in {"+", "-"} else text
    if unsigned == "0":
        return 0.0
    if not unsigned:
        raise ValueError(f"time: invalid duration {quote(text)}")
    nanoseconds = _sum_of_parts(unsigned, text)
    if nanoseconds > _LONGEST:
        raise ValueError(f"time: invalid duration {quote(text)}")
    return (-nanoseconds if text[0] == "-" else nanoseconds) / _SECOND


def _sum_of_parts(unsigned: str, text: str) -> int:
    total, position = 0, 0
    while position < len(unsigned):
        part = _PART.match(unsigned, position)
        digits = part and part["whole"] + (part["fraction"] or "").removeprefix(".")
        if part is None or not digits:
            raise ValueError(f"time: invalid duration {quote(text)}")
        total += _nanoseconds(part, text)
        position = part.end()
    return total


def _nanoseconds(part: re.Match[str], text: str) -> int:
    name = part["unit"]
    if not name:
        raise ValueError(f"time: missing unit in duration {quote(text)}")
    if (unit := _UNITS.get(name)) is None:
        raise ValueError(f"time: unknown unit {quote(name)} in duration {quote(text)}")
    decimals = (part["fraction"] or "").removeprefix(".")
    return int(part["whole"] or "0") * unit + int(decimals or "0") * unit // 10 ** len(decimals)


def render_duration(seconds: float) -> str:
    """Return the normalised form, to the nanosecond."""
    nanoseconds = round(seconds * _SECOND)
    if nanoseconds == 0:
        return "0s"
    sign = "-" if nanoseconds < 0 else ""
    return sign + _render_magnitude(abs(nanoseconds))


def _render_magnitude(nanoseconds: int) -> str:
    for unit, name in ((_SECOND, ""), (10**6, "ms"), (10**3, _MICRO_SIGN + "s"), (1, "ns")):
        if nanoseconds < unit:
            continue
        if unit < _SECOND:
            return _decimal(nanoseconds, unit) + name
        break
    minutes, rest = divmod(nanoseconds, 60 * _SECOND)
    hours, minutes = divmod(minutes, 60)
    text = _decimal(rest, _SECOND) + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    if not rest:
        return str(whole)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}"
