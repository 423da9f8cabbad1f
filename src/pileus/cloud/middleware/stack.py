"""The usual equipment of a cloud, composed in the order that makes each piece right.

    batching ▶ budget ▶ fence ▶ measures ▶ deadline ▶ guard ▶ faults ▶ provider

- A gathered look-up costs the budget once; so batching stands outside of it.
- The fence is asked after all waiting, just before the write leaves.
- Waiting for the budget is no duration of the cloud's; a call ended by its deadline is.
- The guard is nearest to the provider: nothing else has to mistrust an answer.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from pileus.cloud.abilities import Batches, Deadlines
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.batching import batched
from pileus.cloud.middleware.budget import Budget, budgeted
from pileus.cloud.middleware.deadline import Overdue, with_deadline
from pileus.cloud.middleware.faults import Rule, faulty
from pileus.cloud.middleware.fenced import fenced
from pileus.cloud.middleware.guarded import guarded
from pileus.cloud.middleware.measured import measured
from pileus.fence import Fence
from pileus.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    budget: Budget | None = None
    """To be shared by several stacks on one cloud; None: one of its own, with the provider's limits
    (`Cloud.abilities`)."""
    deadlines: Deadlines | None = None
    """None: the provider's own."""
    overdue: Overdue = field(default_factory=Overdue)
    batches: Batches | None = None
    """None: the provider's own."""
    faults: tuple[Rule, ...] = ()
    seed: int = 0
    """Of the faults."""


@asynccontextmanager
async def stacked(
    cloud: Cloud, *, metrics: Metrics, fence: Fence, equipment: Equipment
) -> AsyncGenerator[Cloud]:
    """The provider's cloud as the controllers get it, for as long as the block lasts."""
    chance = Random(equipment.seed)  # noqa: S311 -- of test faults, no secret
    rough = faulty(cloud, equipment.faults, chance) if equipment.faults else cloud
    own = cloud.abilities
    deadlines = equipment.deadlines or own.deadlines
    limited_in_time = with_deadline(guarded(rough, metrics), deadlines, equipment.overdue)
    timed = measured(limited_in_time, metrics)
    limited = budgeted(fenced(timed, fence), equipment.budget or Budget(own.limits, metrics))
    async with batched(limited, equipment.batches or own.batches) as it:
        yield it
