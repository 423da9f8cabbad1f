"""Flags about the program as a whole, and those shared with kube-controller-manager."""

from collections.abc import Iterable

from pileus.app import controllers, gates
from pileus.app.flags import Flag, Group, switch
from pileus.app.kinds import DURATION, FLOAT, INT32, STRING, STRINGS

_HOUR = 3600.0


def _listed(chosen: Iterable[controllers.ControllerNames]) -> str:
    return ", ".join(sorted(names.canonical for names in chosen))


CONTROLLERS = Flag(
    "controllers",
    STRINGS,
    ("*",),
    "Which controllers run: '*' stands for all that are on by default, 'foo' switches foo on, "
    "'-foo' switches it off; the first entry about a controller decides.\n"
    f"All controllers: {_listed(controllers.ALL)}\n"
    f"Disabled-by-default controllers: "
    f"{_listed(names for names in controllers.ALL if names.off_by_default)}",
)
CONTROLLER_START_INTERVAL = Flag(
    "controller-start-interval", DURATION, 0.0, "Pause after the start of each controller."
)
MIN_RESYNC_PERIOD = Flag(
    "min-resync-period",
    DURATION,
    12 * _HOUR,
    "Every object is looked at again after this time; the real period is drawn once, between "
    "1 and 2 times this value.",
)
KUBE_API_QPS = Flag(
    "kube-api-qps",
    FLOAT,
    20.0,
    "Requests per second that each client may send to the API server. Only a value that is "
    "given sets a limit; otherwise the server's own priorities and fairness do.",
)
KUBE_API_BURST = Flag(
    "kube-api-burst",
    INT32,
    30,
    "Requests that may be sent at once before --kube-api-qps holds them back.",
)
KUBE_API_CONTENT_TYPE = Flag(
    "kube-api-content-type",
    STRING,
    "application/vnd.kubernetes.protobuf",
    "Accepted for compatibility: requests to the API server are sent as JSON.",
)
FEATURE_GATES = Flag(
    "feature-gates",
    gates.GATES,
    {},
    "Switches for features that are not final, as name=true or name=false. Known:\n"
    + gates.described(),
)

LEADER_ELECT = switch(
    "leader-elect",
    "Work only while holding a Lease, so that of several replicas one is active.",
    default=True,
)
LEASE_DURATION = Flag(
    "leader-elect-lease-duration",
    DURATION,
    15.0,
    "How long a stand-by waits, after the holder's last sign of life, before it takes the Lease.",
)
RENEW_DEADLINE = Flag(
    "leader-elect-renew-deadline",
    DURATION,
    10.0,
    "How long the holder tries to renew the Lease before it stops working. Must be shorter than "
    "the lease duration.",
)
RETRY_PERIOD = Flag(
    "leader-elect-retry-period",
    DURATION,
    2.0,
    "Pause between two attempts to take or renew the Lease.",
)
RESOURCE_LOCK = Flag(
    "leader-elect-resource-lock", STRING, "leases", "Kind of the lock; only 'leases' is possible."
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
    "Name of the provider of cloud services (required). `pileus providers` lists them.",
)
CLOUD_CONFIG = Flag(
    "cloud-config", STRING, "", "Configuration file of the cloud provider; empty: none."
)
CLUSTER_NAME = Flag(
    "cluster-name", STRING, "kubernetes", "Name of the cluster; marks its objects in the cloud."
)
CLUSTER_CIDR = Flag(
    "cluster-cidr",
    STRING,
    "",
    "Range of the pods' addresses: one CIDR, or one of each family separated by a comma.",
)
ALLOCATE_NODE_CIDRS = switch(
    "allocate-node-cidrs",
    "Give each node a range of pod addresses out of --cluster-cidr.",
)
CIDR_ALLOCATOR_TYPE = Flag(
    "cidr-allocator-type",
    STRING,
    "RangeAllocator",
    "Where the nodes' pod ranges come from; only RangeAllocator is possible.",
)
CONFIGURE_CLOUD_ROUTES = switch(
    "configure-cloud-routes",
    "Keep a route in the cloud for each node's pod range; false switches the route controller off.",
    default=True,
)
ROUTE_RECONCILIATION_PERIOD = Flag(
    "route-reconciliation-period",
    DURATION,
    10.0,
    "Period of the rounds over all routes. Rounds are also made when nodes change; unless this "
    "flag is given, they are then otherwise made every 5 minutes. Without "
    "CloudControllerManagerWatchBasedRoutesReconciliation only the period causes them.",
)
USE_SERVICE_ACCOUNT_CREDENTIALS = switch(
    "use-service-account-credentials",
    "Let each controller act as a service account of its own.",
)
EXTERNAL_CLOUD_VOLUME_PLUGIN = Flag(
    "external-cloud-volume-plugin", STRING, "", "Accepted for compatibility; without effect."
)
ALLOW_UNTAGGED_CLOUD = switch(
    "allow-untagged-cloud",
    "Go on with a warning when the cloud provider knows no cluster ID.",
    deprecated="a cluster ID on the cloud's instances will be required",
)
NODE_SYNC_PERIOD = Flag(
    "node-sync-period", DURATION, 0.0, "Without effect.", deprecated="it has no effect"
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
