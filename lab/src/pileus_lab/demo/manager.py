"""The demo's manager: started with flags, restarted when it loses its lease; shows its plans."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from pileus.app import validate
from pileus.app.errors import CommandFailed
from pileus.app.manager import Manager
from pileus.app.plan import Plan, Planner, read_only_context
from pileus.app.registry import Controllers
from pileus.app.run import ending_of
from pileus.app.settings import TABLE, build_config
from pileus.app.startup import World
from pileus.cloud.balancer import Balancers, Change, Effect, Owner, Seen, Wish
from pileus.cloud.interface import Cloud, Connect, ProviderConfig
from pileus.cloud.model import Failure
from pileus.cloud.registry import Registry
from pileus.controllers.lifecycle import descriptor as lifecycle
from pileus.objects.preview import EVERYTHING
from pileus.runtime.leadership import SYSTEM_TIMES, LeadershipLost
from pileus.settings.config import Config
from pileus.settings.sources import gather
from pileus.telemetry.log import Log
from pileus.telemetry.logs import Verbosity
from pileus_lab.demo.host import Folder
from pileus_lab.demo.state import Board
from pileus_lab.local.api import SCHEME
from pileus_lab.local.connect import connect

LOOK_EVERY = 0.3


def reporting_provider(board: Board) -> Registry:
    """A registry with the local cloud only; each of its changes is shown before it is made."""
    providers = Registry(discover=lambda: ())
    providers.register(SCHEME, reporting(connect, board))
    return providers


def reporting(inner: Connect, board: Board) -> Connect:
    """A provider whose changes are shown before they are made."""

    @asynccontextmanager
    async def connected(config: ProviderConfig) -> AsyncGenerator[Cloud]:
        async with inner(config) as cloud:
            told = _ReportingBalancers(cloud.balancers, board) if cloud.balancers else None
            yield replace(cloud, balancers=told)

    return connected


@dataclass(frozen=True, slots=True)
class _ReportingBalancers:
    inner: Balancers[Any, Any]
    board: Board

    async def owners(self, cluster: str) -> frozenset[Owner]:
        return await self.inner.owners(cluster)

    async def observe(
        self, wishes: Sequence[Wish], *, deep: bool
    ) -> Mapping[Owner, Seen | Failure]:
        return await self.inner.observe(wishes, deep=deep)

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        return self.inner.changes(wish, seen)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        self.board.note("plan", change.effect, change.summary)
        return await self.inner.apply(change, seen)

    def lock_key(self, wish: Wish) -> str:
        return self.inner.lock_key(wish)


async def report_awaited(config: Config, world: World, board: Board) -> None:
    """Shows each pending deletion of a node once, until cancelled."""
    async with read_only_context(config, world) as context:
        planner = Planner(replace(context, controllers=Controllers(lifecycle.DESCRIPTOR)))
        told: frozenset[str] = frozenset()
        while True:
            awaited = deletions(await planner.plan(EVERYTHING))
            for line in sorted(awaited - told):
                board.note("plan", Effect.DELETE, line)
            told = awaited
            await asyncio.sleep(LOOK_EVERY)


def deletions(plan: Plan) -> frozenset[str]:
    """One line for each node to delete, with what the deletion waits for."""
    return frozenset(
        f"node {change.about.name}" + (f", after {change.waits_for}" if change.waits_for else "")
        for _, change in plan.changes
        if change.effect is Effect.DELETE and change.about.kind == "Node"
    )


CLUSTER = "demo"

log = Log(__name__)


def flags(folder: Folder) -> tuple[str, ...]:
    """The flags of `cloud-controller-manager`.

    Node deletions are guarded as usual, but with seconds instead of minutes.
    """
    return (
        f"--kubeconfig={folder.kubeconfig}",
        "--cloud-provider=local",
        f"--cloud-config={folder.cloud_config}",
        f"--cluster-name={CLUSTER}",
        "--controller-start-interval=0s",
        "--node-monitor-period=1s",
        "--node-deletion-grace=2s",
        "--node-deletion-window=5s",
        "--secure-port=0",
        "--v=2",
    )


def configuration(folder: Folder) -> Config:
    config = build_config(gather(TABLE, "pileus demo", flags(folder), {}).values)
    if wrong := validate.problems(config):
        raise CommandFailed(validate.together(wrong))
    return config


def world_of(random: Random, verbosity: Verbosity, board: Board) -> World:
    return World({}, SYSTEM_TIMES, random, verbosity.set, providers=reporting_provider(board))


async def manage(config: Config, world: World) -> None:
    """Runs until cancelled. A process that was suspended (Ctrl-Z, a closed lid) has lost its lease.

    Then the manager is restarted, as a cluster restarts a pod. Raises errors of the start-up.
    """
    while True:
        try:
            await Manager(config, world).run()
        except BaseExceptionGroup as errors:
            ending = ending_of(errors)
            if not isinstance(ending, LeadershipLost):
                raise
        except LeadershipLost:
            pass
        log.info("Restarting the manager")
