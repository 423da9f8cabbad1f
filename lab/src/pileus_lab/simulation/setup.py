"""How the managers of a simulation are configured: command lines, one chosen by seed."""

from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import ip_network

from pileus.app.registry import CONTROLLERS
from pileus.app.settings import TABLE, ManagerSettings, build_config
from pileus.cloud.choice import CloudChoice, CloudSettings
from pileus.controllers.ipam.descriptor import IPAM
from pileus.controllers.ipam.settings import USUAL, IpamSettings
from pileus.controllers.service.settings import ServiceSettings
from pileus.controllers.volume.descriptor import VOLUME
from pileus.objects.settings import ClusterSettings
from pileus.settings.config import Config
from pileus.settings.sources import gather
from pileus.version import PROGRAM
from pileus_lab.simulation.clouds.second import SECOND

CLUSTER = "simulated"
PROVIDER = "simulated"
"""The name of the provider for managers."""
SECRET = "token-that-must-stay-secret"  # noqa: S105 -- of nothing
"""In the environment of every manager."""
CLUSTER_CIDR = "10.244.0.0/20"
CLUSTER_CIDR_V6 = "fd44::/60"
TWO_CLOUDS = "two-clouds"
"""The name of the setup with a second cloud."""
TAKE_OVER = "take-over"
"""The name of the setup in which one namespace is trusted."""
VOLUMES = "volumes"
"""The name of the setup with the volume controller."""
VOLUME_NODES = "volume-nodes"
"""The name of the setup with the volume controller, kubelets and the node plugin."""
KEYS = "kube-system/ssh-keys"
"""Where the desired SSH keys are stored."""
TRUSTED = "default"
"""The namespace that may use balancers of others in the setup `take-over`."""
EXTRA_CLASS = "example.com/extra"
"""A load balancer class that is ours in some setups."""
MONITOR_PERIOD = 10.0
"""Seconds between two checks of machines whose nodes are not ready."""
ALWAYS = (
    f"--cloud-provider={PROVIDER}",
    "--master=http://127.0.0.1:1",
    "--secure-port=0",
    f"--cluster-name={CLUSTER}",
    # Four times the usual: as many chances to go wrong, and a quarter of the renewals to compute.
    "--leader-elect-lease-duration=60s",
    "--leader-elect-renew-deadline=40s",
    "--leader-elect-retry-period=8s",
    f"--node-monitor-period={MONITOR_PERIOD:.0f}s",
)


@dataclass(frozen=True)
class Setup:
    """One configuration of the manager."""

    name: str
    arguments: tuple[str, ...] = ()
    clouds: tuple[CloudChoice, ...] = ()
    """The list `clouds` of the configuration file; empty: the one simulated cloud."""

    @cached_property
    def config(self) -> Config:
        config = build_config(gather(TABLE, PROGRAM, (*ALWAYS, *self.arguments), {}).values)
        if not self.clouds:
            return config
        return config.having(replace(config[CloudSettings], provider="", listed=self.clouds))

    @property
    def cloud_name(self) -> str:
        """How the configuration calls the simulated cloud; empty: as its provider does."""
        return self.clouds[0].name if self.clouds else ""

    @property
    def has_second_cloud(self) -> bool:
        return len(self.config[CloudSettings].clouds) > 1

    @property
    def has_volumes(self) -> bool:
        return CONTROLLERS.is_running(VOLUME, self.config[ManagerSettings].controllers)

    @property
    def has_hosts(self) -> bool:
        """Whether volumes are mounted on simulated machines."""
        return self.name == VOLUME_NODES

    @property
    def gives_cidrs(self) -> bool:
        """Whether the manager assigns pod CIDRs; otherwise kube-controller-manager has."""
        return CONTROLLERS.is_running(IPAM, self.config[ManagerSettings].controllers)

    @property
    def cluster_cidrs(self) -> tuple[str, ...]:
        """The pod CIDR of each family."""
        return tuple((self.config[ClusterSettings].cidr or CLUSTER_CIDR).split(","))

    @property
    def pod_ranges(self) -> int:
        """How many nodes can have pod CIDRs."""
        size = self.config[IpamSettings].mask_size
        networks = map(ip_network, self.cluster_cidrs)
        return min(1 << ((size or USUAL[one.version]) - one.prefixlen) for one in networks)

    @property
    def repairs(self) -> bool:
        """Whether cluster and cloud are compared periodically."""
        return self.config[ServiceSettings].drift_period > 0

    @property
    def deletes_orphans(self) -> bool:
        """Whether orphaned balancers are deleted; otherwise they are only reported."""
        return self.config[ServiceSettings].orphans == "delete"


