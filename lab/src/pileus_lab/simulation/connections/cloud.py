"""A manager's connection to the cloud, with injected faults."""

import asyncio

from pileus.cloud.errors import (
    CloudError,
    Conflict,
    QuotaExceeded,
    Throttled,
    Unauthorized,
    Unavailable,
)
from pileus_lab.simulation.connections.process import ConnectionContext, Life
from pileus_lab.simulation.environment.steps import Answer, Call, Channel
from pileus_lab.simulation.kinds import SIMULATED, FaultKind, Place
from pileus_lab.simulation.schedule import Strike

READS_ONLY = frozenset({
    FaultKind.CLOUD_STALE,
    FaultKind.CLOUD_PARTIAL,
    FaultKind.CLOUD_EMPTY,
    FaultKind.CLOUD_SHUFFLED,
})
WRITES_ONLY = frozenset({
    FaultKind.CLOUD_UNHEARD,
    FaultKind.CLOUD_AFTERWARDS,
    FaultKind.CLOUD_QUOTA,
    FaultKind.CLOUD_BUSY,
    FaultKind.CLOUD_SLOW,
    FaultKind.CLOUD_FAILS,
    FaultKind.CLOUD_IGNORED,
    FaultKind.CLOUD_MIXED,
})
IGNORABLE = frozenset({"volumes.detach", "volumes.delete"})
CREATION = "volumes.create"
SLOWNESS = 30.0
"""How many times longer than other faults a slow cloud takes: up to minutes."""


UNTRUE = frozenset({FaultKind.CLOUD_STALE, FaultKind.CLOUD_EMPTY})
KEPT = 0.5
"""Share of a list that is left if it is incomplete."""


class CloudWire:
    """The API that the provider calls."""

    def __init__(self, life: Life, around: ConnectionContext) -> None:
        self._life = life
        self._around = around

    async def call(self, operation: object) -> object:
        if self._life.is_over:
            raise Unavailable("this process has ended")
        journey = _Journey(operation, self._life, self._around)
        journey.begin()
        return await journey.answer


