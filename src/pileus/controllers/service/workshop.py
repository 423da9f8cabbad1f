"""The cloud's side of a pass: look at one balancer, and carry out what is to be changed."""

from dataclasses import dataclass
from typing import Any

from pileus.cloud.balancer import Balancer, Balancers, BalancerState, Change, Owner, Seen, Wish
from pileus.cloud.errors import CloudError, Unavailable
from pileus.cloud.model import Failure
from pileus.controllers.service.annotations import Mode
from pileus.controllers.service.plan import doable, is_busy

ROUNDS = 5
"""How often, in one pass, changes may lead to further ones."""


class BalancerFailed(CloudError):
    """The cloud says that the balancer has failed."""


@dataclass(frozen=True, slots=True)
class Look:
    """A balancer as it was seen, and what that leaves to be changed."""

    wish: Wish
    seen: Seen
    changes: tuple[Change, ...]
    done: tuple[Change, ...] = ()
    """What was changed in this pass."""

    @property
    def balancer(self) -> Balancer | None:
        return self.seen.balancer

    @property
    def members(self) -> int:
        """How many are wished for."""
        return len(self.wish.spec.members) if self.wish.spec else 0

    def left(self, mode: Mode) -> tuple[Change, ...]:
        """What is to be changed and may be."""
        return doable(self.changes, mode)


class Workshop:
    """Errors: `CloudError`, and `Fenced` for a change."""

    def __init__(self, balancers: Balancers[Any, Any]) -> None:
        self._balancers = balancers

    async def owners(self, cluster: str) -> frozenset[Owner]:
        return await self._balancers.owners(cluster)

    async def look(self, wish: Wish, *, deep: bool) -> Look:
        """Not being told of a balancer is never taken for there being none."""
        seen = (await self._balancers.observe([wish], deep=deep)).get(wish.owner)
        if seen is None:
            raise Unavailable("the cloud did not say whether there is a load balancer")
        if isinstance(seen, Failure):
            raise seen.error.with_traceback(None)  # the answer may be shared with others
        return self.judge(wish, seen)

    def judge(self, wish: Wish, seen: Seen) -> Look:
        return Look(wish, seen, self._balancers.changes(wish, seen))

    async def perform(self, look: Look, mode: Mode) -> Look:
        """Make the changes that the mode allows, and those that follow from them.

        Ends as soon as the cloud is at work, or nothing more comes of it.
        """
        done: tuple[Change, ...] = ()
        for _ in range(ROUNDS):
            changes = look.left(mode)
            if not changes:
                break
            applied, seen = await self._apply(changes, look.seen)
            done = (*done, *applied)
            look = self.judge(look.wish, seen)
            if is_busy(look.balancer) or look.left(mode) == changes:
                break
        return Look(look.wish, look.seen, look.changes, done)

    async def _apply(
        self, changes: tuple[Change, ...], seen: Seen
    ) -> tuple[tuple[Change, ...], Seen]:
        """Make one change after the other until the cloud is at work; which, and what is seen."""
        for number, change in enumerate(changes, 1):
            seen = await self._balancers.apply(change, seen)
            if is_busy(seen.balancer):
                return changes[:number], seen
        return changes, seen

    def lock_key(self, wish: Wish) -> str:
        return self._balancers.lock_key(wish)


def check_health(look: Look) -> None:
    """Errors: `BalancerFailed`."""
    balancer = look.balancer
    if balancer is not None and balancer.state is BalancerState.FAILED:
        raise BalancerFailed(balancer.problem or f"load balancer {balancer.id} has failed")
