"""How the managers of a simulation are configured: a few command lines, one chosen by seed."""

from dataclasses import dataclass
from functools import cache

from pileus.app.config import Config, build_config
from pileus.app.declared.table import TABLE
from pileus.app.settings import gather
from pileus.version import PROGRAM

CLUSTER = "simulated"
PROVIDER = "simulated"
"""What managers know the cloud by, whichever it is."""
SECRET = "token-that-nobody-may-see"  # noqa: S105 -- of nothing
"""In the environment of every manager."""
CLUSTER_CIDR = "10.244.0.0/20"
LEASE = 60.0
"""Seconds after which a lease that is not renewed may be taken."""
ALWAYS = (
    f"--cloud-provider={PROVIDER}",
    "--master=http://127.0.0.1:1",
    "--secure-port=0",
    f"--cluster-name={CLUSTER}",
    # Four times the usual: as many chances to go wrong, and a quarter of the renewals to compute.
    f"--leader-elect-lease-duration={LEASE:.0f}s",
    "--leader-elect-renew-deadline=40s",
    "--leader-elect-retry-period=8s",
    "--node-monitor-period=10s",
)


@dataclass(frozen=True, slots=True)
class Setup:
    """One way to run the manager."""

    name: str
    arguments: tuple[str, ...] = ()
    gives_cidrs: bool = False
    """Whether the manager gives pod ranges to nodes; else somebody else has done it before."""

    deletes_orphans: bool = False
    """Whether balancers without a Service are deleted; else they are only told."""

    @property
    def config(self) -> Config:
        return _config(self.arguments)


SETUPS = (
    Setup("plain", ("--configure-cloud-routes=false",)),
    Setup(
        "routes",
        (
            f"--cluster-cidr={CLUSTER_CIDR}",
            "--allocate-node-cidrs",
            "--service-orphans=delete",
        ),
        deletes_orphans=True,
    ),
    Setup(
        "ipam",
        (
            f"--cluster-cidr={CLUSTER_CIDR}",
            "--allocate-node-cidrs",
            "--controllers=*,node-ipam-controller",
            "--service-orphans=delete",
        ),
        gives_cidrs=True,
        deletes_orphans=True,
    ),
)


@cache
def _config(arguments: tuple[str, ...]) -> Config:
    return build_config(gather(TABLE, PROGRAM, (*ALWAYS, *arguments), {}).values)
