"""Holds every step of a world against the invariants, and keeps the first that breaks one."""

from collections.abc import Callable
from dataclasses import dataclass

from pileus.apiserver.tree import text
from pileus.simulation.invariants.always import ALWAYS
from pileus.simulation.invariants.facts import Facts, is_manager
from pileus.simulation.invariants.quiet import QUIET, is_at_rest
from pileus.simulation.stage.steps import CloudStep, ObjectStep, Sending, Step
from pileus.simulation.trace import Trace


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold."""

    invariant: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.invariant} at second {self.at:.3f}: {self.text}"


class Judge:
    """The first violation is kept; what comes after it does not count."""

    def __init__(self, trace: Trace, now: Callable[[], float]) -> None:
        self._trace = trace
        self._now = now
        self._facts: Facts | None = None
        self.violation: Violation | None = None
        self.writes = 0
        """How many writes managers have sent, leases and events left out."""
        self.last_write = ""

    def begin(self, facts: Facts) -> None:
        """From now on steps are judged, by these facts."""
        self._facts = facts

    def see(self, step: Step) -> None:
        if self._facts is None or self.violation is not None:
            return
        for name, check in ALWAYS.items():
            wrong = check(self._facts, step)
            if wrong is not None:
                self.blame(name, wrong)
        self._facts.learn(step)
        self._record(step)

    def misled(self) -> None:
        """Managers are shown something untrue, and cannot know it."""
        if self._facts is not None:
            self._facts.misled_at = self._now()

    def meddled(self) -> None:
        """Somebody takes the lease from its holder, who cannot know it yet."""
        if self._facts is not None:
            holder = self._facts.cluster.leader()
            self._facts.robbed = (holder, self._now()) if holder else self._facts.robbed

    def first_wrong(self) -> tuple[str, str] | None:
        """Of what must hold in the end: the first that does not hold yet."""
        for name, check in QUIET.items() if self._facts else ():
            for wrong in check(self._facts) if self._facts else ():
                return name, wrong
        return None

    def is_at_rest(self) -> bool:
        return self._facts is not None and is_at_rest(self._facts)

    def blame(self, invariant: str, why: str) -> None:
        if self.violation is None:
            self.violation = Violation(invariant, self._now(), why)
            self._trace.note("judge", str(self.violation))
            self._trace.close()

    def _record(self, step: Step) -> None:
        if isinstance(step, Sending):
            self.writes += 1
            self.last_write = f"{step.identity}: {step.what}"
        elif not is_manager(step.who):
            self._trace.note(step.who, _told(step))


def _told(step: ObjectStep | CloudStep) -> str:
    if isinstance(step, CloudStep):
        return f"cloud {step.operation}"
    name = text(step.after or step.before, "metadata", "name")
    how = "created" if step.before is None else "deleted" if step.after is None else "changed"
    return f"{step.resource}/{name} {how}"
