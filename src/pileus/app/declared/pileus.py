"""Flags that the Go program does not have."""

from pileus.cloud.choice import CLOUDS
from pileus.controllers.route.ownership import Ownership
from pileus.settings.flags import Flag, Group, switch
from pileus.settings.kinds import DURATION, FLOAT, STRING, STRINGS, Kind

CONFIG = Flag(
    "config",
    STRING,
    "",
    "YAML or JSON file with flags by name. Environment variables (PILEUS_<FLAG_NAME>) and "
    "flags override it.",
)
DRY_RUN = switch(
    "dry-run", "Report planned changes to the cloud and the cluster without applying them."
)
NODE_LABEL_SYNC = switch(
    "node-label-sync",
    "Keep zone, region, instance type and provider labels of nodes current; otherwise "
    "they are set once.",
)
CLOUD_LIST = Flag(
    "clouds",
    CLOUDS,
    (),
    "Clouds instead of --cloud-provider, each with provider, name, cloud-config, classes and "
    "default.",
    details=(
        "name: unique, that of the provider if left out. classes: load balancer classes besides "
        "its own. default: serves Services without a class, at most one cloud."
    ),
    only_file=True,
)
PILEUS = Group("Pileus", (CONFIG, DRY_RUN, NODE_LABEL_SYNC, CLOUD_LIST), ours=True)

DELETION_POLICIES = ("guarded", "immediate", "taint", "report")

NODE_DELETION_POLICY = Flag(
    "node-deletion-policy",
    STRING,
    "guarded",
    "Action for a node that is not ready and has no machine: guarded, immediate, taint or report.",
    details=(
        "guarded: deleted after a second check, unless too many machines are missing at "
        "once. immediate: deleted at the first check, like the Go program. taint: kept "
        "without new pods. report: kept."
    ),
)
NODE_DELETION_GRACE = Flag(
    "node-deletion-grace",
    DURATION,
    30.0,
    "Time between the check that finds no machine and the one that confirms it.",
)
NODE_DELETION_UNIDENTIFIED_GRACE = Flag(
    "node-deletion-unidentified-grace",
    DURATION,
    1800.0,
    "How long the cloud must deny the machine of a not-ready node without a provider ID before "
    "the node is deleted; 0 never deletes it.",
)
NODE_DELETION_MAX_FRACTION = Flag(
    "node-deletion-max-fraction",
    FLOAT,
    0.2,
    "Fraction of nodes that may lose their machine or be deleted within "
    "--node-deletion-window; one always may.",
    details="Beyond it no node is deleted.",
)
NODE_DELETION_WINDOW = Flag(
    "node-deletion-window",
    DURATION,
    600.0,
    "Time for which a deletion counts for --node-deletion-max-fraction.",
)
NODE_OUT_OF_SERVICE_TAINT = switch(
    "node-out-of-service-taint",
    "Add the taint node.kubernetes.io/out-of-service to nodes whose machine is confirmed "
    "to be stopped.",
    details=(
        "The machine must be reported as stopped twice, --node-deletion-grace apart. Pods "
        "and volumes then move to other nodes."
    ),
)
NODE_LIFECYCLE = Group(
    "Pileus: node lifecycle",
    (
        NODE_DELETION_POLICY,
        NODE_DELETION_GRACE,
        NODE_DELETION_UNIDENTIFIED_GRACE,
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
    "ID in the tags of this cluster's cloud resources; empty: the UID of kube-system. "
    "Must not change after installation.",
    details="Resources with another ID are not touched.",
)
ORPHAN_POLICIES = ("ignore", "report", "delete")

SERVICE_CLASSES = Flag(
    "service-classes",
    STRINGS,
    (),
    "Load balancer classes served besides pileus.dev/<provider>; '-' excludes Services "
    "without a class.",
)
SERVICE_DRIFT_PERIOD = Flag(
    "service-drift-period",
    DURATION,
    600.0,
    "Period of full checks of every load balancer and of the search for orphans. "
    "0: no full checks.",
    details="With 0 the search for orphans has a period of 10m.",
)
SERVICE_DRAIN_CORDONED = switch(
    "service-drain-cordoned",
    "Remove cordoned nodes from load balancers.",
)
SERVICE_ORPHANS = Flag(
    "service-orphans",
    STRING,
    "report",
    "Action for load balancers tagged with this cluster that have no Service: "
    "ignore, report or delete.",
    details="ignore: no search for them. delete: after two checks, a few at a time.",
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
    "Source of the instances' SSH keys: configmap:NAMESPACE/NAME, secret:NAMESPACE/NAME "
    "or file:PATH; empty: not managed.",
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
    "Routes that may be deleted: 'recorded' (known to be this cluster's) or "
    "'cluster-cidr' (all within --cluster-cidr).",
    details=(
        "recorded: the cloud says that the route is this cluster's, or it leads by a "
        "known node to exactly its pod CIDR. cluster-cidr: as in the Go program."
    ),
)
ROUTES = Group("Pileus: routes", (ROUTE_OWNERSHIP,), ours=True)
