"""Checks that no call of a provider makes more requests than the provider declares.

`Abilities.requests` says what an observation of load balancers, a list of routes and one change may
cost. The bounds per minute (`calls_are_bounded`) cannot check that: they have to allow for retries.

An observation that gets a false list may read everything once more: what is known to exist and is
not listed is looked up by its ID or name, so that it is not created again.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from pileus.cloud.abilities import Requests
from pileus.cloud.balancer import Balancers, Change, Owner, Seen, Wish
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud, Routes
from pileus.cloud.model import Failure, Route
from pileus_lab.simulation.clouds.truth import Truth
from pileus_lab.simulation.environment.account import Account
from pileus_lab.simulation.environment.steps import Answer, Call, CloudStep, Step

LAW = "calls_cost_what_their_provider_declares"


@dataclass(slots=True)
class _Tally:
    requests: int = 0
    is_misled: bool = False
    """Whether an answer was false."""


_TALLY: ContextVar[_Tally | None] = ContextVar("tally", default=None)
"""Counts the requests of the current call of the provider."""


class RequestCosts:
    """Watches the clouds of all managers of one world."""

    def __init__(self, account: Account, blame: Callable[[str, str], None]) -> None:
        self._account = account
        self._blame = blame
        self.balancers = self.machines = self.routes = 0
        """The most that there were at once: a list may be old, and parts outlive their balancer."""
        self._tallies: dict[int, tuple[Call, _Tally]] = {}
        """By identity of each call that is not answered: answers arrive outside of its context."""

    def see(self, step: Step) -> None:
        """Called with every step of the world."""
        if isinstance(step, CloudStep):
            self.balancers = max(self.balancers, len(step.after.balancers))
            self.machines = max(self.machines, len(step.after.machines))
            self.routes = max(self.routes, len(step.after.routes))
        elif isinstance(step, Call) and step.is_to_cloud:
            tally = _TALLY.get()
            if tally is not None:
                tally.requests += not step.continues
                self._tallies[id(step)] = step, tally
        elif isinstance(step, Answer):
            _, tally = self._tallies.pop(id(step.call), (None, None))
            if tally is not None:
                tally.is_misled |= step.is_untrue

    def watched(self, cloud: Cloud) -> Cloud:
        """Returns the same cloud; its calls are counted, if it declares what they cost."""
        declared = cloud.abilities.requests
        if declared is None:
            return cloud
        return replace(
            cloud,
            balancers=cloud.balancers and _Balancers(cloud.balancers, self, declared),
            routes=cloud.routes and _Routes(cloud.routes, self, declared),
        )

    def truth(self) -> Truth:
        return self._account.truth()

    @contextmanager
    def counting(
        self, what: str, most: Callable[[], int | None], *, confirms: bool = False
    ) -> Generator[None]:
        """Reports if the block makes more requests than `most` returns at its end.

        `confirms`: it may make as many again if an answer was false.
        """
        tally = _Tally()
        token = _TALLY.set(tally)
        try:
            yield
        finally:
            _TALLY.reset(token)
        allowed = most()
        if allowed is not None and confirms and tally.is_misled:
            allowed *= 2
        if allowed is not None and tally.requests > allowed:
            self._blame(
                LAW, f"{what} made {tally.requests} requests; abilities.requests allows {allowed}"
            )


class _Balancers:
    """The load balancers of a provider, with counted calls."""

    def __init__(self, inner: Balancers[Any, Any], costs: RequestCosts, declared: Requests) -> None:
        self._inner, self._costs, self._declared = inner, costs, declared
        self.owners, self.changes, self.lock_key = inner.owners, inner.changes, inner.lock_key

    async def observe(
        self, wishes: Sequence[Wish], *, deep: bool
    ) -> Mapping[Owner, Seen | Failure]:
        what = f"a {'full' if deep else 'quick'} check of {len(wishes)} load balancers"
        with self._costs.counting(what, lambda: self._of_check(len(wishes)), confirms=True):
            return await self._inner.observe(wishes, deep=deep)

    def _of_check(self, read: int) -> int:
        costs = self._costs
        return self._declared.of_check(costs.balancers, read, costs.machines)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        before, after = self._members(seen), seen

        def most() -> int | None:
            return self._declared.of_change(len(before ^ self._members(after)))

        with self._costs.counting(f'the change "{change.effect} {change.summary}"', most):
            after = await self._inner.apply(change, seen)
        return after

    def _members(self, seen: Seen) -> frozenset[str]:
        id_ = seen.balancer.id if seen.balancer else ""
        found = self._costs.truth().balancers.get(id_)
        return found.members if found else frozenset()


@dataclass(frozen=True, slots=True)
class _Routes:
    """The routes of a provider, with counted lists."""

    inner: Routes
    costs: RequestCosts
    declared: Requests

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        with self.costs.counting("a list of all routes", self._most):
            return await self.inner.list_routes(cluster)

    def _most(self) -> int:
        return self.declared.of_routes(self.costs.routes, self.costs.machines)

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        return await self.inner.create(cluster, routes)

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        return await self.inner.delete(cluster, routes)
