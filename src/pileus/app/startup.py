"""What the manager and its plans start with: API clients, the provider, the context of both."""

import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random

from pileus.app.clients import Clients
from pileus.app.clients import Connect as Dial
from pileus.app.cluster_id import ClusterIdentity
from pileus.app.config import ClientConnection, Config
from pileus.app.context import ManagerContext
from pileus.app.errors import CommandFailed, Fatal
from pileus.app.registry import CONTROLLERS, Controllers
from pileus.cloud.choice import CloudChoice
from pileus.cloud.connection import connected, read_config
from pileus.cloud.errors import CloudError, Misconfigured
from pileus.cloud.interface import Cloud, Connect, ProviderConfig
from pileus.cloud.registry import PROVIDERS, Registry, UnknownProvider
from pileus.fence import Fence
from pileus.kube.access import Access
from pileus.kube.config.choose import load_access
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.http import HttpTransport
from pileus.kube.transport import Permits, all_requests
from pileus.objects.cloud_scope import only_scope
from pileus.runtime.informers import Informers, freeze
from pileus.runtime.leadership import Times
from pileus.runtime.lease import new_identity
from pileus.runtime.watchdog import watched_loop
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics, new_metrics

log = Log(__name__)

NO_CLUSTER_ID = (
    "no ClusterID found.  A ClusterID is required for the cloud provider to function properly.  "
    "This check can be bypassed by setting the allow-untagged-cloud option"
)


def own_identity() -> str:
    """The name under which this process holds a lease."""
    return new_identity(socket.gethostname())


def manager_access(given: ClientConnection, environ: Mapping[str, str]) -> Access:
    """The access of `--kubeconfig` and `--master`, else of the pod, as in the Go program."""
    return load_access(given.kubeconfig, given.master, environ)


@dataclass(frozen=True, slots=True)
class World:
    """What the process finds around itself; tests give others."""

    environ: Mapping[str, str]
    times: Times
    random: Random
    set_verbosity: Callable[[int], None]
    providers: Registry = PROVIDERS
    connect: Dial = HttpTransport
    identity: Callable[[], str] = own_identity
    watched: Callable[[Metrics], AbstractContextManager[None]] = watched_loop
    """Watches over the event loop for as long as its block lasts."""
    metrics: Callable[[], Metrics] = new_metrics
    """The instruments of a run; each of its own, where somebody reads them."""
    access: Callable[[ClientConnection, Mapping[str, str]], Access] = manager_access
    """Where the API server is, and as whom to speak to it. Raises InvalidConfiguration."""
    lost: Callable[[], None] = lambda: None
    """Called when a lease is lost, before the work is cancelled."""
    settled: Callable[[], None] = freeze
    """Called when a cache has been filled, which then lives as long as the process."""
    controllers: Controllers = CONTROLLERS


@asynccontextmanager
async def connections(
    config: Config, world: World, metrics: Metrics, *, permits: Permits = all_requests
) -> AsyncGenerator[Clients]:
    """Clients of the configured API server, closed at the end. Errors: `CommandFailed`."""
    try:
        access = world.access(config.client, world.environ)
    except InvalidConfiguration as error:
        raise CommandFailed(str(error)) from error
    clients = Clients(
        access, config, metrics, world.times.wall, connect=world.connect, permits=permits
    )
    async with clients:
        yield clients


def only_cloud(config: Config) -> CloudChoice:
    """Returns the selected cloud. Raises CommandFailed if there are several."""
    first, *others = config.shared.clouds
    if others:
        raise CommandFailed(
            f"--cloud-provider: this command works with one cloud, but "
            f"{', '.join(cloud.name for cloud in config.shared.clouds)} are selected"
        )
    return first


def choose_provider(config: Config, world: World) -> tuple[Connect, ProviderConfig]:
    """Returns the provider and its configuration. Connects to nothing.

    Raises CommandFailed if `--cloud-provider` or `--cloud-config` is wrong, and Fatal if the
    installed provider cannot be loaded.
    """
    shared, cloud = config.shared, only_cloud(config)
    try:
        connect = world.providers.get(cloud.provider)
    except UnknownProvider as error:
        raise CommandFailed(f"--cloud-provider: {error}") from error
    except CloudError as error:
        raise Fatal(f"Cloud provider could not be initialized: {error}") from error
    if connect is None:
        known = ", ".join(world.providers.names()) or "none is installed"
        raise CommandFailed(
            f"--cloud-provider={cloud.provider} selects no provider (known: {known})"
        )
    try:
        return connect, read_config(
            cloud.config_file, environ=world.environ, cluster_name=shared.cluster_name
        )
    except Misconfigured as error:
        raise CommandFailed(str(error)) from error


@asynccontextmanager
async def provider(config: Config, world: World) -> AsyncGenerator[Cloud]:
    """The configured provider's cloud, connected. Raises CommandFailed and Fatal."""
    shared = config.shared
    connect, given = choose_provider(config, world)
    async with AsyncExitStack() as stack:
        try:
            cloud = await stack.enter_async_context(
                connected(only_cloud(config).name, connect, given)
            )
        except CloudError as error:
            raise Fatal(f"Cloud provider could not be initialized: {error}") from error
        _check_cluster_id(cloud, allow_untagged=shared.allow_untagged_cloud)
        yield cloud


def make_context(
    config: Config, world: World, clients: Clients, cloud: Cloud, fence: Fence
) -> ManagerContext:
    resync = config.generic.min_resync_period
    client = clients.main("shared-informers")
    return ManagerContext(
        config=config,
        scope=only_scope(cloud),
        clients=clients,
        informers=Informers(client, world.random, resync, world.settled),
        cluster_identity=ClusterIdentity(clients.main("cluster-id"), config.shared.cluster_id),
        fence=fence,
        metrics=clients.metrics,
        clock=world.times.wall,
        random=world.random,
        controllers=world.controllers,
    )


def _check_cluster_id(cloud: Cloud, *, allow_untagged: bool) -> None:
    if cloud.has_cluster_id:
        return
    if not allow_untagged:
        raise Fatal(NO_CLUSTER_ID)
    log.warning(
        "detected a cluster without a ClusterID.  A ClusterID will be required in the future.  "
        "Please tag your cluster to avoid any future issues"
    )
