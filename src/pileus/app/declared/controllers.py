"""Flags of the single controllers."""

from pileus.app.controllers import IPAM, LIFECYCLE, NODE, SERVICE
from pileus.app.flags import Flag, Group
from pileus.app.kinds import DURATION, INT32, STRING

CONCURRENT_NODE_SYNCS = Flag(
    "concurrent-node-syncs",
    INT32,
    1,
    "New nodes that are initialized at a time. Only a value that is given sets a limit; otherwise "
    "all that are new share their look-ups in the cloud.",
)
CONCURRENT_NODE_STATUS_UPDATES = Flag(
    "concurrent-node-status-updates",
    INT32,
    0,
    "Nodes whose addresses are written at a time in a round; 0: as many as --concurrent-node-syncs "
    "if that is given, else 100.",
)
CLOUD_NODE = Group(
    NODE.canonical.capitalize(), (CONCURRENT_NODE_SYNCS, CONCURRENT_NODE_STATUS_UPDATES)
)

NODE_MONITOR_PERIOD = Flag(
    "node-monitor-period", DURATION, 5.0, "Pause between two rounds over the nodes' states."
)
CONCURRENT_NODE_LIFECYCLE_SYNCS = Flag(
    "concurrent-node-lifecycle-syncs", INT32, 1, "Workers that look after nodes that are down."
)
CLOUD_NODE_LIFECYCLE = Group(
    LIFECYCLE.canonical.capitalize(), (NODE_MONITOR_PERIOD, CONCURRENT_NODE_LIFECYCLE_SYNCS)
)

CONCURRENT_SERVICE_SYNCS = Flag(
    "concurrent-service-syncs",
    INT32,
    1,
    "Services whose load balancers are worked on at the same time. Only a value that is given sets "
    "a limit; otherwise there is none but what the cloud bears.",
)
SERVICE_LB = Group(SERVICE.canonical.capitalize(), (CONCURRENT_SERVICE_SYNCS,))

SERVICE_CLUSTER_IP_RANGE = Flag(
    "service-cluster-ip-range",
    STRING,
    "",
    "Range of the services' addresses (one CIDR, or one of each family); kept out of the pods'.",
)
NODE_CIDR_MASK_SIZE = Flag(
    "node-cidr-mask-size",
    INT32,
    0,
    "Prefix length of a node's pod range in a cluster of one family; 0: 24 for IPv4, 64 for IPv6.",
)
NODE_CIDR_MASK_SIZE_IPV4 = Flag(
    "node-cidr-mask-size-ipv4",
    INT32,
    0,
    "Prefix length of a node's IPv4 pod range in a dual-stack cluster; 0: 24.",
)
NODE_CIDR_MASK_SIZE_IPV6 = Flag(
    "node-cidr-mask-size-ipv6",
    INT32,
    0,
    "Prefix length of a node's IPv6 pod range in a dual-stack cluster; 0: 64.",
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
