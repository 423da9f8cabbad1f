"""The single steps of a simulated world: what invariants look at."""

from dataclasses import dataclass

from pileus.apiserver.tree import Obj
from pileus.simulation.clouds.truth import Truth


@dataclass(frozen=True, slots=True)
class ObjectStep:
    """An object of the cluster came, changed or went."""

    who: str
    resource: str
    before: Obj | None
    after: Obj | None


@dataclass(frozen=True, slots=True)
class CloudStep:
    """The cloud changed."""

    who: str
    operation: object
    before: Truth
    after: Truth


@dataclass(frozen=True, slots=True)
class Sending:
    """A manager sends a write, to the cluster or to the cloud."""

    who: str
    identity: str
    what: str


Step = ObjectStep | CloudStep | Sending
