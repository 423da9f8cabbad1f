"""Checks of single values, for declarations: each returns what is wrong, or None."""

from typing import Any

from pileus.settings.flags import Flag


def positive(flag: Flag[float], value: float) -> str | None:
    if value > 0:
        return None
    return f"{flag.name} must be greater than zero, but got {flag.kind.render(value)}"


def not_negative(flag: Flag[float], value: float) -> str | None:
    if value >= 0:
        return None
    return f"{flag.name} must not be negative, but got {flag.kind.render(value)}"


def at_least_one(flag: Flag[int], value: int) -> str | None:
    return None if value >= 1 else f"{flag.name} must be at least 1, but got {value}"


def no_blanks(flag: Flag[tuple[str, ...]], value: tuple[str, ...]) -> str | None:
    return None if all(entry.strip() for entry in value) else f'empty value in "{flag.name}"'


def up_to(highest: int) -> Any:  # noqa: ANN401 -- a check
    """Returns the check that a number is between 0 and `highest`."""

    def check(flag: Flag[int], value: int) -> str | None:
        if 0 <= value <= highest:
            return None
        return f"{flag.name} must be between 0 and {highest}, but got {value}"

    return check
