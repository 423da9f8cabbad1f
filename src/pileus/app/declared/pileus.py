"""Flags that the Go program does not have."""

from pileus.app.flags import Flag, Group, switch
from pileus.app.kinds import DURATION, FLOAT, STRING, STRINGS, Kind
from pileus.controllers.route.ownership import Ownership

CONFIG = Flag(
    "config",
    STRING,
    "",
    "YAML or JSON file of flags by name (without dashes in front). The environment "
    "(PILEUS_<FLAG_NAME>) goes before it, the command line before both.",
)
DRY_RUN = switch(
    "dry-run", "Say what would be changed, in the cloud and in the cluster, and change nothing."
)
NODE_LABEL_SYNC = switch(
    "node-label-sync",
    "Keep the zone, region, instance type and additional labels of nodes current; otherwise "
    "they are set once.",
)
PILEUS = Group("Pileus", (CONFIG, DRY_RUN, NODE_LABEL_SYNC), ours=True)

DELETION_POLICIES = ("guarded", "immediate", "taint", "report")

NODE_DELETION_POLICY = Flag(
    "node-deletion-policy",
    STRING,
    "guarded",
    "What happens to a node that is not ready and whose machine is gone: guarded (deleted after a "
    "second look, unless too many are gone at once), immediate (deleted at the first look, as by "
    "the Go program), taint (kept, no new pods), report (kept).",
)
NODE_DELETION_GRACE = Flag(
    "node-deletion-grace",
    DURATION,
    30.0,
    "Time between the first look that finds a machine gone and the one that confirms it.",
)
NODE_DELETION_MAX_FRACTION = Flag(
    "node-deletion-max-fraction",
    FLOAT,
    0.2,
    "The part of this cloud's nodes that may be gone, or have been deleted, within "
    "--node-deletion-window; one always may. Beyond that none is deleted.",
)
NODE_DELETION_WINDOW = Flag(
    "node-deletion-window", DURATION, 600.0, "How long a deletion counts for the fraction."
)
NODE_OUT_OF_SERVICE_TAINT = switch(
    "node-out-of-service-taint",
    "Give nodes whose machine the cloud says is stopped, twice and --node-deletion-grace apart, "
    "the taint node.kubernetes.io/out-of-service, so that their pods and volumes move.",
)
NODE_LIFECYCLE = Group(
    "Pileus: node lifecycle",
    (
        NODE_DELETION_POLICY,
        NODE_DELETION_GRACE,
        NODE_DELETION_MAX_FRACTION,
        NODE_DELETION_WINDOW,
        NODE_OUT_OF_SERVICE_TAINT,
    ),
    ours=True,
)

CLUSTER_ID = Flag(
    "cluster-id",
    STRING,
    "",
    "Id of this cluster in the marks of what belongs to it in the cloud; empty: the UID of the "
    "namespace kube-system. Never change it: what carries another id is not touched.",
)
NO_DEFAULT_CLASS = "-"
ORPHAN_POLICIES = ("report", "delete")

SERVICE_CLASSES = Flag(
    "service-classes",
    STRINGS,
    (),
    "Load balancer classes that are served beside pileus.dev/<provider>. Services that name no "
    "class are served as well, unless '-' is one of the entries: then they are left to others.",
)
SERVICE_DRIFT_PERIOD = Flag(
    "service-drift-period",
    DURATION,
    600.0,
    "How often, about, every load balancer is compared with its Service in all its parts, and "
    "orphans are looked for.",
)
SERVICE_DRAIN_CORDONED = switch(
    "service-drain-cordoned",
    "Take cordoned nodes out of load balancers too, not only those about to be deleted.",
)
SERVICE_ORPHANS = Flag(
    "service-orphans",
    STRING,
    "report",
    "What is done with load balancers that are marked as this cluster's and have no Service: "
    "'report' them, or 'delete' them after two looks, a few at a time.",
)
SERVICES = Group(
    "Pileus: services",
    (
        CLUSTER_ID,
        SERVICE_CLASSES,
        SERVICE_DRIFT_PERIOD,
        SERVICE_DRAIN_CORDONED,
        SERVICE_ORPHANS,
    ),
    ours=True,
)

SSH_KEYS_FROM = Flag(
    "ssh-keys-from",
    STRING,
    "",
    "Where the SSH keys of all instances are kept: configmap:NAMESPACE/NAME, "
    "secret:NAMESPACE/NAME or file:PATH. Empty: keys are left alone.",
)
SSH_KEYS = Group("Pileus: SSH keys", (SSH_KEYS_FROM,), ours=True)


def _ownership(text: str) -> Ownership:
    try:
        return Ownership(text)
    except ValueError:
        raise ValueError(f"must be one of {', '.join(Ownership)}") from None


ROUTE_OWNERSHIP = Flag(
    "route-ownership",
    Kind(word="string", parse=_ownership, render=str),
    Ownership.RECORDED,
    "Which routes are deleted when no node wants them: 'recorded', those that the cloud says are "
    "this cluster's, or that lead by way of known nodes to exactly their pod ranges; or "
    "'cluster-cidr', all that lead into --cluster-cidr, as in the Go program.",
)
ROUTES = Group("Pileus: routes", (ROUTE_OWNERSHIP,), ours=True)
