"""The cloud account of a simulation: a pure model, its past states, and its actual contents."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from pileus.clock import Clock
from pileus.cloud.connection import verify
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud
from pileus.controllers.service.annotations import PREFIX
from pileus_lab.simulation.clouds.deeds import CloudDeed
from pileus_lab.simulation.clouds.interface import Moment, SimulatedCloud
from pileus_lab.simulation.clouds.truth import Truth
from pileus_lab.simulation.environment.steps import CloudStep

REMEMBERED = 300
"""Past states that are kept for stale reads."""


class Account:
    """Each operation is performed at once and reported as a step."""

    def __init__(
        self,
        cloud: SimulatedCloud[Any, Any],
        clock: Clock,
        chance: Random,
        told: Callable[[CloudStep], None],
        *,
        is_lax: bool = False,
        name: str = "",
    ) -> None:
        """`is_lax`: whether the cloud accepts changes of volumes that managers must not make.

        `name`: how the managers' configuration calls the cloud; empty: as its provider does.
        """
        self._is_lax = is_lax
        self._name = name
        self.cloud = cloud
        self._clock = clock
        self._chance = chance
        self._told = told
        self._state: object = cloud.start()
        self._past = deque([(float("-inf"), self._state)], REMEMBERED)
        self._truth = Truth()
        self._told_of: object = None
        self._told_at = 0.0
        self.gone_since: dict[str, float] = {}
        """When machines were deleted, by provider ID."""
        self.last_created: object = None
        """The answer to the last creation of a volume."""
        self.offered = Cloud(name="unknown")
        """The capabilities of the provider, once the account is open."""

    @property
    def balancer_class(self) -> str:
        """The load balancer class that managers serve with this cloud."""
        return f"{PREFIX}{self._name or self.offered.name}"

    async def open(self) -> None:
        """Reads the capabilities of the provider. Raises `Misconfigured` if it cannot be used."""
        async with self.cloud.connect(self) as offered:
            verify(offered.name, offered)
            self.offered = offered

    async def call(self, operation: object) -> object:
        return self.perform("setup", operation)

    def perform(
        self,
        who: str,
        operation: object,
        *,
        staleness: float = 0.0,
        at_work: float = 0.0,
        doom: str = "",
        is_shuffled: bool = False,
    ) -> object:
        """Raises `CloudError`; then nothing has changed."""
        moment = Moment(self.now(), self._chance, at_work, doom, is_shuffled, self._is_lax)
        if not self.cloud.asked(operation).writes:
            return self.cloud.step(self._as_of(moment.now - staleness), operation, moment)[1]
        after, answer = self.cloud.step(self._state, operation, moment)
        if after != self._state:
            before = self.truth()
            self._state = after
            self._past.append((moment.now, after))
            self._report(CloudStep(who, operation, before, self.truth()))
        return answer

    def attempt(self, who: str, operation: object) -> None:
        """Like `perform`, but ignores errors."""
        try:
            self.perform(who, operation)
        except CloudError:
            return

    def do(self, who: str, deed: CloudDeed) -> None:
        """Performs a deed if this cloud supports it."""
        operation = self.cloud.operation(self._state, deed)
        if operation is not None:
            self.attempt(who, operation)

    def truth(self) -> Truth:
        """The actual contents now; cached until something changes or time passes."""
        state, now = self._state, self.now()
        if state is not self._told_of or now != self._told_at:
            self._truth = self.cloud.truth(state, now)
            self._told_of, self._told_at = state, now
        return self._truth

    def now(self) -> float:
        return self._clock.now().timestamp()

    def _report(self, step: CloudStep) -> None:
        if step.after.machines is not step.before.machines:
            there = {one.provider_id for one in step.after.machines}
            gone = (one for one in step.before.machines if one.provider_id not in there)
            self.gone_since |= {one.provider_id: self.now() for one in gone}
        self._told(step)

    def _as_of(self, when: float) -> object:
        return next((state for since, state in reversed(self._past) if since <= when), self._state)