_ROUTES = (f"--cluster-cidr={CLUSTER_CIDR}", "--allocate-node-cidrs")
_BOTH = (f"--cluster-cidr={CLUSTER_CIDR},{CLUSTER_CIDR_V6}", "--allocate-node-cidrs")
_NO_ROUTES = "--configure-cloud-routes=false"
_IPAM = "--controllers=*,node-ipam-controller"
_DELETE = "--service-orphans=delete"
_USUAL_LEASE = (
    "--leader-elect-lease-duration=15s",
    "--leader-elect-renew-deadline=10s",
    "--leader-elect-retry-period=2s",
)

_NO_REPAIRS = (
    "--service-drift-period=0",
    "--service-orphans=ignore",
    "--node-status-update-frequency=24h",
    "--route-reconciliation-period=24h",
    "--node-deletion-max-fraction=1",  # else some nodes are kept for ten minutes
)
"""No periodic comparison with the cloud: only changes cause work."""

_VOLUMES = (_NO_ROUTES, "--controllers=*,volume-controller", "--volume-check-period=60s")

SETUPS = (
    Setup("plain", (_NO_ROUTES,)),
    Setup("routes", (*_ROUTES, _DELETE)),
    Setup("ipam", (*_ROUTES, _IPAM, _DELETE)),
    Setup("dual-stack", (*_BOTH, _IPAM)),
    Setup("dual-stack-routes", (*_BOTH, _DELETE)),
    Setup("keys", (_NO_ROUTES, f"--ssh-keys-from=configmap:{KEYS}", "--node-label-sync")),
    Setup("migration", (*_ROUTES, "--enable-leader-migration")),
    Setup(
        "go-like",
        (
            *_ROUTES,
            *_USUAL_LEASE,
            "--node-deletion-policy=immediate",
            "--route-ownership=cluster-cidr",
            "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=false",
            "--concurrent-service-syncs=1",
        ),
    ),
    Setup(
        "cautious",
        (_NO_ROUTES, "--node-deletion-policy=taint", f"--service-classes={EXTRA_CLASS},-"),
    ),
    Setup("silent", (_NO_ROUTES, "--node-deletion-policy=report", "--node-out-of-service-taint")),
    # Eight pod ranges, about as many as there are nodes: they are given out again and again.
    Setup(
        "small-pool",
        (
            "--cluster-cidr=10.244.0.0/25",
            "--allocate-node-cidrs",
            "--node-cidr-mask-size=28",
            _IPAM,
            "--node-status-update-frequency=30s",
        ),
    ),
    Setup(
        TWO_CLOUDS,
        (_NO_ROUTES,),
        (
            CloudChoice(name=PROVIDER, provider=PROVIDER),
            CloudChoice(name=SECOND, provider=SECOND, default=False),
        ),
    ),
    Setup(VOLUMES, _VOLUMES),
    Setup(VOLUME_NODES, _VOLUMES),
    Setup(TAKE_OVER, (_NO_ROUTES, f"--trusted-namespaces={TRUSTED}")),
    Setup("unaided", (_NO_ROUTES, *_NO_REPAIRS)),
    Setup("unaided-routes", (*_BOTH, *_NO_REPAIRS)),
)
