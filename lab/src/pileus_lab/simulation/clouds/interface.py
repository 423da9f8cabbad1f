"""What a cloud needs to be simulated: a pure model, and its provider.

    provider ──operation──▶ step (pure) ──▶ state, answer    one at a time, each at once
    users ─────deed───────▶ operation                        done directly, without a manager
    state ─────────────────▶ truth                           for kubelets, users and invariants

Connections, faults, past states and all checks are added by the simulation.
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
    """The only way from a provider to its cloud: faults are injected here."""

    async def call(self, operation: Any) -> Any:  # noqa: ANN401 -- each cloud's own types
        """Performs one operation. Raises `CloudError`."""
        ...


@dataclass(frozen=True, slots=True)
class Moment:
    """What a step may use besides the state."""

    now: float
    """Seconds since the epoch."""
    chance: Random
    at_work: float = 0.0
    """Extra seconds for which a change stays pending, if the cloud supports it."""
    doom: str = ""
    """Why changes that are accepted now fail later; empty: they do not."""
    is_shuffled: bool = False
    """Whether the addresses of machines are listed in another order, if the cloud supports it."""
    is_lax: bool = False
    """Whether volumes may be attached to several machines, and deleted while they are attached, if
    the cloud supports it: then only the manager prevents it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An operation of the cloud."""

    name: str
    """`capability.method`, such as `balancers.create`: faults are counted by capability."""
    writes: bool
    what: str = ""
    """What a write asks for: two that ask for the same count as one that is repeated. Empty: the
    text of the operation, if that shows all of it."""
    shared: str = ""
    """The object of a write that several Services or routes change. Changes of it that the cloud
    itself refuses count together: they must not refuse each other. Empty: none."""
    continues: bool = False
    """Whether a read is for a further page of a list that a real cloud would return in one: pages
    of the simulated one may be shorter than its provider declares, so that there are several."""


class SimulatedCloud(Protocol[StateT, OperationT]):
    """The cloud of one seed. States are frozen values: stale reads are shown old ones."""

    impossible_address: str
    """An address that cannot be requested for a balancer. Empty: no Service requests an address."""

    gives_free_addresses: bool
    """Whether any Service gets the address that it requests if nothing has it. False: at most
    those addresses that an operator reserved for it."""

    shares_by: str
    """The annotation by which a Service names the balancer of another one, which it then uses, too.
    Empty: no balancer is shared."""

    annotations: Sequence[tuple[str, str]]
    """Annotations on Services for this cloud: valid, misspelt, meaningless."""

    def connect(self, api: Api) -> AbstractAsyncContextManager[Cloud]:
        """The provider under test. It must use only `api` to reach the cloud."""
        ...

    def start(self) -> StateT:
        """The state of an empty account."""
        ...

    def step(self, state: StateT, operation: OperationT, moment: Moment) -> tuple[StateT, object]:
        """Returns the next state and the answer. Pure except for `moment.chance`.

        Raises `CloudError`; then nothing has changed.
        """
        ...

    def asked(self, operation: OperationT) -> Asked: ...

    def items(self, answer: object) -> Sequence[object] | None:
        """Returns the items if the answer is a list; else None."""
        ...

    def page(self, answer: object, items: Sequence[object], *, is_whole: bool) -> object:
        """Returns the same list with only these items, marked as complete or not.

        Raises `CloudError` if a client of this cloud would get an error for an incomplete list.
        """
        ...

    def operation(self, state: StateT, deed: CloudDeed) -> OperationT | None:
        """Returns the operation for a deed; None: not possible in this cloud, and skipped."""
        ...

    def truth(self, state: StateT, now: float) -> Truth:
        """Returns everything in the account at that time.

        Unchanged parts may be the same objects.
        """
        ...


MakeCloud = Callable[[Random], SimulatedCloud[Any, Any]]
"""Creates the cloud of one seed; properties such as its speed are drawn."""
