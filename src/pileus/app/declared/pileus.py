"""Flags that the Go program does not have."""

from pileus.app.flags import Flag, Group, switch
from pileus.app.kinds import STRING

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
