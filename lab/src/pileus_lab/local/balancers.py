"""Balancers as the contract has them: looks at many, and one step at a time.

outlines of all ──▶ as last applied? ── yes ──▶ nothing more is read
                                     └─ no ───▶ that one, with all its parts
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pileus.cloud.balancer import Owner, Wish
from pileus.cloud.errors import Conflict, NotFound
from pileus_lab.local import plan
from pileus_lab.local.api import Api
from pileus_lab.local.capabilities import whole
from pileus_lab.local.model.balancers import (
    DeleteBalancer,
    ListBalancers,
    OutlineBalancers,
    StampBalancer,
)
from pileus_lab.local.model.records import Mark, Outline, Page
from pileus_lab.local.plan import Change, Seen, mark_of


@dataclass(frozen=True, slots=True)
class LocalBalancers:
    api: Api

    async def owners(self, cluster: str) -> frozenset[Owner]:
        outlines = whole(await self.api.call(OutlineBalancers()), "balancers")
        return frozenset(
            Owner(one.mark.cluster, one.mark.owner)
            for one in outlines
            if one.mark.cluster == cluster and one.mark != Mark()
        )

    async def observe(self, wishes: Sequence[Wish], *, deep: bool) -> Mapping[Owner, Seen]:
        seen = _identified(wishes, await self.api.call(OutlineBalancers()))
        ids = {
            found.id
            for wish in wishes
            if (found := seen.get(wish.owner, Seen(wish.owner)).subject) is not None
            if deep or plan.needs_parts(wish, seen[wish.owner])
        }
        return await self._with_parts(seen, ids) if ids else seen

    async def _with_parts(self, seen: Mapping[Owner, Seen], ids: set[str]) -> Mapping[Owner, Seen]:
        """Those of that id in whole; one that is not told now is unknown."""
        page = await self.api.call(ListBalancers(ids=tuple(sorted(ids))))
        read = {one.id: one for one in page.items}
        return {
            owner: one.with_parts(read)
            for owner, one in seen.items()
            if one.subject is None or one.subject.id not in ids or one.subject.id in read
        }

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        return plan.changes(wish, seen)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        step = change.step
        if isinstance(step, DeleteBalancer):
            await self.api.call(step)
            return Seen(seen.owner)
        if isinstance(step, StampBalancer) and not plan.is_complete(change, seen):
            return seen
        try:
            return plan.seen_of(seen.owner, await self.api.call(step))
        except NotFound as error:
            raise Conflict(f"{error}: it was deleted meanwhile; observe again") from error

    def lock_key(self, wish: Wish) -> str:
        return wish.owner.uid


def _identified(wishes: Sequence[Wish], page: Page[Outline]) -> dict[Owner, Seen]:
    """Whose is which, by mark; of a part of the list, only those that are in it."""
    by_mark = {one.mark: one for one in page.items}
    by_id = {one.id: one for one in page.items}
    seen: dict[Owner, Seen] = {}
    for wish in wishes:
        owner = wish.owner
        found = by_mark.get(mark_of(owner))
        if found is not None or page.is_complete:
            seen[owner] = Seen(owner, found, by_id.get(wish.adopts) if found is None else None)
    return seen
