"""The whole process as nested blocks: leaving one is its shutdown.

    connections ▸ port opened ▸ provider ▸ events ▸ port served ▸ lease ▸ controllers

Every step that fails says what and why, and what was opened before it is closed again.
"""

import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from prometheus_client import CollectorRegistry

from pileus.app.beside import beside
from pileus.app.clients import Clients, Connect
from pileus.app.config import Config
from pileus.app.configz import GROUP, configz
from pileus.app.delegates import delegates
from pileus.app.ending import CommandFailed, Fatal
from pileus.app.informers import SharedInformers
from pileus.app.leading import Leases, lead
from pileus.app.migration import DEFAULT, Migration, MigrationError, read_migration
from pileus.app.work import Post
from pileus.cloud.connection import connected, read_config
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud
from pileus.cloud.registry import PROVIDERS, Registry
from pileus.fence import Open
from pileus.kube.config.choose import load_access
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.http import HttpTransport
from pileus.runtime.events import EventRecorder
from pileus.runtime.leadership import Election, Times
from pileus.runtime.lease import Candidate, KubeLease, new_identity
from pileus.runtime.watchdog import watched_loop
from pileus.server.configz import Configz
from pileus.server.errors import ServerError
from pileus.server.health import Health
from pileus.server.port import Port, Surroundings, opened
from pileus.server.router import Routes
from pileus.server.surface import Surface, surface_routes
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics
from pileus.version import KUBERNETES, PILEUS, PROGRAM

log = Log(__name__)

NO_CLUSTER_ID = (
    "no ClusterID found.  A ClusterID is required for the cloud provider to function properly.  "
    "This check can be bypassed by setting the allow-untagged-cloud option"
)


@dataclass(frozen=True, slots=True)
class World:
    """What the process finds around itself; tests give others."""

    environ: Mapping[str, str]
    times: Times
    random: Random
    set_verbosity: Callable[[int], None]
    providers: Registry = PROVIDERS
    connect: Connect = HttpTransport


class Manager:
    """One run of the program."""

    def __init__(self, config: Config, world: World) -> None:
        self._config = config
        self._world = world
        self._metrics = Metrics(CollectorRegistry())
        self._health = Health()
        self._migration = _migration(config)

    async def run(self) -> None:
        """Run until cancelled.

        Errors: `CommandFailed` and `Fatal` from the start-up, `LeadershipLost` from later on;
        perhaps within a group.
        """
        with watched_loop(self._metrics):
            await self._run()

    async def _run(self) -> None:
        async with (
            self._connections() as clients,
            self._opened_port() as port,
            self._provider() as cloud,
        ):
            log.info("Version", kubernetes=KUBERNETES, pileus=PILEUS)
            events = self._events(clients)
            async with beside(events.run()), AsyncExitStack() as stack:
                if port is not None:
                    await stack.enter_async_context(port.serving(self._routes()))
                leases = self._leases(clients, events)
                await lead(self._post(clients, cloud, leases), leases, self._health)

    @asynccontextmanager
    async def _connections(self) -> AsyncGenerator[Clients]:
        given = self._config.client
        try:
            access = load_access(given.kubeconfig, given.master, self._world.environ)
        except InvalidConfiguration as error:
            raise CommandFailed(str(error)) from error
        clock, connect = self._world.times.wall, self._world.connect
        async with Clients(access, self._config, self._metrics, clock, connect=connect) as clients:
            yield clients

    @asynccontextmanager
    async def _opened_port(self) -> AsyncGenerator[Port | None]:
        async with AsyncExitStack() as stack:
            try:
                asked = delegates(
                    self._config.delegation, self._world.environ, self._metrics, stack
                )
                around = Surroundings(self._metrics, self._world.times.wall, asked)
                port = await stack.enter_async_context(opened(self._config.server, around))
            except (InvalidConfiguration, ServerError) as error:
                raise CommandFailed(str(error)) from error
            yield port

    @asynccontextmanager
    async def _provider(self) -> AsyncGenerator[Cloud]:
        shared = self._config.shared
        async with AsyncExitStack() as stack:
            try:
                connect = self._world.providers.get(shared.cloud_provider)
                if connect is None:
                    raise Fatal("Cloud provider is nil: --cloud-provider=external names none")
                given = read_config(
                    shared.cloud_config_file,
                    environ=self._world.environ,
                    cluster_name=shared.cluster_name,
                )
                cloud = await stack.enter_async_context(
                    connected(shared.cloud_provider, connect, given)
                )
            except CloudError as error:
                raise Fatal(f"Cloud provider could not be initialized: {error}") from error
            self._check_cluster_id(cloud)
            yield cloud

    def _check_cluster_id(self, cloud: Cloud) -> None:
        if cloud.has_cluster_id:
            return
        if not self._config.shared.allow_untagged_cloud:
            raise Fatal(NO_CLUSTER_ID)
        log.warning(
            "detected a cluster without a ClusterID.  A ClusterID will be required in the future.  "
            "Please tag your cluster to avoid any future issues"
        )

    def _events(self, clients: Clients) -> EventRecorder:
        return EventRecorder(
            PROGRAM,
            clients.main("events"),
            clock=self._world.times.wall,
            random=self._world.random,
            metrics=self._metrics,
        )

    def _routes(self) -> Routes:
        shown = Configz()
        shown.add(GROUP, lambda: configz(self._config, self._migration)[GROUP])
        surface = Surface(self._health, self._metrics, shown, self._world.set_verbosity)
        return surface_routes(surface, profiling=self._config.generic.profiling)

    def _leases(self, clients: Clients, events: EventRecorder) -> Leases:
        wanted = self._config.leader_election
        if not wanted.enabled:
            return Leases()
        identity = new_identity(socket.gethostname())
        main = self._election(wanted.resource_name, identity, clients, events)
        self._health.add("leaderElection", main.health)
        if self._migration is None:
            return Leases(main=main)
        moving = self._election(self._migration.leader_name, identity, clients, events)
        self._health.add("leaderElection-migration", moving.health)
        return Leases(main=main, migration=moving, plan=self._migration)

    def _election(
        self, name: str, identity: str, clients: Clients, events: EventRecorder
    ) -> Election:
        wanted = self._config.leader_election
        candidate = Candidate(wanted.resource_namespace, name, identity, wanted.durations)
        store = KubeLease(clients.own("leader-election"), candidate.namespace, candidate.name)
        return Election(
            candidate,
            store,
            random=self._world.random,
            metrics=self._metrics,
            events=events,
            times=self._world.times,
        )

    def _post(self, clients: Clients, cloud: Cloud, leases: Leases) -> Post:
        random, generic = self._world.random, self._config.generic
        informers = SharedInformers(
            clients.main("shared-informers"), random, generic.min_resync_period
        )
        return Post(
            config=self._config,
            cloud=cloud,
            clients=clients,
            informers=informers,
            fence=leases.main.fence if leases.main else Open(),
            metrics=self._metrics,
            clock=self._world.times.wall,
            random=random,
        )


def _migration(config: Config) -> Migration | None:
    """The plan of a leader migration; None if none is under way, or nobody elects."""
    if not (config.leader_migration.enabled and config.leader_election.enabled):
        return None
    path = config.leader_migration.config_file
    try:
        return read_migration(Path(path)) if path else DEFAULT
    except MigrationError as error:
        raise CommandFailed(str(error)) from error
