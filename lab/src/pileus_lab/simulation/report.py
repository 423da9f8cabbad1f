"""What is kept of one seed when all else has been cleared away."""

from collections import Counter
from dataclasses import dataclass, field

from pileus_lab.simulation.kinds import DeedKind, FaultKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One seed, and what came of it."""

    seed: int
    violation: str = ""
    """Empty: everything held."""
    digest: str = ""
    struck: Counter[tuple[FaultKind, str]] = field(default_factory=Counter[tuple[FaultKind, str]])
    done: Counter[DeedKind] = field(default_factory=Counter[DeedKind])
    virtual_seconds: float = 0.0
    seconds: float = 0.0
    """Of one core; what others do on it does not count."""
