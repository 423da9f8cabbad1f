"""What the manager has for one cloud, and how it builds controllers from it."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from pileus.app.background import background
from pileus.app.clients import Clients, Rate
from pileus.app.cluster_id import ClusterIdentity
from pileus.app.registry import CONTROLLERS, Controllers
from pileus.app.settings import ManagerSettings
from pileus.clock import Clock
from pileus.cloud.interface import Cloud
from pileus.dataclass import dataclass
from pileus.fence import Fence
from pileus.kube.client import Client
from pileus.kube.settings import ClientSettings
from pileus.objects.cloud_scope import CloudScope
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    RunningController,
    Skipped,
)
from pileus.runtime.events import EventRecorder
from pileus.runtime.informers import Informers
from pileus.settings.config import Config
from pileus.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from pileus.app.clouds import Clouds


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerContext:
    """What all controllers of one cloud share. Their writes stop with the fence."""

    config: Config
    scope: CloudScope
    clients: Clients
    informers: Informers
    cluster_identity: ClusterIdentity
    fence: Fence
    metrics: Metrics
    clock: Clock
    random: Random
    controllers: Controllers = CONTROLLERS
    clouds: "Clouds | None" = None
    """The clouds of a manager with several; None: it has one."""

    @property
    def per_cloud(self) -> "tuple[ManagerContext, ...]":
        """Returns one context for each cloud that is connected."""
        return self.clouds.contexts() if self.clouds else (self,)

    @property
    def cloud(self) -> Cloud:
        return self.scope.cloud

    def with_cloud(self, cloud: Cloud) -> "ManagerContext":
        """Returns this context with middleware around its cloud."""
        return replace(self, scope=replace(self.scope, cloud=cloud))

    def enabled(self) -> tuple[ControllerDescriptor[Any], ...]:
        """Returns the controllers that `--controllers` enables."""
        return self.controllers.enabled(self.config[ManagerSettings].controllers)

    def here(self) -> tuple[ControllerDescriptor[Any], ...]:
        """Returns the enabled controllers of this scope: of a cloud, of the process, or both."""
        if self.scope.is_only and self.clouds is None:
            return self.enabled()
        return tuple(each for each in self.enabled() if each.per_cloud is not self.scope.is_only)

    def build(self, descriptor: ControllerDescriptor[Any]) -> "BuiltController | Skipped":
        """Builds a controller, or says why it does not run here."""
        client = self.clients.controller(descriptor.names.identity, fence=self.fence)
        events = self._events(descriptor.names, client)
        context = self._of(descriptor.names, client, events)
        built = descriptor.build(context, self.config[descriptor.settings])
        if isinstance(built, Skipped):
            return built
        name = descriptor.names.canonical
        periodic = self.scope.scoped(f"{name}-rounds")
        return BuiltController(self.scope.scoped(name), periodic, built, events)

    def _of(
        self, names: ControllerNames, client: Client, events: EventRecorder
    ) -> ControllerContext:
        rate = Rate.of(self.config[ClientSettings])
        return ControllerContext(
            names=names,
            scope=self.scope,
            client=client,
            events=events,
            informers=self.informers,
            fence=self.fence,
            metrics=self.metrics,
            clock=self.clock,
            random=self.random,
            cluster_id=self._cluster_id(),
            request_rate=rate and rate.qps,
        )

    def _cluster_id(self) -> Callable[[], Awaitable[str]]:
        return partial(self.cluster_identity.find, wait=not self.config[ManagerSettings].dry_run)

    def _events(self, names: ControllerNames, client: Client) -> EventRecorder:
        return EventRecorder(
            names.event_source,
            client,
            clock=self.clock,
            random=self.random,
            metrics=self.metrics,
        )


@dataclass(frozen=True, slots=True)
class BuiltController:
    """A controller with the recorder of its events."""

    name: str
    """In health checks and plans: with the cloud, if there are several."""
    periodic: str
    """The name of the health check of its periodic work."""
    controller: RunningController
    events: EventRecorder

    async def run(self) -> None:
        """Work and write events until cancelled."""
        async with background(self.events.run()):
            await self.controller.run()
