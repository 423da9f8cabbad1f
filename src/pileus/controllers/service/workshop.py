"""The cloud's side of a pass: look at one balancer, and carry out what is to be changed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pileus.cloud.balancer import Balancer, Balancers, BalancerState, Change, Owner, Seen, Wish
from pileus.cloud.errors import CloudError, Misconfigured, Unavailable
from pileus.cloud.model import Failure
from pileus.controllers.service.annotations import Mode
from pileus.controllers.service.plan import doable, is_busy
from pileus.kube.model.core_v1 import Service

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

    def __init__(
        self,
        balancers: Balancers[Any, Any],
        service: Callable[[str], Service | None] = lambda _: None,
    ) -> None:
        """`service`: the one with that UID, if it is there; its balancer is never another's."""
        self._balancers = balancers
        self._service = service

    async def owners(self, cluster: str) -> frozenset[Owner]:
        return await self._balancers.owners(cluster)

    async def look(self, wish: Wish, *, deep: bool) -> Look:
        """Not being told of a balancer is never taken for there being none.

        Errors: `CloudError`; `Misconfigured` also where what is named serves another Service.
        """
        seen = (await self._balancers.observe([wish], deep=deep)).get(wish.owner)
        if seen is None:
            raise Unavailable("the cloud did not say whether there is a load balancer")
        if isinstance(seen, Failure):
            raise seen.error.with_traceback(None)  # the answer may be shared with others
        return self.judge(wish, seen)

    def judge(self, wish: Wish, seen: Seen) -> Look:
        self._check_owner(wish, seen.balancer)
        return Look(wish, seen, self._balancers.changes(wish, seen))

    def _check_owner(self, wish: Wish, found: Balancer | None) -> None:
        owner = found and found.owner
        if found is None or owner is None or owner == wish.owner:
            return
        served = self._service(owner.uid) if owner.cluster == wish.owner.cluster else None
        if served is not None:
            name = f"{served.metadata.namespace}/{served.metadata.name}"
            raise Misconfigured(
                f"balancer {found.id} cannot be adopted: it serves Service {name}; "
                f"name another one, or delete that Service in a mode in which its balancer stays"
            )

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
