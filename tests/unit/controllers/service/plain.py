"""The simplest cloud: does what a test tells it, including failures, delays and missing answers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pileus.cloud.balancer import (
    Balancer,
    BalancerSpec,
    BalancerState,
    Effect,
    Ingress,
    Notice,
    Owner,
    Part,
    Wish,
)
from pileus.cloud.errors import CloudError, Misconfigured
from pileus.cloud.model import Failure


@dataclass(frozen=True)
class Seen:
    owner: Owner
    spec: BalancerSpec | None = None
    """As it stands; None: there is none."""
    state: BalancerState = BalancerState.READY
    ingress: tuple[Ingress, ...] = ()
    problem: str = ""
    check_again_in: float | None = None
    notices: tuple[Notice, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def wanted(self) -> BalancerSpec:
        """Of a balancer that is there."""
        assert self.spec is not None
        return self.spec

    @property
    def balancer(self) -> Balancer | None:
        if self.spec is None:
            return None
        return Balancer(
            id=f"lb-{self.owner.uid}",
            state=self.state,
            ingress=self.ingress,
            problem=self.problem,
            members=len(self.spec.members),
            check_again_in=self.check_again_in,
            owner=self.owner,
            notices=self.notices,
            annotations=self.annotations,
        )


@dataclass(frozen=True)
class Change:
    effect: Effect
    summary: str
    spec: BalancerSpec | None
    part: Part = Part.WHOLE


@dataclass
class PlainBalancers:
    standing: dict[Owner, Seen] = field(default_factory=dict[Owner, Seen])
    looks: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])
    """How many wishes each look was about, and whether it was deep."""
    changed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """UID and effect of each change."""
    takes: float = 0.01
    change_takes: float = 0.0
    """Seconds that a change takes longer than a look."""
    looking: Callable[[Sequence[Wish]], None] = lambda wishes: None
    """Is called before each look, and may raise."""
    answers: dict[str, CloudError | None] = field(default_factory=dict[str, CloudError | None])
    """By UID: what a look says instead of the truth; None: nothing."""
    changing: Callable[[Owner, Change], None] = lambda owner, change: None
    """Is called before each change, and may raise."""
    key: Callable[[Wish], str] = lambda wish: wish.owner.uid
    reports: Callable[[Seen], Mapping[str, Any]] = lambda seen: {}
    """What is to be set on a balancer that was changed, such as its annotations."""
    untidy: set[Owner] = field(default_factory=set[Owner])
    """Whose wish for nothing leaves something to do even where no balancer is found."""
    at_work: list[str] = field(default_factory=list[str])
    """UIDs of those on whom changes are under way."""

    async def owners(self, cluster: str) -> frozenset[Owner]:
        return frozenset(owner for owner in self.standing if owner.cluster == cluster)

    async def observe(
        self, wishes: Sequence[Wish], *, deep: bool
    ) -> Mapping[Owner, Seen | Failure]:
        self.looks.append((len(wishes), deep))
        self.looking(wishes)
        await asyncio.sleep(self.takes)
        return {wish.owner: seen for wish in wishes if (seen := self._seen(wish)) is not None}

    def _seen(self, wish: Wish) -> Seen | Failure | None:
        if wish.owner.uid in self.answers:
            error = self.answers[wish.owner.uid]
            return None if error is None else Failure(error)
        if wish.owner in self.standing or not wish.adopts:
            return self.standing.get(wish.owner, Seen(wish.owner))
        named = (each for each in self.standing.values() if f"lb-{each.owner.uid}" == wish.adopts)
        missing = Failure(Misconfigured(f"there is no load balancer {wish.adopts}"))
        return next(named, missing)

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        want, have = wish.spec, seen.spec
        if want is have is None and seen.owner in self.untidy:
            return (Change(Effect.UPDATE, "what was noted", None),)
        if seen.state is BalancerState.PENDING or want == have:
            return ()
        if want is None:
            return (Change(Effect.DELETE, "balancer", None),)
        if have is None:
            return (Change(Effect.CREATE, "balancer", want),)
        if replace(want, members=have.members) == have:
            return (Change(Effect.UPDATE, "members", want, Part.MEMBERS),)
        return (Change(Effect.UPDATE, "balancer", want),)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        self.at_work.append(seen.owner.uid)
        try:
            self.changing(seen.owner, change)
            await asyncio.sleep(self.takes + self.change_takes)
        finally:
            self.at_work.remove(seen.owner.uid)
        self.changed.append((seen.owner.uid, change.effect))
        if change.spec is None:
            self.untidy.discard(seen.owner)
            self.standing.pop(seen.owner, None)
            return Seen(seen.owner)
        ingress = seen.ingress or (Ingress(ip=f"192.0.2.{len(self.standing) % 250 + 1}"),)
        after = replace(self.standing.get(seen.owner, seen), spec=change.spec, ingress=ingress)
        after = replace(after, **self.reports(after))
        self.standing[seen.owner] = after
        return after

    def lock_key(self, wish: Wish) -> str:
        return self.key(wish)
