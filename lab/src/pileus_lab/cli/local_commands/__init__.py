"""The verbs of `pileus local`, by noun."""

from collections.abc import Mapping

from pileus_lab.cli.local_commands import account, balancers, instances, volumes
from pileus_lab.cli.local_commands.command import Command, Shown

COMMANDS: Mapping[str, Mapping[str, Command]] = {
    "instances": instances.VERBS,
    "balancers": balancers.VERBS,
    "routes": volumes.ROUTE_VERBS,
    "volumes": volumes.VOLUME_VERBS,
    "keys": account.KEY_VERBS,
    "clusters": account.CLUSTER_VERBS,
    "quota": account.QUOTA_VERBS,
    "fault": account.FAULT_VERBS,
}

__all__ = ["COMMANDS", "Shown"]