class _Journey:
    """One call to the cloud and back."""

    def __init__(self, operation: object, life: Life, around: ConnectionContext) -> None:
        self._operation = operation
        self._asked = around.account.cloud.asked(operation)
        self._text = self._asked.what or str(operation)
        self._life = life
        self._around = around
        self.answer: asyncio.Future[object] = around.loop.create_future()
        spared = READS_ONLY if self._asked.writes else WRITES_ONLY
        if self._asked.name not in IGNORABLE:
            spared |= {FaultKind.CLOUD_IGNORED}
        if self._asked.name != CREATION:
            spared |= {FaultKind.CLOUD_MIXED}
        capability = self._asked.name.partition(".")[0]
        self._strike = around.weather.strike(
            Place.CLOUD, f"cloud {capability}", may=lambda kind: kind not in spared
        )
        self._call = Call(
            who=life.name,
            identity=life.identity,
            at=around.loop.now(),
            channel=Channel.CLOUD_WRITE if self._asked.writes else Channel.CLOUD_READ,
            agent=f"cloud {capability}",
            what=self._text if self._asked.writes else self._asked.name,
            shared=self._asked.shared,
            continues=self._asked.continues,
        )

    def begin(self) -> None:
        self._around.told(self._call)
        if self._call.is_work and self._life.is_struck_before_write() and self._life.is_over:
            self._note("never left")
            return
        late = self._strike.seconds if self._strike and self._is(FaultKind.CLOUD_LATE) else 0.0
        self._around.later(self._around.latency() + late, self._arrive)

    def _arrive(self) -> None:
        refused = _refusal(self._strike)
        if refused is not None:
            self._fail(refused)
            if self._strike and self._is(FaultKind.CLOUD_AFTERWARDS):
                self._around.later(self._strike.seconds, self._perform_unheard)
            return
        try:
            answer = self._spoilt(self._perform())
        except CloudError as error:
            self._fail(error)
            return
        struck = self._call.is_work and self._life.is_struck_after_write()
        if struck and self._life.is_over:
            self._note("done, unheard")
        elif self._is(FaultKind.CLOUD_UNHEARD):
            self._fail(Unavailable(f"{SIMULATED}the answer was lost"))
        else:
            self._note(self._told(answer))
            self._around.later(self._around.latency(), self._hear, answer)

    def _perform(self) -> object:
        if self._is(FaultKind.CLOUD_IGNORED):
            return None
        seconds = self._strike.seconds if self._strike else 0.0
        is_slow, fails = self._is(FaultKind.CLOUD_SLOW), self._is(FaultKind.CLOUD_FAILS)
        return self._around.account.perform(
            self._life.name,
            self._operation,
            staleness=seconds if self._is(FaultKind.CLOUD_STALE) else 0.0,
            at_work=seconds * SLOWNESS if is_slow else seconds if fails else 0.0,
            doom=f"{SIMULATED}{FaultKind.CLOUD_FAILS}" if fails else "",
            is_shuffled=self._is(FaultKind.CLOUD_SHUFFLED),
        )

    def _spoilt(self, answer: object) -> object:
        """Returns a list that may be empty or incomplete, or another volume than was created.

        Raises errors of the cloud for such lists.
        """
        cloud = self._around.account.cloud
        if self._asked.name == CREATION:
            before = self._around.account.last_created
            self._around.account.last_created = answer
            return before if before is not None and self._is(FaultKind.CLOUD_MIXED) else answer
        items = cloud.items(answer)
        if items is not None and self._is(FaultKind.CLOUD_EMPTY):
            return cloud.page(answer, (), is_whole=True)
        if items is not None and self._is(FaultKind.CLOUD_PARTIAL):
            kept = [item for item in items if self._around.chance.random() < KEPT]
            return cloud.page(answer, kept, is_whole=False)
        return answer

    def _told(self, answer: object) -> str:
        items = self._around.account.cloud.items(answer)
        if items is None:
            return "done"
        return f"{len(items)} of {'more' if self._is(FaultKind.CLOUD_PARTIAL) else 'all'}"

    def _perform_unheard(self) -> None:
        self._note("has its effect after all")
        self._around.account.attempt(self._life.name, self._operation)

    def _hear(self, answer: object) -> None:
        is_untrue = self._strike is not None and self._strike.kind in UNTRUE
        self._around.told(Answer(self._call, is_untrue=is_untrue))
        if not self.answer.done():
            self.answer.set_result(answer)

    def _fail(self, error: CloudError) -> None:
        self._note(f"{type(error).__name__}: {error}")
        patience = error.retry_after if isinstance(error, Throttled) else None
        is_injected = self._strike is not None
        self._around.told(
            Answer(self._call, type(error).__name__, patience, is_injected=is_injected)
        )
        if not self.answer.done():
            self.answer.set_exception(error)

    def _is(self, kind: FaultKind) -> bool:
        return self._strike is not None and self._strike.kind is kind

    def _note(self, how: str) -> None:
        fault = f" [{self._strike.kind}]" if self._strike else ""
        self._around.trace.note(self._life.name, f"cloud {self._text} {how}{fault}")


def _refusal(strike: Strike | None) -> CloudError | None:
    """Returns the error that the cloud answers; None: it performs the call."""
    told = f"{SIMULATED}{strike.kind}" if strike else ""
    match strike and strike.kind:
        case FaultKind.CLOUD_LOST | FaultKind.CLOUD_AFTERWARDS:
            return Unavailable(told)
        case FaultKind.CLOUD_THROTTLED:
            return Throttled(told, retry_after=strike.seconds if strike else 0.0)
        case FaultKind.CLOUD_FORBIDDEN:
            return Unauthorized(told)
        case FaultKind.CLOUD_QUOTA:
            return QuotaExceeded(told)
        case FaultKind.CLOUD_BUSY:
            return Conflict(told)
        case _:
            return None
