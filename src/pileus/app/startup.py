"""The start of manager and plans: API clients, the cloud provider, and the context."""

import socket
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from random import Random
from typing import Protocol, runtime_checkable

from pileus.app.clients import Clients
from pileus.app.clients import Connect as Dial
from pileus.app.cluster_id import ClusterIdentity
from pileus.app.context import ManagerContext
from pileus.app.errors import CommandFailed, Fatal
from pileus.app.registry import CONTROLLERS, Controllers
from pileus.app.settings import ManagerSettings
from pileus.app.validate import together
from pileus.cloud.choice import CloudChoice, CloudSettings
from pileus.cloud.connection import connected, read_config
from pileus.cloud.errors import CloudError, Misconfigured
from pileus.cloud.interface import Cloud, Connect, ProviderConfig
from pileus.cloud.registry import PROVIDERS, Registry, UnknownProvider
from pileus.dataclass import dataclass
from pileus.fence import Fence
from pileus.kube.access import Access
from pileus.kube.config.choose import load_access
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.http import HttpTransport
from pileus.kube.settings import ClientSettings
from pileus.kube.transport import Permits, all_requests
from pileus.objects.cloud_scope import CLASS_PREFIX, CloudScope, only_scope, process_scope
from pileus.objects.settings import ClusterSettings
from pileus.runtime.informers import Informers, freeze
from pileus.runtime.leadership import Times
from pileus.runtime.lease import new_identity
from pileus.runtime.watchdog import watched_loop
from pileus.settings.config import Config
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics, new_metrics

log = Log(__name__)

NO_CLUSTER_ID = (
    "no ClusterID found.  A ClusterID is required for the cloud provider to function properly.  "
    "This check can be bypassed by setting the allow-untagged-cloud option"
)


def own_identity() -> str:
    """Returns the name of this process as the holder of a lease."""
    return new_identity(socket.gethostname())


def manager_access(given: ClientSettings, environ: Mapping[str, str]) -> Access:
    """Returns the access of `--kubeconfig` and `--master`, else of the pod, like the Go program."""
    return load_access(given.kubeconfig, given.master, environ)


@dataclass(frozen=True, slots=True)
class World:
    """The environment of the process: time, randomness, connections. Tests pass others."""

    environ: Mapping[str, str]
    times: Times
    random: Random
    set_verbosity: Callable[[int], None]
    providers: Registry = PROVIDERS
    connect: Dial = HttpTransport
    identity: Callable[[], str] = own_identity
    watched: Callable[[Metrics], AbstractContextManager[None]] = watched_loop
    """Watches the event loop while its block lasts."""
    metrics: Callable[[], Metrics] = new_metrics
    """Creates the metrics of one run."""
    access: Callable[[ClientSettings, Mapping[str, str]], Access] = manager_access
    """Returns address and credentials of the API server. Raises InvalidConfiguration."""
    lost: Callable[[], None] = lambda: None
    """Called when a lease is lost, before the work is cancelled."""
    settled: Callable[[], None] = freeze
    """Called when an informer has filled its cache, which lives as long as the process."""
    controllers: Controllers = CONTROLLERS


@asynccontextmanager
async def connections(
    config: Config, world: World, metrics: Metrics, *, permits: Permits = all_requests
) -> AsyncGenerator[Clients]:
    """Open clients of the API server for the length of the block. Raises CommandFailed."""
    try:
        access = world.access(config[ClientSettings], world.environ)
    except InvalidConfiguration as error:
        raise CommandFailed(str(error)) from error
    clients = Clients(
        access, config, metrics, world.times.wall, connect=world.connect, permits=permits
    )
    async with clients:
        yield clients


def provider_named(providers: Registry, choice: CloudChoice) -> Connect:
    """Returns the provider of a cloud. Connects to nothing.

    Raises CommandFailed if `--cloud-provider` names none, and Fatal if it cannot be loaded.
    """
    try:
        connect = providers.get(choice.provider)
    except UnknownProvider as error:
        raise CommandFailed(f"--cloud-provider: {error}") from error
    except CloudError as error:
        raise Fatal(f"Cloud provider could not be initialized: {error}") from error
    if connect is None:
        known = ", ".join(providers.names()) or "none is installed"
        raise CommandFailed(
            f"--cloud-provider={choice.provider} selects no provider (known: {known})"
        )
    return connect


