"""What happens while this process leads: the provider's start, informers, controllers.

lease ──▶ API server is well ──▶ provider's own start ──▶ controllers, in random order ──▶ informers
  │
  └─ with leader migration: a second lease, and the controllers that move, inside the first
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace

from pileus.app.clients import PROGRAM
from pileus.app.controllers import ALL, NODE, ControllerNames, is_running
from pileus.app.ending import Fatal
from pileus.app.migration import Lock, Migration
from pileus.app.node import node_duty
from pileus.app.view import Access
from pileus.app.work import Duty, MakeDuty, Post, Skipped
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.kube.errors import KubeError
from pileus.runtime.leadership import Election
from pileus.server.health import Health
from pileus.telemetry.log import Log

log = Log(__name__)

API_PATIENCE = 10
"""Seconds that the API server has for getting well, once we lead."""

DUTIES: Mapping[str, MakeDuty] = {NODE.canonical: node_duty}
"""The controllers of this version, by canonical name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """The locks to hold; None where none is needed."""

    main: Election | None = None
    migration: Election | None = None
    plan: Migration | None = None

    def lock_of(self, names: ControllerNames) -> Lock:
        return self.plan.lock_of(names.canonical) if self.plan else Lock.MAIN


async def lead(post: Post, leases: Leases, health: Health) -> None:
    """Wait for the lease, then work until cancelled or the lease is lost."""
    async with leases.main.leading() if leases.main else nullcontext():
        await wait_for_api_server(post)
        async with _provider_leading(post):
            await _govern(post, leases, health)


def _provider_leading(post: Post) -> AbstractAsyncContextManager[None]:
    return post.cloud.leading(Access(post)) if post.cloud.leading else nullcontext()


async def _govern(post: Post, leases: Leases, health: Health) -> None:
    health.add("informers", post.informers.ill, ready=False)
    health.add("informers-synced", post.informers.not_ready, live=False)
    async with asyncio.TaskGroup() as group:
        group.create_task(_work(post, _chosen(post, leases, Lock.MAIN), health))
        if leases.migration is not None:
            group.create_task(_migrate(post, leases, leases.migration, health))
        group.create_task(post.informers.run(), name="informers")


async def wait_for_api_server(post: Post) -> None:
    """Poll its `/healthz` each second. Errors: `Fatal` if it does not get well in time."""
    client = post.clients.main("healthz")
    problem: KubeError | None = None
    for _ in range(API_PATIENCE):
        try:
            await client.raw("GET", "/healthz")
        except KubeError as error:
            problem = error
            log.info("API server is not well yet", err=error)
            await asyncio.sleep(1)
        else:
            return
    raise Fatal(f"failed to wait for apiserver being healthy: {problem}")


async def _migrate(post: Post, leases: Leases, lease: Election, health: Health) -> None:
    async with lease.leading():
        moved = replace(post, fence=lease.fence)
        await _work(moved, _chosen(post, leases, Lock.MIGRATION), health)


def _chosen(post: Post, leases: Leases, lock: Lock) -> Sequence[ControllerNames]:
    entries = post.config.generic.controllers
    chosen = [names for names in ALL if is_running(names, entries)]
    return [names for names in chosen if leases.lock_of(names) is lock]


async def _work(post: Post, chosen: Sequence[ControllerNames], health: Health) -> None:
    """Start the chosen controllers, and the provider's own with the main lock."""
    equipment = Equipment(dry_run=post.config.dry_run)
    async with (
        stacked(post.cloud, metrics=post.metrics, fence=post.fence, equipment=equipment) as cloud,
        asyncio.TaskGroup() as group,
    ):
        equipped = replace(post, cloud=cloud)
        for own in post.cloud.controllers:
            group.create_task(_awaited(own.run(Access(equipped))), name=own.name)
        for names in post.random.sample(chosen, len(chosen)):
            duty = _duty(names, equipped)
            if isinstance(duty, Skipped):
                log.warning("Skipping controller", controller=names.canonical, why=duty.why)
                continue
            group.create_task(_run(names, duty, equipped, health), name=names.canonical)
            pause = post.config.generic.controller_start_interval
            await asyncio.sleep(pause * post.random.uniform(1, 2))


def _duty(names: ControllerNames, post: Post) -> Duty | Skipped:
    make = DUTIES.get(names.canonical)
    return make(post) if make else Skipped("it is not part of this version of Pileus yet")


async def _run(names: ControllerNames, duty: Duty, post: Post, health: Health) -> None:
    running = post.metrics.running_controllers.labels(names.metric or names.alias, PROGRAM)
    log.info("Started controller", controller=names.canonical)
    health.add(names.canonical, duty.health)
    running.set(1)
    try:
        await duty.run()
    finally:
        running.set(0)
        health.remove(names.canonical)
        log.info("Stopped controller", controller=names.canonical)


async def _awaited(work: Awaitable[None]) -> None:
    await work
