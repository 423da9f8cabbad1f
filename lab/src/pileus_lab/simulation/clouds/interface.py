"""What a cloud must be able to do to be simulated: a pure model, and its provider in front of it.

    provider ──operation──▶ step (pure) ──▶ state, answer    one at a time, each at once
    people ────deed───────▶ operation                        what is done past all managers
    state ─────────────────▶ truth                           for kubelets, people and invariants

Wires, faults, the past of the state and all judgement are put around it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, TypeVar

from pileus.cloud.interface import Cloud
from pileus_lab.simulation.clouds.deeds import CloudDeed
from pileus_lab.simulation.clouds.truth import Truth

StateT = TypeVar("StateT")
OperationT = TypeVar("OperationT")


class Api(Protocol):
    """The one way from a provider to its cloud: what is lost, late or wrong happens here."""

    async def call(self, operation: Any) -> Any:  # noqa: ANN401 -- each cloud's own types
        """Carry out one operation. Errors: `CloudError`."""
        ...


@dataclass(frozen=True, slots=True)
class Moment:
    """What a step may know beside the state."""

    now: float
    """Seconds since the epoch."""
    chance: Random
    at_work: float = 0.0
    """Seconds for which what is changed now stays pending beyond the usual, where that can be."""
    doom: str = ""
    """Why what is accepted now fails when it is no longer pending; empty: it does not."""
    is_shuffled: bool = False
    """Whether the addresses of machines are listed in another order, where that can be."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What an operation is."""

    name: str
    """`capability.method`, as `balancers.create`: faults are counted by capability."""
    writes: bool


class SimulatedCloud(Protocol[StateT, OperationT]):
    """One cloud of one seed. States are frozen values: old ones are shown to who reads stale."""

    impossible_address: str
    """An address that no balancer gets; who asks for it is refused. Empty: nobody asks for any."""

    annotations: Sequence[tuple[str, str]]
    """What people write on Services for this cloud: sensible, misspelt, without meaning."""

    def connect(self, api: Api) -> AbstractAsyncContextManager[Cloud]:
        """The provider under test. All that it learns and does goes through `api`."""
        ...

    def start(self) -> StateT:
        """The state of an empty account."""
        ...

    def step(self, state: StateT, operation: OperationT, moment: Moment) -> tuple[StateT, object]:
        """The state after it, and the answer. Pure but for `moment.chance`.

        Errors: `CloudError`; then nothing has happened.
        """
        ...

    def asked(self, operation: OperationT) -> Asked: ...

    def items(self, answer: object) -> Sequence[object] | None:
        """Those of a list; None if it is none."""
        ...

    def page(self, answer: object, items: Sequence[object], *, is_whole: bool) -> object:
        """The same list with these items alone, and the claim that they are all, or not.

        Errors: `CloudError`, where a client of this cloud would see a broken list so.
        """
        ...

    def operation(self, state: StateT, deed: CloudDeed) -> OperationT | None:
        """How people do it, as things stand; None: here they cannot, and it is not done."""
        ...

    def truth(self, state: StateT, now: float) -> Truth:
        """All that is in the account at that time. What stays the same may be the same object."""
        ...


MakeCloud = Callable[[Random], SimulatedCloud[Any, Any]]
"""Makes the cloud of one seed; what may differ between clouds, as how slow they are, is drawn."""
