"""Settings of the cloud-node controller."""

from enum import StrEnum

from pileus.dataclass import dataclass
from pileus.settings.checks import at_least_one, positive
from pileus.settings.declare import choice, optional, refuse_invalid, setting, switch
from pileus.settings.kinds import DURATION, INT32

_SECTION = "Cloud-node-controller"
STATUS_WORKERS = 100
"""Nodes whose addresses are updated at a time, unless the user gave a number."""


class IdentityRule(StrEnum):
    """The rule of `--node-identity` by which a node with a provider ID is accepted."""

    NAME = "name"
    PROVIDER_ID = "provider-id"
    """As in the Go framework."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """How many nodes are initialized at a time, and how often they are updated."""

    workers: int | None = optional(
        "concurrent-node-syncs",
        INT32,
        1,
        "Maximum number of nodes initialized at a time; not set: 250.",
        details="Nodes that are created together share their lookups in the cloud.",
        section=_SECTION,
        check=at_least_one,
        configz="NodeController.ConcurrentNodeSyncs",
    )
    """None: chosen by the controller."""
    concurrent_status_updates: int = setting(
        "concurrent-node-status-updates",
        INT32,
        0,
        "Nodes whose addresses are updated at a time; 0: --concurrent-node-syncs if that is "
        "set, else 100.",
        section=_SECTION,
    )
    refresh_period: float = setting(
        "node-status-update-frequency",
        DURATION,
        300.0,
        "Pause between two updates of the nodes' addresses.",
        section="Misc",
        check=positive,
        configz="NodeStatusUpdateFrequency",
    )
    sync_labels: bool = switch(
        "node-label-sync",
        "Keep zone, region, instance type and provider labels of nodes current; otherwise "
        "they are set once.",
        section="Pileus",
    )

    identity: IdentityRule = choice(
        "node-identity",
        IdentityRule.NAME,
        "Nodes that may claim a machine by its provider ID: 'name' (with the name of the machine) "
        "or 'provider-id' (all).",
        details=(
            "A kubelet can create its node with any provider ID, but only with its own name. "
            "provider-id: as in the Go program. Nodes that exist when the manager starts are not "
            "checked."
        ),
        section="Pileus",
    )

    def __post_init__(self) -> None:
        refuse_invalid(self)

    @property
    def status_workers(self) -> int:
        """The number of nodes whose addresses are updated at a time."""
        asked = self.concurrent_status_updates
        return asked if asked > 0 else self.workers or STATUS_WORKERS

    def configz(self) -> dict[str, object]:
        asked = self.concurrent_status_updates
        shown = asked if asked > 0 else self.workers or 1
        return {"NodeController.ConcurrentNodeStatusUpdates": shown}
