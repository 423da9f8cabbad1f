"""What a controller declares about itself, and what it gets when it is built.

A controller is a package with a module `descriptor.py` that has a `DESCRIPTOR`. The manager lists
the descriptors (`app/registry.py`) and knows nothing else about any controller.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pileus.dataclass import dataclass

if TYPE_CHECKING:  # help needs the names only, and must start quickly
    from random import Random

    from pileus.clock import Clock
    from pileus.fence import Fence
    from pileus.kube.client import Client
    from pileus.kube.model.meta import Resource
    from pileus.objects.cloud_scope import CloudScope
    from pileus.objects.preview import Planned, Scope, Trouble
    from pileus.objects.rights import Right
    from pileus.runtime.events import Recorder
    from pileus.runtime.informers import Informers
    from pileus.telemetry.metrics import Metrics

S = TypeVar("S")

PASS_SECONDS = 30
"""How long a pass may wait for the client's request rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerNames:
    """The names of one controller. Dashboards, RBAC rules and alerts depend on them."""

    canonical: str
    """In `--controllers`, in health checks and in the leader migration file."""
    alias: str
    """The older name that `--controllers` accepts as well."""
    event_source: str
    metric: str
    """The `name` label of `running_managed_controllers`; empty: not counted."""
    identity: str
    """Service account, and suffix of the user agent."""
    off_by_default: bool = False
    """Whether `*` does not include it."""


class RunningController(Protocol):
    """A controller that has been built."""

    async def run(self) -> None:
        """Work until cancelled. Called at most once."""
        ...

    async def preview(self, scope: "Scope") -> "Sequence[Planned | Trouble]":
        """Returns what the controller would do now. Needs running informers; writes nothing."""
        ...

    def stuck(self, limit: float) -> str | None:
        """Returns a message for the liveness check if work has run for more than `limit` s."""
        ...

    def failing(self) -> str | None:
        """Returns a message if periodic work keeps failing. A restart would not fix it."""
        ...


@dataclass(frozen=True, slots=True)
class Skipped:
    """A controller that does not run in this process, and why."""

    why: str
    is_news: bool = True
    """False: it was not asked for, so the log has no warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerContext:
    """What a controller may use. Its writes, to cluster and cloud, stop with the fence."""

    names: ControllerNames
    scope: "CloudScope"
    client: "Client"
    """With the controller's identity, behind the fence."""
    events: "Recorder"
    informers: "Informers"
    fence: "Fence"
    metrics: "Metrics"
    clock: "Clock"
    random: "Random"
    cluster_id: Callable[[], Awaitable[str]]
    """Returns the cluster's ID for tags in the cloud, never a guess. Read once per process.

    A controller waits until it can be read; a plan gets `ClusterIdUnknown` instead."""
    request_rate: float | None = None
    """Requests per second that the client may send; None: not limited by a flag."""

    def scoped(self, name: str) -> str:
        """Returns the name of a queue, round or health check in this controller's cloud."""
        return self.scope.scoped(name)

    def affordable(self, workers: int) -> int:
        """Returns how many of `workers` the request rate can keep busy."""
        if self.request_rate is None:
            return workers
        return min(workers, max(1, int(self.request_rate * PASS_SECONDS)))


def _no_rights(_settings: object) -> "tuple[Right, ...]":
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerDescriptor(Generic[S]):
    """Everything the manager knows about a controller."""

    names: ControllerNames
    settings: type[S]
    """A frozen dataclass; every field has a default or a flag."""
    build: Callable[[ControllerContext, S], RunningController | Skipped]
    """Builds the controller, or says why it does not run here. Starts nothing."""
    kinds: "tuple[Resource[Any], ...]" = ()
    """What it watches with shared informers. A change of these can change its plan."""
    rights: "Callable[[S], tuple[Right, ...]]" = _no_rights
    """Returns what its client needs in the cluster, beside the informers of `kinds`.

    Empty if the settings keep the controller from running."""
    per_cloud: bool = True
    """Whether it runs once per cloud; otherwise once per process."""
    stuck_after: float = 600.0
    """Seconds of one pass after which the process counts as unhealthy."""
