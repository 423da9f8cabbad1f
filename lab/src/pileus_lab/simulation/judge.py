"""Checks every step of a world against the invariants and keeps the first violation."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from pileus_lab.apiserver.tree import text
from pileus_lab.simulation.environment.steps import (
    Answer,
    Call,
    Channel,
    CloudStep,
    HostStep,
    ObjectStep,
    Step,
    Trace,
)
from pileus_lab.simulation.invariants.always import breaches
from pileus_lab.simulation.invariants.eventually import QUIET
from pileus_lab.simulation.invariants.facts import Facts
from pileus_lab.simulation.invariants.service_history import is_manager
from pileus_lab.simulation.invariants.steady_state import Spent, wasted

AT_REST = "a_quiet_world_is_left_alone"


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold."""

    invariant: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.invariant} at second {self.at:.3f}: {self.text}"


class Judge:
    """The first violation is kept; later ones are ignored."""

    def __init__(self, trace: Trace, now: Callable[[], float]) -> None:
        self._trace = trace
        self._now = now
        self._facts: Facts | None = None
        self.observers: list[Callable[[Step], None]] = []
        """Called with every step before it is checked."""
        self.violation: Violation | None = None
        self._calls: Counter[Channel] = Counter()
        self._accepted = 0
        self._last_write = ""

    def begin(self, facts: Facts) -> None:
        """From now on steps are checked, with these facts."""
        self._facts = facts

    def see(self, step: Step) -> None:
        for observe in self.observers:
            observe(step)
        if self._facts is None or self.violation is not None:
            return
        for name, wrong in breaches(self._facts, step):
            self.blame(name, wrong)
        if not isinstance(step, HostStep):
            self._facts.learn(step)
        self._record(step)

    def meddled(self) -> None:
        """A user takes the lease from its holder, which cannot know it yet."""
        if self._facts is not None:
            self._facts.robbed[self._facts.cluster.leader()] = self._now()

    def first_wrong(self) -> tuple[str, str] | None:
        """Returns the first final invariant that does not hold yet."""
        for name, check in QUIET.items() if self._facts else ():
            for wrong in check(self._facts) if self._facts else ():
                return name, wrong
        return None

    def spent(self, seconds: float = 0.0, before: Spent | None = None) -> Spent:
        """What managers have done so far; or in the last that many seconds."""
        calls, accepted = Counter(self._calls), self._accepted
        if before is not None:
            calls.subtract(before.calls)
            accepted -= before.accepted
        return Spent(seconds, calls, accepted, self._last_write)

    def check_for_waste(self, spent: Spent) -> None:
        for wrong in wasted(self._facts, spent) if self._facts else ():
            self.blame(AT_REST, wrong)

    def blame(self, invariant: str, why: str) -> None:
        if self.violation is None:
            self.violation = Violation(invariant, self._now(), why)
            self._trace.note("judge", str(self.violation))
            self._trace.close()

    def _record(self, step: Step) -> None:
        if isinstance(step, Call):
            self._calls[step.channel] += not step.continues
            if step.is_work or step.channel is Channel.EVENT:
                self._last_write = f"{step.identity}: {step.what}"
        elif isinstance(step, Answer):
            accepted = not step.trouble and step.call.channel is Channel.CLOUD_WRITE
            self._accepted += accepted
        elif isinstance(step, HostStep):
            about = f"{step.volume or 'a disk of the machine'} {step.event}"
            self._trace.note(step.machine, f"{about} {step.what}{step.wrong}")
        elif not is_manager(step.who):
            self._trace.note(step.who, _told(step))


def _told(step: ObjectStep | CloudStep) -> str:
    if isinstance(step, CloudStep):
        return f"cloud {step.operation}"
    name = text(step.after or step.before, "metadata", "name")
    how = "created" if step.before is None else "deleted" if step.after is None else "changed"
    return f"{step.resource}/{name} {how}"
