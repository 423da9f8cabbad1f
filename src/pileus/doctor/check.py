"""The parts that all checks share: their result, and words for durations and lists. Pure."""

from collections.abc import Callable, Iterable, Sequence

from pileus.cloud.finding import Finding, Severity
from pileus.dataclass import dataclass
from pileus.doctor.observation import Observation

NAMED = 3
"""Objects that are named one by one; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check."""

    summary: str
    """What was checked, for the case that nothing was found."""
    findings: tuple[Finding, ...] = ()
    is_skipped: bool = False
    """Whether there was nothing to check, as the summary says."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check: a pure function, which raises NotRead if a part that it needs is missing."""

    id: str
    title: str
    run: Callable[[Observation], Verdict]


def error(id: str, subject: str, what: str, *, reason: str, fix: str) -> Finding:  # noqa: A002
    return Finding(
        id=id, severity=Severity.ERROR, subject=subject, what=what, reason=reason, fix=fix
    )


def warning(id: str, subject: str, what: str, *, reason: str, fix: str) -> Finding:  # noqa: A002
    return Finding(
        id=id, severity=Severity.WARNING, subject=subject, what=what, reason=reason, fix=fix
    )


def note(id: str, subject: str, what: str, *, reason: str, fix: str = "") -> Finding:  # noqa: A002
    return Finding(
        id=id, severity=Severity.NOTE, subject=subject, what=what, reason=reason, fix=fix
    )


def listed(names: Iterable[str]) -> str:
    """Returns the first names, and how many more there are."""
    found = sorted(names)
    more = len(found) - NAMED
    return ", ".join(found[:NAMED]) + (f" and {more} more" if more > 0 else "")


def titled(kind: str, names: Sequence[str]) -> str:
    """Returns `Node n1`, or `Nodes n1, n2, n3 and 7 more`."""
    return f"{kind}{'s' if len(names) > 1 else ''} {listed(names)}"


def counted(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def lasting(seconds: float) -> str:
    """Returns a duration in its largest whole unit, such as `3 minutes`."""
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return counted(int(seconds // size), unit)
    return counted(int(seconds), "second")