def choose_provider(
    config: Config, world: World, choice: CloudChoice
) -> tuple[Connect, ProviderConfig]:
    """Returns the provider and its configuration. Connects to nothing.

    Raises CommandFailed if `--cloud-provider` or `--cloud-config` is wrong, and Fatal if the
    installed provider cannot be loaded.
    """
    connect = provider_named(world.providers, choice)
    try:
        return connect, read_config(
            choice.config_file,
            environ=world.environ,
            cluster_name=config[ClusterSettings].name,
            user_agent=config[CloudSettings].user_agent,
        )
    except Misconfigured as error:
        raise CommandFailed(str(error)) from error


@asynccontextmanager
async def connect_cloud(config: Config, world: World, choice: CloudChoice) -> AsyncGenerator[Cloud]:
    """Connect to a cloud for the length of the block.

    Raises CloudError if that fails, and CommandFailed and Fatal as `choose_provider`.
    """
    connect, given = choose_provider(config, world, choice)
    async with connected(choice.name, connect, given) as cloud:
        check_cluster_id(cloud, allow_untagged=config[CloudSettings].allow_untagged)
        check_flags(config, world.controllers, cloud)
        yield cloud


@asynccontextmanager
async def provider(config: Config, world: World) -> AsyncGenerator[Cloud]:
    """Connect to the only cloud for the length of the block. Raises CommandFailed and Fatal."""
    (choice,) = config[CloudSettings].clouds
    async with AsyncExitStack() as stack:
        try:
            cloud = await stack.enter_async_context(connect_cloud(config, world, choice))
        except NoClusterId as error:
            raise Fatal(str(error)) from error
        except WrongFlags as error:
            raise CommandFailed(str(error)) from error
        except CloudError as error:
            raise Fatal(f"Cloud provider could not be initialized: {error}") from error
        yield cloud


def make_context(
    config: Config, world: World, clients: Clients, cloud: Cloud | None, fence: Fence
) -> ManagerContext:
    """Returns the context of the only cloud, or (without a cloud) of a process with several."""
    resync = config[ManagerSettings].min_resync_period
    if cloud is not None and cloud.metrics is not None:
        clients.metrics.registry.add_source(cloud.metrics)
    client = clients.main("shared-informers")
    return ManagerContext(
        config=config,
        scope=process_scope() if cloud is None else _only_scope(config, cloud),
        clients=clients,
        informers=Informers(client, world.random, resync, world.settled),
        cluster_identity=ClusterIdentity(clients.main("cluster-id"), config[ClusterSettings].id),
        fence=fence,
        metrics=clients.metrics,
        clock=world.times.wall,
        random=world.random,
        controllers=world.controllers,
    )


def _only_scope(config: Config, cloud: Cloud) -> CloudScope:
    choice = config[CloudSettings].clouds[0]
    own_name = (f"{CLASS_PREFIX}{choice.name}",) if choice.name != choice.provider else ()
    return only_scope(cloud, (*own_name, *choice.classes), is_default=choice.default)


class NoClusterId(Misconfigured):
    """The cloud's resources are not tagged with a cluster."""


class WrongFlags(Misconfigured):
    """Flags are wrong that a controller of this cloud reads."""


@runtime_checkable
class CheckedWithCloud(Protocol):
    """Settings of a controller, with rules that matter only if the cloud supports it."""

    def problems_with(self, cloud: Cloud) -> Iterable[str]:
        """Returns what is wrong for a controller that runs with this cloud."""
        ...


def check_flags(config: Config, controllers: Controllers, cloud: Cloud) -> None:
    """Raises WrongFlags if a controller that runs with this cloud cannot use its flags."""
    enabled = controllers.enabled(config[ManagerSettings].controllers)
    settings = (config[each.settings] for each in enabled)
    checked = (each for each in settings if isinstance(each, CheckedWithCloud))
    if found := tuple(problem for each in checked for problem in each.problems_with(cloud)):
        raise WrongFlags(together(found))


def check_cluster_id(cloud: Cloud, *, allow_untagged: bool) -> None:
    """Raises NoClusterId if the cloud has none and `--allow-untagged-cloud` is not set."""
    if cloud.has_cluster_id:
        return
    if not allow_untagged:
        raise NoClusterId(NO_CLUSTER_ID)
    log.warning(
        "detected a cluster without a ClusterID.  A ClusterID will be required in the future.  "
        "Please tag your cluster to avoid any future issues"
    )
