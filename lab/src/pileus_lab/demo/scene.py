"""What there is to see of the demo, as frozen values; the view draws nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pileus.cloud.balancer import Effect


class Progress(StrEnum):
    WAITING = "waiting"
    UNDER_WAY = "under way"
    HELD = "ok"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    title: str
    progress: Progress = Progress.WAITING
    seconds: float = 0.0
    detail: str = ""
    """What was seen when it held; what was missing when it failed."""


class NodeState(StrEnum):
    BOOTING = "booting"
    TAINTED = "tainted"
    INITIALIZED = "initialized"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """An instance and its node, side by side."""

    name: str
    state: NodeState
    address: str = ""
    zone: str = ""
    type: str = ""
    ready: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerRow:
    name: str
    where: str
    members: tuple[str, ...] = ()
    answers: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often the demo's own visitor was answered, by member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    about: str
    reason: str
    message: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """One line of what happened: a change that was planned, or one that was seen."""

    at: float
    """Seconds since the demo began."""
    source: str
    effect: Effect
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Cluster and cloud at one moment."""

    nodes: tuple[NodeRow, ...] = ()
    balancers: tuple[BalancerRow, ...] = ()
    events: tuple[EventRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    elapsed: float
    steps: tuple[StepRow, ...] = ()
    sight: Sight = Sight()
    notes: tuple[Note, ...] = ()
    hints: tuple[str, ...] = ()
    """Commands for the user to try."""
