"""The whole process as nested blocks: leaving a block shuts its part down.

    connections ▸ ports opened ▸ provider ▸ events ▸ ports served ▸ lease ▸ controllers

If a step fails, its error is reported and everything opened before it is closed.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pileus.admission.settings import WebhookSettings
from pileus.app.background import background
from pileus.app.clients import Clients, delegates
from pileus.app.clouds import Clouds, unguarded
from pileus.app.configz import GROUP, configz
from pileus.app.context import ManagerContext
from pileus.app.dry_run import run_dry
from pileus.app.errors import CommandFailed
from pileus.app.leader import Leases, lead
from pileus.app.migration import DEFAULT, Migration, MigrationError, read_migration
from pileus.app.settings import DebuggingSettings, LeaderMigrationSettings, ManagerSettings
from pileus.app.startup import World, choose_provider, connections, make_context, provider
from pileus.cloud.choice import CloudSettings
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.stack import read_only
from pileus.fence import Fence, Open
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.transport import all_requests, reads_and_events
from pileus.runtime.events import EventRecorder
from pileus.runtime.leadership import Election
from pileus.runtime.lease import Candidate, KubeLease
from pileus.runtime.memory import remembering
from pileus.runtime.settings import LeaderElectionSettings
from pileus.server.endpoints import Configz, Surface, surface_routes
from pileus.server.errors import ServerError
from pileus.server.health import Health
from pileus.server.history import history_routes
from pileus.server.port import Port, PortContext, opened
from pileus.server.router import Routes
from pileus.server.settings import ServerSettings
from pileus.settings.config import Config
from pileus.telemetry.journal import Journal
from pileus.telemetry.journal_settings import JournalSettings
from pileus.telemetry.journal_sinks import SinkUnavailable, journal_sinks
from pileus.telemetry.log import Log
from pileus.telemetry.passes import Sink, recording
from pileus.version import KUBERNETES, PILEUS, PROGRAM

if TYPE_CHECKING:
    from pileus.admission.port import WebhookPort

log = Log(__name__)


class Manager:
    """One run of the program."""

    def __init__(self, config: Config, world: World) -> None:
        self._config = config
        self._world = world
        self._metrics = world.metrics()
        self._health = Health()
        self._migration = _migration(config)
        self.journal = Journal(world.times.wall.now(), config[JournalSettings].bounds)

    async def run(self) -> None:
        """Run until cancelled.

        Raises CommandFailed and Fatal at the start, LeadershipLost later; possibly in a group.
        """
        clock, settings = self._world.times.wall, self._config[JournalSettings]
        async with _sinks(settings) as sinks:
            with (
                self._world.watched(self._metrics),
                remembering(self._metrics),
                recording(clock, self.journal.record, *sinks),
            ):
                await self._run()

    async def _run(self) -> None:
        for choice in self._config[CloudSettings].clouds:  # reports wrong flags before all else
            choose_provider(self._config, self._world, choice)
        permits = reads_and_events if self._config[ManagerSettings].dry_run else all_requests
        async with (
            connections(self._config, self._world, self._metrics, permits=permits) as clients,
            self._opened_port() as port,
            self._opened_webhooks() as webhook_port,
            self._only_cloud() as cloud,
        ):
            log.info("Version", kubernetes=KUBERNETES, pileus=PILEUS)
            events = self._events(clients)
            async with background(events.run()), AsyncExitStack() as stack:
                if webhook_port is not None:
                    await stack.enter_async_context(self._webhooks(webhook_port, clients, cloud))
                if port is not None:
                    await stack.enter_async_context(port.serving(self._routes()))
                await self._work(clients, cloud, events)

    @asynccontextmanager
    async def _only_cloud(self) -> AsyncGenerator[Cloud | None]:
        """Connect to the only cloud; None if there are several, which are connected later."""
        if len(self._config[CloudSettings].clouds) > 1:
            yield None
            return
        async with provider(self._config, self._world) as cloud:
            yield cloud

    async def _work(self, clients: Clients, cloud: Cloud | None, events: EventRecorder) -> None:
        """Run as the leader, or report what a leader would do (dry run, without a lease)."""
        if self._config[ManagerSettings].dry_run:
            context = self._context(clients, cloud and read_only(cloud), Open(), events)
            await run_dry(context, self._health, events)
            return
        leases = self._leases(clients, events)
        fence = leases.main.fence if leases.main else Open()
        await lead(self._context(clients, cloud, fence, events), leases, self._health)

    def _context(
        self, clients: Clients, cloud: Cloud | None, fence: Fence, events: EventRecorder
    ) -> ManagerContext:
        context = make_context(self._config, self._world, clients, cloud, fence)
        if cloud is not None:
            return context
        guard = read_only if self._config[ManagerSettings].dry_run else unguarded
        return Clouds(context, self._world, events, guard).process

    @asynccontextmanager
    async def _opened_port(self) -> AsyncGenerator[Port | None]:
        async with AsyncExitStack() as stack:
            try:
                asked = delegates(
                    self._config[ServerSettings], self._world.environ, self._metrics, stack
                )
                around = PortContext(self._metrics, self._world.times.wall, asked)
                port = await stack.enter_async_context(opened(self._config[ServerSettings], around))
            except (InvalidConfiguration, ServerError) as error:
                raise CommandFailed(str(error)) from error
            yield port

    @asynccontextmanager
    async def _opened_webhooks(self) -> "AsyncGenerator[WebhookPort | None]":
        if not self._config[WebhookSettings].chosen() or self._config[ManagerSettings].dry_run:
            yield None
            return
        from pileus.app.webhooks import opened_port  # noqa: PLC0415 -- 11 MB, for webhooks only

        with opened_port(self._config, self._metrics) as port:
            yield port

    @asynccontextmanager
    async def _webhooks(
        self, port: "WebhookPort", clients: Clients, cloud: Cloud | None
    ) -> AsyncGenerator[None]:
        from pileus.app.webhooks import Webhooks  # noqa: PLC0415 -- as above

        async with Webhooks(self._config, self._world, clients).serving(port, cloud):
            yield

    def _events(self, clients: Clients) -> EventRecorder:
        return EventRecorder(
            PROGRAM,
            clients.giving_way("events"),
            clock=self._world.times.wall,
            random=self._world.random,
            metrics=self._metrics,
        )

    def _routes(self) -> Routes:
        shown = Configz()
        shown.add(GROUP, lambda: configz(self._config, self._migration)[GROUP])
        history = history_routes(self.journal, self._world.times.wall)
        surface = Surface(self._health, self._metrics, shown, self._world.set_verbosity, history)
        return surface_routes(surface, profiling=self._config[DebuggingSettings].profiling)

    def _leases(self, clients: Clients, events: EventRecorder) -> Leases:
        wanted = self._config[LeaderElectionSettings]
        if not wanted.enabled:
            return Leases()
        identity = self.journal.identity = self._world.identity()
        main = self._election(wanted.resource_name, identity, clients, events)
        self.journal.leads = lambda: main.fence.is_held
        self._health.add("leaderElection", main.health)
        if self._migration is None:
            return Leases(main=main)
        moving = self._election(self._migration.leader_name, identity, clients, events)
        self._health.add("leaderElection-migration", moving.health)
        return Leases(main=main, migration=moving, plan=self._migration)

    def _election(
        self, name: str, identity: str, clients: Clients, events: EventRecorder
    ) -> Election:
        wanted = self._config[LeaderElectionSettings]
        candidate = Candidate(wanted.resource_namespace, name, identity, wanted.durations)
        store = KubeLease(clients.own("leader-election"), candidate.namespace, candidate.name)
        election = Election(
            candidate,
            store,
            random=self._world.random,
            metrics=self._metrics,
            events=events,
            times=self._world.times,
        )
        election.when_lost = self._world.lost
        return election


@asynccontextmanager
async def _sinks(settings: JournalSettings) -> AsyncGenerator[Sequence[Sink]]:
    async with AsyncExitStack() as stack:
        try:
            sinks = await stack.enter_async_context(journal_sinks(settings))
        except SinkUnavailable as error:
            raise CommandFailed(str(error)) from error
        yield sinks


def _migration(config: Config) -> Migration | None:
    """Returns the configured leader migration; None without one or without leader election."""
    if not (config[LeaderMigrationSettings].enabled and config[LeaderElectionSettings].enabled):
        return None
    path = config[LeaderMigrationSettings].config_file
    try:
        return read_migration(Path(path)) if path else DEFAULT
    except MigrationError as error:
        raise CommandFailed(f"--leader-migration-config: {error}") from error
