"""Metrics under the names of the Go OpenStack manager, so that its alerts and dashboards go on.

`openstack_api_*` count requests by what they ask for, and `cloudprovider_openstack_reconcile_*`
what was done with load balancers.
"""

from collections.abc import Callable
from typing import Any

from pileus.cloud.errors import CloudError, NotFound
from pileus.cloud.interface import Reconciliation
from pileus.dataclass import dataclass
from pileus.providers.openstack.api import Api, Call
from pileus.telemetry.instruments import MetricRegistry

REQUEST_DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
RECONCILE_DURATIONS = (
    *(0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 17.5, 20.0, 22.5, 25.0, 27.5),
    *(30.0, 50.0, 75.0, 100.0, 1000.0),
)
VERSIONS = ("v1", "v2.0", "lbaas")
"""Parts of a path that precede the kind of object."""
RESOURCES = {
    "extensions": "network_extension",
    "flavors": "flavor",
    "floatingips": "floating_ip",
    "healthmonitors": "loadbalancer_healthmonitor",
    "listeners": "loadbalancer_listener",
    "loadbalancers": "loadbalancer",
    "networks": "network",
    "pools": "loadbalancer_pool",
    "ports": "port",
    "routers": "router",
    "secrets": "secret",
    "security-group-rules": "security_group_rule",
    "security-groups": "security_group",
    "servers": "server",
    "snapshots": "snapshot",
    "subnets": "subnet",
    "volumes": "volume",
}
PARTS = {
    "members": "loadbalancer_member",
    "os-interface": "server_os_interface",
    "os-volume_attachments": "volume_attachment",
}
"""What is listed below another object."""
VERBS = {"POST": "create", "PUT": "update", "PATCH": "update", "DELETE": "delete"}


def request_of(call: Call) -> str:
    """Returns the label `request`: the kind of object and what is done with it.

    Names are the Go manager's where it sends such a request.
    """
    kind, *below = [each for each in call.path.split("/") if each and each not in VERSIONS] or [""]
    resource = RESOURCES.get(kind, kind.replace("-", "_").removesuffix("s"))
    match below:
        case [] | ["detail"]:
            ids: list[str] = []
        case [_, part, *ids] if part in PARTS:
            resource = PARTS[part]
        case [_, "tags"]:
            resource, ids = f"{resource}_tag", below
        case [_, _, *_] if call.writes:  # an action
            return f"{resource}_update"
        case _:
            ids = below
    if not kind:
        return "version_list"
    if resource == "loadbalancer_member" and call.method == "PUT" and not ids:
        return "loadbalancer_members_update"
    return f"{resource}_{VERBS.get(call.method) or ('get' if ids else 'list')}"


class OpenStackMetrics:
    """The instruments of one cloud."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` is the time of the event loop."""
        self.now = now
        self.registry = registry = MetricRegistry()
        request, operation = ("request",), ("operation",)
        self.request_duration = registry.histogram(
            "openstack_api_request_duration_seconds",
            "[ALPHA] Duration of requests to OpenStack",
            REQUEST_DURATIONS,
            request,
        )
        self.requests = registry.counter(
            "openstack_api_requests_total", "[ALPHA] Requests to OpenStack", request
        )
        self.request_errors = registry.counter(
            "openstack_api_request_errors_total", "[ALPHA] Requests that failed", request
        )
        self.reconcile_duration = registry.histogram(
            "cloudprovider_openstack_reconcile_duration_seconds",
            "[ALPHA] Time from the first change of a load balancer until nothing is left to change",
            RECONCILE_DURATIONS,
            operation,
        )
        self.reconciles = registry.counter(
            "cloudprovider_openstack_reconcile_total",
            "[ALPHA] Load balancers that were ensured, updated or deleted, or that failed",
            operation,
        )
        self.reconcile_errors = registry.counter(
            "cloudprovider_openstack_reconcile_errors_total",
            "[ALPHA] Load balancers that could not be ensured, updated or deleted",
            operation,
        )

    def requested(self, call: Call, seconds: float, *, has_failed: bool) -> None:
        label = request_of(call)
        self.request_duration.labels(label).observe(seconds)
        self.requests.labels(label).inc()
        if has_failed:
            self.request_errors.labels(label).inc()

    def reconciled(self, kind: Reconciliation, seconds: float, has_failed: bool) -> None:  # noqa: FBT001 -- see `Cloud.reconciled`
        label = f"loadbalancer_{kind}"
        self.reconcile_duration.labels(label).observe(seconds)
        self.reconciles.labels(label).inc()
        if has_failed:
            self.reconcile_errors.labels(label).inc()


@dataclass(frozen=True, slots=True)
class MeasuredApi:
    """Counts the requests of another `Api`. An object that is already deleted is no error."""

    api: Api
    metrics: OpenStackMetrics

    async def call(self, call: Call) -> Any:  # noqa: ANN401 -- see `Api`
        began, has_failed = self.metrics.now(), True
        try:
            answer = await self.api.call(call)
            has_failed = False
        except CloudError as error:
            has_failed = not (isinstance(error, NotFound) and call.method == "DELETE")
            raise
        finally:
            self.metrics.requested(call, self.metrics.now() - began, has_failed=has_failed)
        return answer
