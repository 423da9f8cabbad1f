"""A finding of a health check: what is wrong, why, and the command that fixes it."""

from enum import StrEnum

from pileus.dataclass import dataclass


class Severity(StrEnum):
    ERROR = "error"
    """Something does not work."""
    WARNING = "warning"
    """Something will stop working, or could not be checked."""
    NOTE = "note"
    """Worth knowing; nothing has to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem of one subject."""

    id: str
    """A stable name in kebab case, such as `quota-nearly-used`. Scripts depend on it."""
    severity: Severity
    subject: str
    """The object with the problem, such as `Node n1` or `quota of load balancers`."""
    what: str
    """The problem, in one sentence without a full stop."""
    reason: str = ""
    """Why it is a problem, or what caused it."""
    fix: str = ""
    """The command or edit that fixes it. A command can be pasted into a shell."""


NEARLY = 0.9
"""Share of a quota from which its usage is a finding."""


def quota_finding(what: str, used: int, limit: int, fix: str) -> Finding | None:
    """Returns a finding if a quota is used up or nearly so. `limit` below 0 means unlimited."""
    if limit < 0 or used < max(NEARLY * limit, 1):
        return None
    is_full = used >= limit
    return Finding(
        id="quota-used-up" if is_full else "quota-nearly-used",
        severity=Severity.ERROR if is_full else Severity.WARNING,
        subject=f"quota of {what}",
        what=f"{used} of {limit} are in use",
        reason="no more can be created" if is_full else "soon no more can be created",
        fix=fix,
    )
