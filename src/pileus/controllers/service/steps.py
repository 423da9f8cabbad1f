"""The steps of a pass, as values.

`plan` returns them, `reconciler` performs them and `preview` shows them. Events are fields of the
steps that they announce.
"""

from pileus.cloud.balancer import Change, Wish
from pileus.cloud.errors import CloudError
from pileus.controllers.service.events import Event
from pileus.controllers.service.notes import Attempt
from pileus.controllers.service.observation import Fallback
from pileus.controllers.service.status import Write
from pileus.dataclass import dataclass

SECOND_CHECK_OF_NODES = 5.0
"""Seconds between the first and the second check of the nodes, before many members are removed."""


@dataclass(frozen=True, slots=True)
class CheckBalancer:
    """Observe the load balancer. Brings a new observation."""

    desired: Wish
    full: bool
    fallback: Fallback | None = None
    ignored: tuple[str, ...] = ()
    """Annotations that the provider does not know."""


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Brings a new observation of the Service."""

    write: Write


@dataclass(frozen=True, slots=True)
class KeepMembers:
    """Keep all members until a second check of the nodes: too many would be removed."""

    warning: Event | None
    seconds: float = SECOND_CHECK_OF_NODES


@dataclass(frozen=True, slots=True)
class CheckNodes:
    """List the nodes from the API server before many members are removed. A new observation."""


@dataclass(frozen=True, slots=True)
class ApplyChanges:
    """Change the load balancer. Brings a new observation."""

    changes: tuple[Change, ...]
    attempt: Attempt
    before: Event | None = None
    after: Event | None = None
    is_drift: bool = False
    """Whether it repairs a load balancer that matched the same desired state before."""
    is_first: bool = True
    """Whether it is the first round of changes in this pass."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The cloud is working on the load balancer: check again later."""

    asked: float | None
    """Seconds, if the cloud asked for them."""
    write: Write
    """The condition, written once it takes long."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Write addresses and condition to the Service."""

    write: Write
    new_addresses: bool = False
    """Whether the addresses are not known before the changes in the cloud are made."""


@dataclass(frozen=True, slots=True)
class Settle:
    """The load balancer matches the desired state. Ends the pass."""

    desired: Wish
    after: Event | None
    warning: Event | None
    seconds: float | None = None
    """Seconds until the next check, if the cloud asked for them."""


@dataclass(frozen=True, slots=True)
class CheckAgain:
    """Check once more before a load balancer or a Service is believed not to exist."""

    seconds: float
    is_missing: bool
    """Whether the load balancer is missing; else it or the Service was deleted just now."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove everything of ours from the Service and forget it. Ends the pass."""

    write: Write
    after: Event | None


@dataclass(frozen=True, slots=True)
class ConfirmDeletion:
    """Ask the API server whether the Service is deleted. Brings a new observation."""


@dataclass(frozen=True, slots=True)
class KeepAsOrphans:
    """Too many Services seem to have vanished: keep their load balancers as orphans.

    Ends the pass, unless the API server lists most of the Services.
    """

    count: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing is left of a deleted Service. Ends the pass."""

    after: Event | None


@dataclass(frozen=True, slots=True)
class WaitForFormer:
    """A deleted Service of the same name is cleaned up first: some clouds identify by name."""

    write: Write
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """Fail with this error: it is reported on the Service, and the pass is retried."""

    error: CloudError
    write: Write
    """The condition that reports it."""


Step = (
    CheckBalancer
    | AddFinalizer
    | KeepMembers
    | CheckNodes
    | ApplyChanges
    | Wait
    | Publish
    | Settle
    | CheckAgain
    | RemoveFinalizer
    | ConfirmDeletion
    | KeepAsOrphans
    | Forget
    | WaitForFormer
    | Report
)
Plan = tuple[Step, ...]
