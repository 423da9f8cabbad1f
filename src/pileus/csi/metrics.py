"""The metrics of the driver: operations by method and gRPC code, and volumes whose operations fail.

The name and the labels of the histogram are those that other CSI drivers have from
kubernetes-csi/csi-lib-utils, so that their dashboards and alerts fit.
"""

import asyncio
from collections.abc import Callable, Iterator

from grpclib.const import Status

from pileus.server.build import this_build
from pileus.server.process_metrics import add_process_metrics
from pileus.telemetry.instruments import MetricRegistry, Reading

BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
FORGOTTEN = 900.0
"""Seconds after which an operation that was not tried again no longer counts as failing. Sidecars
and kubelet try again at least every five minutes."""
MOST_FAILING = 10_000
SHARED = ("pileus_cloud_", "rest_client_")
"""Prefixes of the manager's metrics that the driver has too: calls to the cloud and API server."""
_GO_NAMES = {Status.OK: "OK", Status.CANCELLED: "Canceled"}


def go_name(code: Status) -> str:
    """Returns the code as Go writes it: `FailedPrecondition`."""
    return _GO_NAMES.get(code) or "".join(word.capitalize() for word in code.name.split("_"))


class CsiMetrics:
    """The instruments of one driver."""

    def __init__(self, registry: MetricRegistry, driver: str) -> None:
        self.operations = registry.histogram(
            "csi_plugin_operations_seconds",
            "[ALPHA] Duration of CSI operations, by method and gRPC status code of the answer",
            BUCKETS,
            ("driver_name", "method_name", "grpc_status_code"),
        )
        self.volumes_failing = registry.gauge(
            "pileus_csi_volumes_failing",
            "Volumes and snapshots of which the last operation of a kind failed within 15 minutes",
        )
        self._driver = driver
        self._failed: dict[tuple[str, str], float] = {}
        self._now: Callable[[], float] = float
        self.volumes_failing.set_function(self._failing)

    def observe(self, method: str, code: Status, seconds: float, about: str) -> None:
        """Count an operation. `about` is the volume or snapshot; empty: it is about none."""
        self.operations.labels(self._driver, method, go_name(code)).observe(seconds)
        if not about:
            return
        self._now = asyncio.get_running_loop().time
        key = method, about
        self._failed.pop(key, None)
        if code is not Status.OK and len(self._failed) < MOST_FAILING:
            self._failed[key] = self._now()

    def _failing(self) -> float:
        recent = self._now() - FORGOTTEN
        for key in [key for key, since in self._failed.items() if since < recent]:
            del self._failed[key]
        return len({about for _, about in self._failed})


def exposed_registry(shared: MetricRegistry) -> MetricRegistry:
    """Returns a registry for the driver's own metrics, with those of cloud, client and process."""
    registry = MetricRegistry()
    registry.add_source(lambda: _without_controllers(shared))
    add_process_metrics(registry, this_build())
    return registry


def _without_controllers(shared: MetricRegistry) -> Iterator[Reading]:
    return (each for each in shared.read() if each.family.name.startswith(SHARED))
