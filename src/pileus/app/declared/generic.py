"""Flags about the program as a whole, and those shared with kube-controller-manager."""

from collections.abc import Iterable

from pileus.app.registry import CONTROLLERS as REGISTRY
from pileus.app.registry import Controllers
from pileus.objects.descriptor import ControllerNames
from pileus.settings import feature_gates as gates
from pileus.settings.flags import Flag, Group, switch
from pileus.settings.kinds import DURATION, FLOAT, INT32, STRING, STRINGS

_HOUR = 3600.0


def _listed(chosen: Iterable[ControllerNames]) -> str:
    return ", ".join(sorted(names.canonical for names in chosen))


def controllers_flag(known: Controllers) -> Flag[tuple[str, ...]]:
    """Returns the flag `--controllers` for these controllers."""
    return Flag(
        "controllers",
        STRINGS,
        ("*",),
        "Controllers to run: '*' enables all that are on by default, 'foo' enables foo, "
        "'-foo' disables it; the first match counts.",
        details=(
            f"All: {_listed(known.names)}. Disabled by default: "
            f"{_listed(names for names in known.names if names.off_by_default)}."
        ),
    )


CONTROLLERS = controllers_flag(REGISTRY)
CONTROLLER_START_INTERVAL = Flag(
    "controller-start-interval", DURATION, 0.0, "Pause after the start of each controller."
)
MIN_RESYNC_PERIOD = Flag(
    "min-resync-period",
    DURATION,
    12 * _HOUR,
    "Resync period of all objects; the actual period is 1 to 2 times this value.",
)
KUBE_API_QPS = Flag(
    "kube-api-qps",
    FLOAT,
    20.0,
    "Maximum requests per second of each API client; not set: no limit, the API server's "
    "priority and fairness applies.",
)
KUBE_API_BURST = Flag(
    "kube-api-burst",
    INT32,
    30,
    "Requests that may exceed --kube-api-qps in a burst.",
)
KUBE_API_CONTENT_TYPE = Flag(
    "kube-api-content-type",
    STRING,
    "application/vnd.kubernetes.protobuf",
    "Accepted for compatibility: requests are sent as JSON.",
)
FEATURE_GATES = Flag(
    "feature-gates",
    gates.GATES,
    {},
    "Feature gates as NAME=true or NAME=false, comma-separated.",
    details="Known:\n" + gates.described(),
)

LEADER_ELECT = switch(
    "leader-elect",
    "Run controllers only while holding a Lease, so that one of several replicas is active.",
    default=True,
)
LEASE_DURATION = Flag(
    "leader-elect-lease-duration",
    DURATION,
    15.0,
    "Time after the last renewal until another replica may take the Lease.",
)
RENEW_DEADLINE = Flag(
    "leader-elect-renew-deadline",
    DURATION,
    10.0,
    "Time for which the leader tries to renew the Lease before it stops; shorter than the "
    "lease duration.",
)
RETRY_PERIOD = Flag(
    "leader-elect-retry-period",
    DURATION,
    2.0,
    "Pause between two attempts to acquire or renew the Lease.",
)
RESOURCE_LOCK = Flag(
    "leader-elect-resource-lock", STRING, "leases", "Kind of the lock; only 'leases' is supported."
)
RESOURCE_NAME = Flag(
    "leader-elect-resource-name", STRING, "cloud-controller-manager", "Name of the Lease."
)
RESOURCE_NAMESPACE = Flag(
    "leader-elect-resource-namespace", STRING, "kube-system", "Namespace of the Lease."
)

CLOUD_PROVIDER = Flag(
    "cloud-provider",
    STRING,
    "",
    "Name of the cloud provider (required), or a comma-separated list. `pileus providers` "
    "lists them.",
    details="Of several, the first serves Services without a load balancer class.",
)
CLOUD_CONFIG = Flag(
    "cloud-config",
    STRING,
    "",
    "Configuration file of the cloud provider; empty: none. One per provider, comma-separated.",
)
CLUSTER_NAME = Flag(
    "cluster-name",
    STRING,
    "kubernetes",
    "Name of the cluster in the cloud; must not change after installation.",
)
CLUSTER_CIDR = Flag(
    "cluster-cidr",
    STRING,
    "",
    "CIDR of pods, or a comma-separated pair of families.",
)
ALLOCATE_NODE_CIDRS = switch(
    "allocate-node-cidrs",
    "Assign each node a pod CIDR out of --cluster-cidr.",
)
CIDR_ALLOCATOR_TYPE = Flag(
    "cidr-allocator-type",
    STRING,
    "RangeAllocator",
    "Allocator of pod CIDRs; only RangeAllocator is supported.",
)
CONFIGURE_CLOUD_ROUTES = switch(
    "configure-cloud-routes",
    "Create a cloud route for each node's pod CIDR; false disables the route controller.",
    default=True,
)
ROUTE_RECONCILIATION_PERIOD = Flag(
    "route-reconciliation-period",
    DURATION,
    10.0,
    "Period of the checks of all routes; not set: every 5 minutes and when nodes change.",
    details=(
        "Without the gate CloudControllerManagerWatchBasedRoutesReconciliation, only this "
        "period starts a check."
    ),
)
USE_SERVICE_ACCOUNT_CREDENTIALS = switch(
    "use-service-account-credentials",
    "Run each controller with its own service account.",
)
EXTERNAL_CLOUD_VOLUME_PLUGIN = Flag(
    "external-cloud-volume-plugin", STRING, "", "Accepted for compatibility; no effect."
)
ALLOW_UNTAGGED_CLOUD = switch(
    "allow-untagged-cloud",
    "Warn instead of failing if the cloud provider has no cluster ID.",
    deprecated="a cluster ID on the cloud's instances will be required",
)
NODE_SYNC_PERIOD = Flag(
    "node-sync-period", DURATION, 0.0, "No effect.", deprecated="it has no effect"
)

GROUP = Group(
    "Generic",
    (
        CONTROLLERS,
        CONTROLLER_START_INTERVAL,
        MIN_RESYNC_PERIOD,
        KUBE_API_QPS,
        KUBE_API_BURST,
        KUBE_API_CONTENT_TYPE,
        FEATURE_GATES,
        LEADER_ELECT,
        LEASE_DURATION,
        RENEW_DEADLINE,
        RETRY_PERIOD,
        RESOURCE_LOCK,
        RESOURCE_NAME,
        RESOURCE_NAMESPACE,
        CLOUD_PROVIDER,
        CLOUD_CONFIG,
        CLUSTER_NAME,
        CLUSTER_CIDR,
        ALLOCATE_NODE_CIDRS,
        CIDR_ALLOCATOR_TYPE,
        CONFIGURE_CLOUD_ROUTES,
        ROUTE_RECONCILIATION_PERIOD,
        USE_SERVICE_ACCOUNT_CREDENTIALS,
        EXTERNAL_CLOUD_VOLUME_PLUGIN,
        ALLOW_UNTAGGED_CLOUD,
        NODE_SYNC_PERIOD,
    ),
)
