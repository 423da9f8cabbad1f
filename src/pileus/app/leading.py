"""What happens while this process leads: the provider's start, informers, controllers.

lease ──▶ API server is well ──▶ provider's own start ──▶ controllers, in random order ──▶ informers
  │
  └─ with leader migration: a second lease, and the controllers that move, inside the first
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

from pileus.app.config import Config
from pileus.app.controllers import (
    ALL,
    IPAM,
    LIFECYCLE,
    NODE,
    ROUTE,
    SERVICE,
    SSH_KEYS,
    ControllerNames,
    is_running,
)
from pileus.app.ending import Fatal
from pileus.app.ipam import ipam_duty
from pileus.app.lifecycle import lifecycle_duty
from pileus.app.migration import Lock, Migration
from pileus.app.node import node_duty
from pileus.app.provided import run_own
from pileus.app.route import route_duty
from pileus.app.service import service_duty
from pileus.app.ssh_keys import ssh_keys_duty
from pileus.app.view import Access
from pileus.app.work import Duty, MakeDuty, Post, Skipped
from pileus.cloud.errors import CloudError
from pileus.cloud.foreign import entered
from pileus.cloud.middleware.budget import Budget
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.kube.client import Client
from pileus.kube.errors import ApiError, KubeError
from pileus.objects.ownership import IgnoredNodes, whose_by
from pileus.runtime.leadership import Election
from pileus.server.health import Health
from pileus.telemetry.log import Log
from pileus.version import PROGRAM

log = Log(__name__)

API_PATIENCE = 10.0
"""Seconds after which an API server that refuses our identity ends the start."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 10.0
"""Seconds between two questions whether the API server is healthy."""

DUTIES: Mapping[str, MakeDuty] = {
    NODE.canonical: node_duty,
    LIFECYCLE.canonical: lifecycle_duty,
    SERVICE.canonical: service_duty,
    ROUTE.canonical: route_duty,
    IPAM.canonical: ipam_duty,
    SSH_KEYS.canonical: ssh_keys_duty,
}
"""The controllers of this version, by canonical name."""


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

    post: Post
    leases: Leases
    health: Health
    duties: Mapping[str, MakeDuty]
    equipment: Equipment

    async def govern(self) -> None:
        """Run informers and controllers until cancelled."""
        post = self.post
        self.health.add("informers", post.informers.ill, ready=False)
        self.health.add("cloud-calls", self.equipment.overdue.health)
        self.health.add("informers-synced", post.informers.not_ready, live=False)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work_under_the_main_lock())
            if self.leases.migration is not None:
                group.create_task(self._work_under_the_migration_lock(self.leases.migration))
            group.create_task(post.informers.run(), name="informers")

    async def _work_under_the_main_lock(self) -> None:
        async with self._equipped(self.post) as post, asyncio.TaskGroup() as group:
            _report_ignored_nodes(post)
            for own in post.cloud.controllers:
                group.create_task(run_own(own, post, self.health), name=own.name)
            await self._start(group, post, Lock.MAIN)

    async def _work_under_the_migration_lock(self, lease: Election) -> None:
        moved = replace(self.post, fence=lease.fence)
        async with (
            lease.leading(),
            self._equipped(moved) as post,
            asyncio.TaskGroup() as group,
        ):
            await self._start(group, post, Lock.MIGRATION)

    @asynccontextmanager
    async def _equipped(self, post: Post) -> AsyncGenerator[Post]:
        """The post with a cloud whose writes end with the post's fence."""
        async with stacked(
            post.cloud, metrics=post.metrics, fence=post.fence, equipment=self.equipment
        ) as cloud:
            yield replace(post, cloud=cloud)

    async def _start(self, group: asyncio.TaskGroup, post: Post, lock: Lock) -> None:
        """Start the controllers of one lock in random order, with pauses between them."""
        chosen = self._chosen(lock)
        pause = post.config.generic.controller_start_interval
        for names in post.random.sample(chosen, len(chosen)):
            duty = make_duty(names, post, self.duties)
            if isinstance(duty, Skipped):
                tell = log.warning if duty.is_news else log.info
                tell("Skipping controller", controller=names.canonical, why=duty.why)
                continue
            group.create_task(self._perform(names, duty), name=names.canonical)
            await asyncio.sleep(pause * post.random.uniform(1, 2))

    def _chosen(self, lock: Lock) -> Sequence[ControllerNames]:
        chosen = running_controllers(self.post.config)
        return [names for names in chosen if self.leases.lock_of(names) is lock]

    async def _perform(self, names: ControllerNames, duty: Duty) -> None:
        log.info("Started controller", controller=names.canonical)
        periodic = f"{names.canonical}-rounds"
        self.health.add(names.canonical, duty.health)
        self.health.add(periodic, duty.failing, live=False)
        self._count(names, 1)
        try:
            await duty.run()
        finally:
            self._count(names, 0)
            self.health.remove(names.canonical)
            self.health.remove(periodic)
            log.info("Stopped controller", controller=names.canonical)

    def _count(self, names: ControllerNames, running: int) -> None:
        if names.metric:
            self.post.metrics.running_controllers.labels(names.metric, PROGRAM).set(running)


def _report_ignored_nodes(post: Post) -> None:
    """Nodes of other clouds are logged once and counted, whichever controllers run."""
    cloud = post.cloud
    if cloud.instances is not None or cloud.owns is not None:
        handler = IgnoredNodes(whose_by(cloud), cloud.name, post.metrics)
        post.informers.nodes().subscribe(handler)


def running_controllers(config: Config) -> Sequence[ControllerNames]:
    """Those of our own that `--controllers` switches on."""
    return [names for names in ALL if is_running(names, config.generic.controllers)]


def make_duty(names: ControllerNames, post: Post, duties: Mapping[str, MakeDuty]) -> Duty | Skipped:
    make = duties.get(names.canonical)
    return make(post) if make else Skipped("it is not part of this version of Pileus yet")


async def lead(
    post: Post, leases: Leases, health: Health, duties: Mapping[str, MakeDuty] = DUTIES
) -> None:
    """Wait for the lease, then work until cancelled or the lease is lost.

    Errors: `Fatal` if the API server refuses our identity, or the provider cannot start.
    """
    equipment = Equipment(budget=Budget(post.cloud.abilities.limits, post.metrics))
    leader = Leader(post, leases, health, duties, equipment)
    async with leases.main.leading() if leases.main else nullcontext():
        await wait_for_api_server(post)
        async with provider_leading(post):
            await leader.govern()


@asynccontextmanager
async def provider_leading(post: Post) -> AsyncGenerator[None]:
    """The provider's own start, before all controllers, and its end, after them.

    Errors: `Fatal`.
    """
    start = post.cloud.leading
    async with AsyncExitStack() as stack:
        if start is not None:
            failed = f'cloud provider "{post.cloud.name}" could not start'
            try:
                await stack.enter_async_context(entered(failed, lambda: start(Access(post))))
            except CloudError as error:
                raise Fatal(f"Cloud provider could not be initialized: {error}") from error
        yield


async def wait_for_api_server(post: Post, *, patience: float | None = None) -> None:
    """Return when `/healthz` of the API server says so; wait for one that is absent or unhealthy.

    Raises `Fatal` if it refuses our identity for `API_PATIENCE` seconds, because waiting does not
    change that; and if it is not healthy within `patience`, where that is given.
    """
    trouble: list[KubeError] = []
    try:
        async with asyncio.timeout(patience):
            await _poll_health(post.clients.main("healthz"), trouble)
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
