"""The cloud account of a simulation: the local cloud's pure model, its past, and nothing else."""

from collections import deque
from collections.abc import Callable
from random import Random

from pileus.clock import Clock
from pileus.cloud.errors import CloudError
from pileus.providers.local.model.machines import as_of
from pileus.providers.local.model.operation import A, Operation
from pileus.providers.local.model.records import Machine
from pileus.providers.local.model.state import Moment, Settings, State
from pileus.simulation.stage.steps import CloudStep

REMEMBERED = 300
"""States kept for those who are shown an old one."""


class Account:
    """Guarantees: each operation is carried out at once, and told while it happens."""

    def __init__(
        self, clock: Clock, chance: Random, settings: Settings, told: Callable[[CloudStep], None]
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._settings = settings
        self._told = told
        self._past: deque[tuple[float, State]] = deque([(float("-inf"), State())], REMEMBERED)
        self.state = State()
        self.gone_since: dict[str, float] = {}
        """When machines were deleted, by their ids."""

    def perform(self, who: str, operation: Operation[A], *, staleness: float = 0.0) -> A:
        """Errors: `CloudError`; then nothing has happened."""
        moment = Moment(self._clock.now().timestamp(), self._chance, self._settings)
        if not operation.WRITES:
            return operation.step(self._as_of(moment.now - staleness), moment)[1]
        before = self.state
        after, answer = operation.step(before, moment)
        if after != before:
            self.state = after
            self._past.append((moment.now, after))
            for machine in before.machines:
                if machine not in after.machines:
                    self.gone_since[machine] = moment.now
            self._told(CloudStep(who, operation, before, after))
        return answer

    def attempt(self, who: str, operation: Operation[A]) -> A | None:
        """As `perform`, for those who do not care whether it works."""
        try:
            return self.perform(who, operation)
        except CloudError:
            return None

    def machines(self) -> list[Machine]:
        """All, as they are now, in the order of their making."""
        now = self._clock.now().timestamp()
        return [as_of(one, now) for one in self.state.machines.values()]

    def now(self) -> float:
        return self._clock.now().timestamp()

    def _as_of(self, when: float) -> State:
        return next((state for since, state in reversed(self._past) if since <= when), self.state)
