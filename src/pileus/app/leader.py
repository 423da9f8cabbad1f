"""What happens while this process leads: the provider's start, informers, controllers.

lease ──▶ API server is well ──▶ provider's own start ──▶ controllers, in random order ──▶ informers
  │
  └─ with leader migration: a second lease, and the controllers that move, inside the first
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

from pileus.app.context import BuiltController, ManagerContext
from pileus.app.errors import Fatal
from pileus.app.migration import Lock, Migration
from pileus.app.provider_access import Access, run_own
from pileus.app.registry import AnyDescriptor
from pileus.cloud.errors import CloudError
from pileus.cloud.middleware.budget import Budget
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.cloud.provider_context import entered
from pileus.kube.client import Client
from pileus.kube.errors import ApiError, KubeError
from pileus.kube.model.core_v1 import NODES
from pileus.objects.descriptor import ControllerNames, Skipped
from pileus.objects.ownership import IgnoredNodes
from pileus.runtime.leadership import Election
from pileus.server.health import Health
from pileus.telemetry.log import Log
from pileus.version import PROGRAM

log = Log(__name__)

API_PATIENCE = 10.0
"""Seconds after which an API server that refuses our identity ends the start."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 10.0
"""Seconds between two questions whether the API server is healthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """The locks to hold; None where none is needed."""

    main: Election | None = None
    migration: Election | None = None
    plan: Migration | None = None

    def lock_of(self, names: ControllerNames) -> Lock:
        return self.plan.lock_of(names.canonical) if self.plan else Lock.MAIN


@dataclass(frozen=True, slots=True)
class Leader:
    """The process while it leads."""

    context: ManagerContext
    leases: Leases
    health: Health
    equipment: Equipment

    async def run(self) -> None:
        """Run informers and controllers until cancelled."""
        context = self.context
        self.health.add("informers", context.informers.ill, ready=False)
        self.health.add("cloud-calls", self.equipment.overdue.health)
        self.health.add("informers-synced", context.informers.not_ready, live=False)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work_under_the_main_lock())
            if self.leases.migration is not None:
                group.create_task(self._work_under_the_migration_lock(self.leases.migration))
            group.create_task(context.informers.run(), name="informers")

    async def _work_under_the_main_lock(self) -> None:
        async with self._equipped(self.context) as context, asyncio.TaskGroup() as group:
            _report_ignored_nodes(context)
            for own in context.cloud.controllers:
                group.create_task(run_own(own, context, self.health), name=own.name)
            await self._start(group, context, Lock.MAIN)

    async def _work_under_the_migration_lock(self, lease: Election) -> None:
        moved = replace(self.context, fence=lease.fence)
        async with (
            lease.leading(),
            self._equipped(moved) as context,
            asyncio.TaskGroup() as group,
        ):
            await self._start(group, context, Lock.MIGRATION)

    @asynccontextmanager
    async def _equipped(self, context: ManagerContext) -> AsyncGenerator[ManagerContext]:
        """The context with a cloud whose writes end with the context's fence."""
        async with stacked(
            context.cloud, metrics=context.metrics, fence=context.fence, equipment=self.equipment
        ) as cloud:
            yield context.with_cloud(cloud)

    async def _start(self, group: asyncio.TaskGroup, context: ManagerContext, lock: Lock) -> None:
        """Start the controllers of one lock in random order, with pauses between them."""
        chosen = self._chosen(lock)
        pause = context.config.generic.controller_start_interval
        for descriptor in context.random.sample(chosen, len(chosen)):
            built = context.build(descriptor)
            name = context.scope.scoped(descriptor.names.canonical)
            if isinstance(built, Skipped):
                write = log.warning if built.is_news else log.info
                write("Skipping controller", controller=name, why=built.why)
                continue
            group.create_task(self._run(descriptor, built), name=name)
            await asyncio.sleep(pause * context.random.uniform(1, 2))

    def _chosen(self, lock: Lock) -> list[AnyDescriptor]:
        enabled = self.context.enabled()
        return [each for each in enabled if self.leases.lock_of(each.names) is lock]

    async def _run(self, descriptor: AnyDescriptor, built: BuiltController) -> None:
        log.info("Started controller", controller=built.name)
        controller, limit = built.controller, descriptor.stuck_after
        periodic = f"{built.name}-rounds"
        self.health.add(built.name, lambda: controller.stuck(limit))
        self.health.add(periodic, controller.failing, live=False)
        self._count(descriptor.names, 1)
        try:
            await built.run()
        finally:
            self._count(descriptor.names, 0)
            self.health.remove(built.name)
            self.health.remove(periodic)
            log.info("Stopped controller", controller=built.name)

    def _count(self, names: ControllerNames, running: int) -> None:
        if names.metric:
            name = self.context.scope.scoped(names.metric)
            self.context.metrics.running_controllers.labels(name, PROGRAM).set(running)


