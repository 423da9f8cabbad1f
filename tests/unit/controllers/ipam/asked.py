"""Settings of the controller, by the cluster's CIDRs."""

from typing import Any

from pileus.controllers.ipam.settings import IpamSettings
from pileus.objects.settings import ClusterSettings


def asked_for(cidr: str, **others: Any) -> IpamSettings:
    return IpamSettings(cluster=ClusterSettings(cidr=cidr), **others)
