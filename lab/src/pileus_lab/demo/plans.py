"""The plans of the manager, told to the audience: what it does to balancers, what awaits nodes.

Changes in the cloud are told one by one, right before the manager makes them. A node whose machine
is gone is told while its deletion still waits, by the same preview that `pileus plan` shows.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from pileus.app.config import Config
from pileus.app.opening import World
from pileus.app.planning import Plan, Planner, looking
from pileus.app.registry import Controllers
from pileus.cloud.balancer import Balancers, Change, Effect, Owner, Seen, Wish
from pileus.cloud.interface import Cloud, Connect, ProviderConfig
from pileus.cloud.model import Failure
from pileus.cloud.registry import Registry
from pileus.controllers.lifecycle import descriptor as lifecycle
from pileus.objects.preview import EVERYTHING
from pileus_lab.demo.board import Board
from pileus_lab.local.connect import connect
from pileus_lab.local.identity import SCHEME

LOOK_EVERY = 0.3


def told_provider(board: Board) -> Registry:
    """The local cloud as the one provider there is; each change in it is told before it is made."""
    providers = Registry(discover=lambda: ())
    providers.register(SCHEME, telling(connect, board))
    return providers


def telling(inner: Connect, board: Board) -> Connect:
    """A provider whose changes are told before they are made."""

    @asynccontextmanager
    async def connected(config: ProviderConfig) -> AsyncGenerator[Cloud]:
        async with inner(config) as cloud:
            told = _Told(cloud.balancers, board) if cloud.balancers else None
            yield replace(cloud, balancers=told)

    return connected


@dataclass(frozen=True, slots=True)
class _Told:
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


async def tell_awaited(config: Config, world: World, board: Board) -> None:
    """Tell of each deletion of a node that waits, once, until cancelled."""
    async with looking(config, world) as context:
        planner = Planner(replace(context, controllers=Controllers(lifecycle.DESCRIPTOR)))
        told: frozenset[str] = frozenset()
        while True:
            awaited = deletions(await planner.plan(EVERYTHING))
            for line in sorted(awaited - told):
                board.note("plan", Effect.DELETE, line)
            told = awaited
            await asyncio.sleep(LOOK_EVERY)


def deletions(plan: Plan) -> frozenset[str]:
    """One line for each node that would go, and what that waits for."""
    return frozenset(
        f"node {change.about.name}" + (f", after {change.waits_for}" if change.waits_for else "")
        for _, change in plan.changes
        if change.effect is Effect.DELETE and change.about.kind == "Node"
    )
