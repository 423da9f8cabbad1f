"""Turns concurrent look-ups of nodes and of balancers into few calls.

A thousand callers who each ask about one become a handful of calls. Fresh and cached look-ups of
nodes never share a call, nor do shallow and deep looks at balancers.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from pileus.cloud.abilities import Batches
from pileus.cloud.balancer import Balancers, Change, Owner, Seen, Wish
from pileus.cloud.interface import Cloud, Instances
from pileus.cloud.middleware.gathering import Gathering
from pileus.cloud.model import Failure, Found, NodeName, NodeRef


@asynccontextmanager
async def batched(cloud: Cloud, batches: Batches) -> AsyncGenerator[Cloud]:
    """The cloud with look-ups gathered, for as long as the block lasts.

    Guarantees: an answer or error reaches exactly those who asked for it; who is cancelled
    cancels nobody else; who still waits at the end of the block gets `Unavailable`.
    """
    instances = _instances(cloud.instances, batches) if cloud.instances else None
    balancers = _balancers(cloud.balancers, batches) if cloud.balancers else None
    gatherings = [face.gathering for face in (instances, balancers) if face is not None]
    raised: Exception | None = None
    async with asyncio.TaskGroup() as group:
        runners = [group.create_task(gathering.run()) for gathering in gatherings]
        try:
            yield replace(cloud, instances=instances, balancers=balancers)
        except Exception as error:  # noqa: BLE001 -- raised below, without the group's wrapping
            raised = error
        finally:
            for gathering, runner in zip(gatherings, runners, strict=True):
                gathering.close()
                runner.cancel()
    if raised is not None:
        raise raised


@dataclass(frozen=True, slots=True)
class _Instances:
    gathering: Gathering[NodeName, NodeRef, Found]

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        return await self.gathering.ask({node.name: node for node in nodes}, manner=fresh)


def _instances(inner: Instances, batches: Batches) -> _Instances:
    return _Instances(Gathering(lambda nodes, fresh: inner.find(nodes, fresh=fresh), batches))


@dataclass(frozen=True, slots=True)
class _Balancers:
    inner: Balancers[Any, Any]
    gathering: Gathering[Owner, Wish, Seen | Failure]

    async def owners(self, cluster: str) -> frozenset[Owner]:
        return await self.inner.owners(cluster)

    async def observe(
        self, wishes: Sequence[Wish], *, deep: bool
    ) -> Mapping[Owner, Seen | Failure]:
        return await self.gathering.ask({wish.owner: wish for wish in wishes}, manner=deep)

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        return self.inner.changes(wish, seen)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        return await self.inner.apply(change, seen)

    def lock_key(self, wish: Wish) -> str:
        return self.inner.lock_key(wish)


def _balancers(inner: Balancers[Any, Any], batches: Batches) -> _Balancers:
    return _Balancers(
        inner, Gathering(lambda wishes, deep: inner.observe(wishes, deep=deep), batches)
    )
