"""The leader: starts the provider, informers and controllers.

lease ──▶ API server is healthy ──▶ provider's start ──▶ controllers, in random order ──▶ informers
  │                                 (of each cloud, if there are several)
  └─ with leader migration: a second lease, and the controllers that move, inside the first
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace

from pileus.app.clouds import Clouds, CloudSlot
from pileus.app.context import BuiltController, ManagerContext
from pileus.app.errors import Fatal, NoApiServer
from pileus.app.migration import Lock, Migration
from pileus.app.node_assignment import NAME as ASSIGNMENT
from pileus.app.provider_access import provider_started, run_own
from pileus.app.registry import AnyDescriptor
from pileus.app.settings import ManagerSettings
from pileus.cloud.errors import CloudError
from pileus.cloud.middleware.budget import Budget
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.dataclass import dataclass
from pileus.fence import Fence
from pileus.kube.client import Client
from pileus.kube.errors import ApiError, KubeError, Unreachable
from pileus.kube.model.core_v1 import NODES
from pileus.objects.descriptor import ControllerNames, Skipped
from pileus.objects.ownership import IgnoredNodes
from pileus.runtime.leadership import Election
from pileus.server.health import Health
from pileus.telemetry.log import Log, logging_cloud
from pileus.telemetry.metrics import Metrics
from pileus.version import PROGRAM

log = Log(__name__)

API_PATIENCE = 10.0
"""Seconds after which an API server that refuses our identity ends the start."""
STUCK = 600.0
"""Seconds of one pass of the node assignment after which the process counts as unhealthy."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 10.0
"""Seconds between two health checks of the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """The leases to hold; None if not needed."""

    main: Election | None = None
    migration: Election | None = None
    plan: Migration | None = None

    def lock_of(self, names: ControllerNames) -> Lock:
        return self.plan.lock_of(names.canonical) if self.plan else Lock.MAIN


class Leader:
    """The process while it is the leader."""

    def __init__(self, context: ManagerContext, leases: Leases, health: Health) -> None:
        self._context = context
        self._leases = leases
        self._health = health
        self._equipment: dict[str, Equipment] = {}
        """By cloud: both locks share its call budget."""

    async def run(self) -> None:
        """Run informers and controllers until cancelled."""
        informers = self._context.informers
        self._health.add("informers", informers.ill, ready=False)
        if self._context.clouds is None:
            self._equip(self._context)
        self._health.add("informers-synced", informers.not_ready, live=False)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._main_lock())
            if self._leases.migration is not None:
                group.create_task(self._migration_lock(self._leases.migration))
            group.create_task(informers.run(), name="informers")

    async def _main_lock(self) -> None:
        _report_ignored_nodes(self._context)
        async with asyncio.TaskGroup() as group:
            clouds = self._context.clouds
            if clouds is None:
                group.create_task(self._only_cloud(self._context, Lock.MAIN))
                return
            for slot in clouds.slots:
                group.create_task(self._cloud(clouds, slot, Lock.MAIN, self._context.fence))
            group.create_task(self._assign(clouds), name=ASSIGNMENT)
            await self._start(group, self._context, Lock.MAIN)

    async def _migration_lock(self, lease: Election) -> None:
        async with lease.leading(), asyncio.TaskGroup() as group:
            clouds, moved = self._context.clouds, replace(self._context, fence=lease.fence)
            if clouds is None:
                group.create_task(self._only_cloud(moved, Lock.MIGRATION))
                return
            for slot in clouds.slots:
                group.create_task(self._cloud(clouds, slot, Lock.MIGRATION, lease.fence))
            await self._start(group, moved, Lock.MIGRATION)

    async def _only_cloud(self, context: ManagerContext, lock: Lock) -> None:
        async with self._equipped(context) as ready:
            await self._work(ready, lock)

    async def _cloud(self, clouds: Clouds, slot: CloudSlot, lock: Lock, fence: Fence) -> None:
        """Work for one of several clouds, from when it is connected."""
        with logging_cloud(slot.name):
            context = replace(await slot.wait(), fence=fence)
            self._equip(context)
            async with self._equipped(context) as ready:
                if lock is Lock.MAIN:
                    clouds.use(slot, ready)
                await self._work(clouds.joined(ready), lock)

    def _equip(self, context: ManagerContext) -> None:
        scope = context.scope
        if scope.name not in self._equipment:
            equipment = Equipment(budget=Budget(scope.cloud.abilities.limits, context.metrics))
            self._equipment[scope.name] = equipment
            self._health.add(scope.scoped("cloud-calls"), equipment.overdue.health)

    @asynccontextmanager
    async def _equipped(self, context: ManagerContext) -> AsyncGenerator[ManagerContext]:
        """Wrap the cloud of the context in middleware; writes stop with the context's fence."""
        async with stacked(
            context.cloud,
            metrics=context.metrics,
            fence=context.fence,
            equipment=self._equipment[context.scope.name],
        ) as cloud:
            yield context.with_cloud(cloud)

    async def _work(self, context: ManagerContext, lock: Lock) -> None:
        async with asyncio.TaskGroup() as group:
            if lock is Lock.MAIN:
                for own in context.cloud.controllers:
                    group.create_task(run_own(own, context, self._health), name=own.name)
            await self._start(group, context, lock)

    async def _assign(self, clouds: Clouds) -> None:
        assignment = clouds.assignment
        self._health.add(ASSIGNMENT, lambda: assignment.stuck(STUCK))
        clouds.classes.subscribe()
        try:
            await assignment.run()
        finally:
            self._health.remove(ASSIGNMENT)

    async def _start(self, group: asyncio.TaskGroup, context: ManagerContext, lock: Lock) -> None:
        """Start the controllers of one lock in random order, with pauses between them."""
        chosen = [each for each in context.here() if self._leases.lock_of(each.names) is lock]
        pause = context.config[ManagerSettings].start_interval
        for descriptor in context.random.sample(chosen, len(chosen)):
            built = context.build(descriptor)
            name = context.scope.scoped(descriptor.names.canonical)
            if isinstance(built, Skipped):
                write = log.warning if built.is_news else log.info
                write("Skipping controller", controller=name, why=built.why)
                continue
            group.create_task(self._run(descriptor, built, context.metrics), name=name)
            await asyncio.sleep(pause * context.random.uniform(1, 2))

    async def _run(
        self, descriptor: AnyDescriptor, built: BuiltController, metrics: Metrics
    ) -> None:
        log.info("Started controller", controller=built.name)
        controller, limit = built.controller, descriptor.stuck_after
        periodic = built.periodic
        self._health.add(built.name, lambda: controller.stuck(limit))
        self._health.add(periodic, controller.failing, live=False)
        _count(descriptor.names, metrics, 1)
        try:
            await built.run()
        finally:
            _count(descriptor.names, metrics, 0)
            self._health.remove(built.name)
            self._health.remove(periodic)
            log.info("Stopped controller", controller=built.name)