def _report_ignored_nodes(context: ManagerContext) -> None:
    """Nodes of other clouds are logged once and counted, whichever controllers run."""
    cloud = context.cloud
    if cloud.instances is not None or cloud.owns is not None:
        handler = IgnoredNodes(context.scope.whose, cloud.name, context.metrics)
        context.informers.of(NODES).subscribe(handler)


async def lead(context: ManagerContext, leases: Leases, health: Health) -> None:
    """Wait for the lease, then work until cancelled or the lease is lost.

    Errors: `Fatal` if the API server refuses our identity, or the provider cannot start.
    """
    equipment = Equipment(budget=Budget(context.cloud.abilities.limits, context.metrics))
    leader = Leader(context, leases, health, equipment)
    async with leases.main.leading() if leases.main else nullcontext():
        await wait_for_api_server(context)
        async with provider_leading(context):
            await leader.run()


@asynccontextmanager
async def provider_leading(context: ManagerContext) -> AsyncGenerator[None]:
    """The provider's own start, before all controllers, and its end, after them.

    Errors: `Fatal`.
    """
    start = context.cloud.leading
    async with AsyncExitStack() as stack:
        if start is not None:
            failed = f'cloud provider "{context.cloud.name}" could not start'
            try:
                await stack.enter_async_context(entered(failed, lambda: start(Access(context))))
            except CloudError as error:
                raise Fatal(f"Cloud provider could not be initialized: {error}") from error
        yield


async def wait_for_api_server(context: ManagerContext, *, patience: float | None = None) -> None:
    """Return when `/healthz` of the API server says so; wait for one that is absent or unhealthy.

    Raises `Fatal` if it refuses our identity for `API_PATIENCE` seconds, because waiting does not
    change that; and if it is not healthy within `patience`, where that is given.
    """
    trouble: list[KubeError] = []
    try:
        async with asyncio.timeout(patience):
            await _poll_health(context.clients.main("healthz"), trouble)
    except TimeoutError:
        raise _not_healthy(trouble[-1] if trouble else f"no answer within {patience} s") from None


async def _poll_health(client: Client, trouble: list[KubeError]) -> None:
    """Ask until the answer is good; `trouble` ends with why the last one was not."""
    now = asyncio.get_running_loop().time
    pause, last_other = FIRST_PAUSE, now()
    while (found := await _trouble(client)) is not None:
        trouble[:] = [found]
        if not _is_refusal(found):
            last_other = now()
        elif now() - last_other >= API_PATIENCE:
            raise _not_healthy(found)
        log.info("API server is not ready", err=found)
        await asyncio.sleep(pause)
        pause = min(pause * 1.25, LONGEST_PAUSE)


def _is_refusal(error: KubeError) -> bool:
    """Whether the server is there and says no to us, as for a false token or a missing right."""
    return isinstance(error, ApiError) and 400 <= error.status < 500 and error.status != 429  # noqa: PLR2004 -- HTTP's own numbers


def _not_healthy(why: KubeError | str) -> Fatal:
    return Fatal(f"failed to wait for apiserver being healthy: {why}")


async def _trouble(client: Client) -> KubeError | None:
    try:
        await client.raw("GET", "/healthz")
    except KubeError as error:
        return error
    return None
