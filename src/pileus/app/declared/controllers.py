"""Flags of the single controllers."""

from pileus.controllers.ipam.descriptor import IPAM
from pileus.controllers.lifecycle.descriptor import LIFECYCLE
from pileus.controllers.node.descriptor import NODE
from pileus.controllers.service.descriptor import SERVICE
from pileus.settings.flags import Flag, Group
from pileus.settings.kinds import DURATION, INT32, STRING

CONCURRENT_NODE_SYNCS = Flag(
    "concurrent-node-syncs",
    INT32,
    1,
    "Maximum number of nodes initialized at a time; not set: no limit.",
    details="Nodes that are created together share their lookups in the cloud.",
)
CONCURRENT_NODE_STATUS_UPDATES = Flag(
    "concurrent-node-status-updates",
    INT32,
    0,
    "Nodes whose addresses are updated at a time; 0: --concurrent-node-syncs if that is "
    "set, else 100.",
)
CLOUD_NODE = Group(
    NODE.canonical.capitalize(), (CONCURRENT_NODE_SYNCS, CONCURRENT_NODE_STATUS_UPDATES)
)

NODE_MONITOR_PERIOD = Flag(
    "node-monitor-period", DURATION, 5.0, "Pause between two checks of all nodes."
)
CONCURRENT_NODE_LIFECYCLE_SYNCS = Flag(
    "concurrent-node-lifecycle-syncs",
    INT32,
    1,
    "Maximum number of nodes written at a time; not set: chosen by the controller.",
)
CLOUD_NODE_LIFECYCLE = Group(
    LIFECYCLE.canonical.capitalize(), (NODE_MONITOR_PERIOD, CONCURRENT_NODE_LIFECYCLE_SYNCS)
)

CONCURRENT_SERVICE_SYNCS = Flag(
    "concurrent-service-syncs",
    INT32,
    1,
    "Maximum number of Services reconciled at a time; not set: no limit.",
)
SERVICE_LB = Group(SERVICE.canonical.capitalize(), (CONCURRENT_SERVICE_SYNCS,))

SERVICE_CLUSTER_IP_RANGE = Flag(
    "service-cluster-ip-range",
    STRING,
    "",
    "CIDR of Services, or a comma-separated pair of families; excluded from pod CIDRs.",
)
NODE_CIDR_MASK_SIZE = Flag(
    "node-cidr-mask-size",
    INT32,
    0,
    "Prefix length of a node's pod CIDR in a single-stack cluster; 0: 24 for IPv4, 64 for IPv6.",
)
NODE_CIDR_MASK_SIZE_IPV4 = Flag(
    "node-cidr-mask-size-ipv4",
    INT32,
    0,
    "Prefix length of a node's IPv4 pod CIDR in a dual-stack cluster; 0: 24.",
)
NODE_CIDR_MASK_SIZE_IPV6 = Flag(
    "node-cidr-mask-size-ipv6",
    INT32,
    0,
    "Prefix length of a node's IPv6 pod CIDR in a dual-stack cluster; 0: 64.",
)
NODE_IPAM = Group(
    IPAM.canonical.capitalize(),
    (
        SERVICE_CLUSTER_IP_RANGE,
        NODE_CIDR_MASK_SIZE,
        NODE_CIDR_MASK_SIZE_IPV4,
        NODE_CIDR_MASK_SIZE_IPV6,
    ),
)