def _count(names: ControllerNames, metrics: Metrics, running: int) -> None:
    if names.metric:
        metrics.running_controllers.labels(names.metric, PROGRAM).set(running)


def _report_ignored_nodes(context: ManagerContext) -> None:
    """Nodes of clouds that are not the manager's are logged once and counted."""
    if not any(NODES in each.kinds for each in context.enabled()):
        return  # the manager then has no right to watch nodes
    cloud, clouds = context.cloud, context.clouds
    whose = context.scope.whose if clouds is None else clouds.nodes.whose_in_any
    if clouds is not None or cloud.instances is not None or cloud.owns is not None:
        handler = IgnoredNodes(whose, cloud.name, context.metrics)
        context.informers.of(NODES).subscribe(handler)


async def lead(context: ManagerContext, leases: Leases, health: Health) -> None:
    """Wait for the lease, then work until cancelled or the lease is lost.

    Raises Fatal if the API server refuses our identity, or the only cloud's provider cannot start.
    """
    leader = Leader(context, leases, health)
    async with leases.main.leading() if leases.main else nullcontext():
        await wait_for_api_server(context)
        async with (
            provider_leading(context)
            if context.clouds is None
            else context.clouds.connecting(health)
        ):
            await leader.run()


@asynccontextmanager
async def provider_leading(context: ManagerContext) -> AsyncGenerator[None]:
    """Run the provider of the only cloud for the length of the block. Raises Fatal."""
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(provider_started(context))
        except CloudError as error:
            raise Fatal(f"Cloud provider could not be initialized: {error}") from error
        yield


async def wait_for_api_server(context: ManagerContext, *, patience: float | None = None) -> None:
    """Wait until `/healthz` of the API server succeeds.

    Raises Fatal if the server refuses our identity for `API_PATIENCE` seconds, because waiting
    does not change that; or if `patience` is given and it is not healthy within so many seconds,
    or has a certificate that is not trusted. A manager waits for that one: CAs are rotated.
    """
    trouble: list[KubeError] = []
    client = context.clients.main("healthz")
    try:
        async with asyncio.timeout(patience):
            await _poll_health(client, trouble, needs_trust=patience is not None)
    except TimeoutError:
        raise _not_healthy(trouble[-1] if trouble else f"no answer within {patience} s") from None


async def _poll_health(
    client: Client, trouble: list[KubeError], *, needs_trust: bool = False
) -> None:
    """Check until it is healthy; `trouble` is then the last error."""
    now = asyncio.get_running_loop().time
    pause, last_other = FIRST_PAUSE, now()
    while (found := await _trouble(client)) is not None:
        trouble[:] = [found]
        if needs_trust and isinstance(found, Unreachable) and found.untrusted:
            raise _not_healthy(found)
        if not _is_refusal(found):
            last_other = now()
        elif now() - last_other >= API_PATIENCE:
            raise _not_healthy(found)
        log.info("API server is not ready", err=found)
        await asyncio.sleep(pause)
        pause = min(pause * 1.25, LONGEST_PAUSE)


def _is_refusal(error: KubeError) -> bool:
    """Whether the server answers but refuses us: a wrong token or a missing permission."""
    return isinstance(error, ApiError) and 400 <= error.status < 500 and error.status != 429  # noqa: PLR2004 -- HTTP's own numbers


def _not_healthy(why: KubeError | str) -> NoApiServer:
    untrusted = isinstance(why, Unreachable) and why.untrusted
    return NoApiServer(f"failed to wait for apiserver being healthy: {why}", untrusted=untrusted)


async def _trouble(client: Client) -> KubeError | None:
    try:
        await client.raw("GET", "/healthz")
    except KubeError as error:
        return error
    return None
