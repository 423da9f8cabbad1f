"""Settings of the cloud-node-lifecycle controller."""

import math
from enum import StrEnum

from pileus.dataclass import dataclass
from pileus.settings.checks import at_least_one, not_negative, positive
from pileus.settings.declare import choice, nested, optional, refuse_invalid, setting, switch
from pileus.settings.flags import Flag
from pileus.settings.kinds import DURATION, FLOAT, INT32

_SECTION, _OURS = "Cloud-node-lifecycle-controller", "Pileus: node lifecycle"
WORKERS = 100
"""Nodes written at a time, unless the user gave a number."""
ROUNDING = 1e-9
"""Keeps a fraction of a node count from being rounded down by floating-point errors."""


class Policy(StrEnum):
    """What happens to a node that has no machine."""

    GUARDED = "guarded"
    IMMEDIATE = "immediate"
    """As in the Go framework: the first answer counts, without a limit."""
    TAINT = "taint"
    """The node is kept without new pods, and reported."""
    REPORT = "report"
    """The node is kept, and reported."""


def _fraction(flag: Flag[float], value: float) -> str | None:
    if 0 < value <= 1:
        return None
    return f"{flag.name} must be above 0 and at most 1, but got {value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """When it is safe to delete or taint a node."""

    grace: float = setting(
        "node-deletion-grace",
        DURATION,
        30.0,
        "Time between the check that finds no machine and the one that confirms it.",
        section=_OURS,
        check=not_negative,
    )
    """Seconds between the first answer and the start of the check that confirms it."""
    fraction: float = setting(
        "node-deletion-max-fraction",
        FLOAT,
        0.2,
        "Fraction of nodes that may lose their machine or be deleted within "
        "--node-deletion-window; one always may.",
        details="Beyond it no node is deleted.",
        section=_OURS,
        check=_fraction,
    )
    window: float = setting(
        "node-deletion-window",
        DURATION,
        600.0,
        "Time for which a deletion counts for --node-deletion-max-fraction.",
        section=_OURS,
        check=positive,
    )
    """Seconds."""
    unidentified_grace: float = setting(
        "node-deletion-unidentified-grace",
        DURATION,
        1800.0,
        "How long the cloud must deny the machine of a not-ready node without a provider ID before "
        "the node is deleted; 0 never deletes it.",
        section=_OURS,
        check=not_negative,
    )
    """Seconds without interruption; 0: never."""

    def limit(self, nodes: int) -> int:
        """Returns how many of `nodes` may be acted on within a window."""
        return max(1, math.floor(self.fraction * nodes + ROUNDING))


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleSettings:
    """How often nodes are checked, and what happens to those without a machine."""

    period: float = setting(
        "node-monitor-period",
        DURATION,
        5.0,
        "Pause between two checks of all nodes.",
        section=_SECTION,
        check=positive,
        configz="NodeLifecycleController.NodeMonitorPeriod",
    )
    workers: int | None = optional(
        "concurrent-node-lifecycle-syncs",
        INT32,
        1,
        "Maximum number of nodes written at a time; not set: chosen by the controller.",
        section=_SECTION,
        check=at_least_one,
        configz="NodeLifecycleController.ConcurrentNodeLifecycleSyncs",
    )
    policy: Policy = choice(
        "node-deletion-policy",
        Policy.GUARDED,
        "Action for a node that is not ready and has no machine: guarded, immediate, taint or "
        "report.",
        details=(
            "guarded: deleted after a second check, unless too many machines are missing at "
            "once. immediate: deleted at the first check, like the Go program. taint: kept "
            "without new pods. report: kept."
        ),
        section=_OURS,
    )
    rules: Rules = nested(Rules)
    takes_out_of_service: bool = switch(
        "node-out-of-service-taint",
        "Add the taint node.kubernetes.io/out-of-service to nodes whose machine is confirmed "
        "to be stopped.",
        details=(
            "The machine must be reported as stopped twice, --node-deletion-grace apart. Pods "
            "and volumes then move to other nodes."
        ),
        section=_OURS,
    )

    def __post_init__(self) -> None:
        refuse_invalid(self)

    @property
    def concurrency(self) -> int:
        """The number of nodes written at a time."""
        return self.workers or WORKERS
