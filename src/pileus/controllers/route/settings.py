"""Settings of the route controller."""

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from pileus.dataclass import dataclass
from pileus.objects.ranges import Range, parse_ranges
from pileus.objects.settings import ClusterSettings
from pileus.settings.checks import positive
from pileus.settings.declare import choice, optional, shared, switch
from pileus.settings.feature_gates import WATCH_BASED_ROUTES, Gates
from pileus.settings.kinds import DURATION

if TYPE_CHECKING:
    from pileus.cloud.interface import Cloud

_SECTION = "Generic"
PERIOD, WATCHED_PERIOD = 10.0, 300.0
"""Seconds between two checks unless the user gave a period: alone, or besides node changes."""


class Ownership(StrEnum):
    """The rule of `--route-ownership` by which a route belongs to this cluster."""

    RECORDED = "recorded"
    CLUSTER_CIDR = "cluster-cidr"
    """The rule of the Go framework."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSettings:
    """Whether routes are managed, how often they are checked and which may be deleted."""

    enabled: bool = switch(
        "configure-cloud-routes",
        "Create a cloud route for each node's pod CIDR; false disables the route controller.",
        default=True,
        section=_SECTION,
        configz="KubeCloudShared.ConfigureCloudRoutes",
    )
    given_period: float | None = optional(
        "route-reconciliation-period",
        DURATION,
        PERIOD,
        "Period of the checks of all routes; not set: every 5 minutes and when nodes change.",
        details=(
            "Without the gate CloudControllerManagerWatchBasedRoutesReconciliation, only this "
            "period starts a check."
        ),
        section=_SECTION,
        check=positive,
        configz="KubeCloudShared.RouteReconciliationPeriod",
    )
    """None: chosen by the controller."""
    ownership: Ownership = choice(
        "route-ownership",
        Ownership.RECORDED,
        "Routes that may be deleted: 'recorded' (known to be this cluster's) or "
        "'cluster-cidr' (all within --cluster-cidr).",
        details=(
            "recorded: the cloud says that the route is this cluster's, or it leads by a "
            "known node to exactly its pod CIDR. cluster-cidr: as in the Go program."
        ),
        section="Pileus: routes",
    )
    cluster: ClusterSettings = shared(ClusterSettings)
    gates: Gates = shared(Gates)

    def problems_with(self, cloud: "Cloud") -> Iterator[str]:
        """Yields what is wrong if the cloud supports routes."""
        if self.enabled and cloud.routes is not None:
            yield from self.cluster.malformed()

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The pod CIDRs of the cluster. Raises ValueError if they are malformed."""
        return parse_ranges(self.cluster.cidr)

    @property
    def watch(self) -> bool:
        """Whether changes of nodes start a check; otherwise only the period does."""
        return self.gates.enabled(WATCH_BASED_ROUTES)

    @property
    def period(self) -> float:
        """Seconds between the starts of two checks."""
        return self.given_period or (WATCHED_PERIOD if self.watch else PERIOD)
