"""The law of the plan across adoption: what a plan announces before a take-over is what is done.

The load balancer was left by the Service's former UID (the cluster was restored), by another
manager, or by a user. It differs from the spec in one thing, or in all of them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from pileus.cloud.balancer import Balancers, BalancerSpec, Change, Owner, Part, Seen, Wish
from pileus.cloud.errors import Unsupported
from pileus.testing.conformance.convergence import (
    SMALL,
    THEM,
    US,
    Make,
    built_of,
    look,
    settle,
    spec_of,
    standing,
    wish_for,
)
from pileus.testing.conformance.harness import BalancersHarness, Built, LoopFactory, run

FORMER = Owner(US, "before-the-restore")
OWNER = Owner(US, "after-the-restore")
OTHERS = (Owner(US, "another-service"), Owner(THEM, "a-service-of-another-cluster"))
PORTS, OTHER_PORT = frozenset({20001, 20002}), 20003
RANGES, OTHER_RANGES = frozenset({"10.0.0.0/8"}), frozenset({"192.0.2.0/24"})
FOUND = spec_of(PORTS, frozenset("ab"), None, RANGES)
"""What the load balancer is before it is adopted."""


def _with_node_port(spec: BalancerSpec, node_port: int) -> BalancerSpec:
    first, *others = sorted(spec.listeners, key=lambda one: one.port)
    return replace(spec, listeners=frozenset({replace(first, node_port=node_port), *others}))


DIFFERENCES: Mapping[str, BalancerSpec] = {
    "nothing": FOUND,
    "session affinity": spec_of(PORTS, frozenset("ab"), 60, RANGES),
    "a port that is added": spec_of(PORTS | {OTHER_PORT}, frozenset("ab"), None, RANGES),
    "a port that is removed": spec_of(frozenset({20001}), frozenset("ab"), None, RANGES),
    "a port that is changed": spec_of(frozenset({20001, 20003}), frozenset("ab"), None, RANGES),
    "a node port": _with_node_port(FOUND, 32001),
    "members": spec_of(PORTS, frozenset("bc"), None, RANGES),
    "source ranges": spec_of(PORTS, frozenset("ab"), None, OTHER_RANGES),
    "everything": spec_of(frozenset({20002, 20003}), frozenset("bcd"), 60, OTHER_RANGES),
}
"""Specs, by what they change of the load balancer that is adopted."""


class Left(Enum):
    """Who left the load balancer that is adopted."""

    BY_THE_FORMER_SERVICE = "by the Service's former UID"
    BY_ANOTHER_MANAGER = "by another manager"
    BY_A_USER = "by a user"


def adoption_does_what_its_plan_shows(make: Make, loop_factory: LoopFactory) -> None:
    if make().furnish("web", None) is None:
        return
    for left in Left:
        for what, spec in DIFFERENCES.items():
            try:
                run(_adopted_as_planned(make(), left, spec), loop_factory)
            except Unsupported:
                return
            except AssertionError as error:
                raise AssertionError(
                    f"the load balancer was left {left.value}, and {what} differs: {error}"
                ) from error


async def _adopted_as_planned(harness: BalancersHarness, left: Left, spec: BalancerSpec) -> None:
    others = [await _settled_for(harness, owner, SMALL) for owner in OTHERS]
    wish = await _left(harness, left, spec)
    if wish is None:
        return
    before = _of_others(harness)
    async with harness.connect() as balancers:
        quick = _lines(balancers, wish, await look(balancers, wish, deep=False))
        planned = _lines(balancers, wish, await look(balancers, wish, deep=True))
        assert quick == planned, f"a quick check plans {quick}, and a full one {planned}"
        watched = _Watched(balancers, harness)
        seen = await settle(harness, watched, wish)

    assert seen.balancer is not None
    assert seen.balancer.id == wish.adopts, "another load balancer was created"
    _compare(planned, watched.made)
    secrets = {*(one for each in others for one in each), *(owner.uid for owner in OTHERS)}
    named = [one for one in secrets if any(one in line for line in planned)]
    assert not named, f"the plan names {named}, which are of others: {planned}"
    async with harness.connect() as balancers:
        again = _lines(balancers, wish, await look(balancers, wish, deep=True))
        assert not again, f"it was adopted, and a new process plans {again}"
        await settle(harness, balancers, harness.wish(FORMER, None))
    if left is not Left.BY_A_USER:
        found = standing(harness, US).get(OWNER.uid)
        assert found == built_of(harness, spec), f"it should be as desired, and is {found}"
        assert harness.strays() == 0, "parts were left behind"
    assert _of_others(harness) == before, "a load balancer of another owner was changed"


async def _settled_for(
    harness: BalancersHarness, owner: Owner, spec: BalancerSpec
) -> tuple[str, ...]:
    """Returns the ID and the addresses of a load balancer that is built for an owner."""
    async with harness.connect() as balancers:
        seen = await settle(harness, balancers, wish_for(harness, owner, spec))
    assert seen.balancer is not None
    addresses = (one.ip or one.hostname for one in seen.balancer.ingress)
    return seen.balancer.id, *filter(None, addresses)


async def _left(harness: BalancersHarness, left: Left, spec: BalancerSpec) -> Wish | None:
    """Returns the wish that adopts what was left; None: this harness cannot leave it so."""
    wish = replace(wish_for(harness, OWNER, spec), may_use_foreign=True)
    if left is Left.BY_A_USER:
        named = harness.furnish("web", None)
        return replace(wish, adopts=named) if named else None
    former = wish_for(harness, FORMER, FOUND)
    id_, *published = await _settled_for(harness, FORMER, FOUND)
    if left is Left.BY_ANOTHER_MANAGER and not harness.unmark(FORMER):
        return None
    return replace(
        wish,
        name=former.name,
        namespace=former.namespace,
        service=former.service,
        published=frozenset(published),
        adopts=id_,
    )


def _is_of_others(owner: Owner) -> bool:
    return owner not in {FORMER, OWNER} and bool(owner.cluster)


def _of_others(harness: BalancersHarness) -> Mapping[Owner, Built]:
    return {owner: built for owner, built in harness.built().items() if _is_of_others(owner)}


def _line(change: Change) -> str:
    return f"{change.effect} {change.summary}"


def _lines(balancers: Balancers[Any, Any], wish: Wish, seen: Seen) -> list[str]:
    """Returns the lines that `pileus plan` shows."""
    shown = (one for one in balancers.changes(wish, seen) if one.part is not Part.RECORD)
    return [_line(one) for one in shown]


def _compare(planned: list[str], made: set[str]) -> None:
    assert len(planned) == len({*planned}), f"two lines of the plan are the same: {planned}"
    hidden, vain = sorted(made - {*planned}), sorted({*planned} - made)
    assert not hidden, (
        f"adoption made changes that its plan did not show: {hidden}; planned: {planned}. Return "
        "them from `changes` together with the mark"
    )
    assert not vain, f"planned and never made: {vain}; made: {sorted(made)}"


class _Watched:
    """Load balancers that note which changes are made, and fail if one does more than it says."""

    def __init__(self, inner: Balancers[Any, Any], harness: BalancersHarness) -> None:
        self._inner, self._harness = inner, harness
        self.owners, self.observe = inner.owners, inner.observe
        self.changes, self.lock_key = inner.changes, inner.lock_key
        self.made = set[str]()

    async def apply(self, change: Change, seen: Seen) -> Seen:
        before = self._adopted()
        after: Seen = await self._inner.apply(change, seen)
        now = self._adopted()
        if change.part is not Part.RECORD:
            self.made.add(_line(change))
        hidden = [*_hidden(change, before, now)]
        assert not hidden, (
            f'the change "{_line(change)}" changed more than it says: {", ".join(hidden)}'
        )
        return after

    def _adopted(self) -> Built:
        built = self._harness.built().items()
        return next(one for owner, one in built if not _is_of_others(owner))


def _hidden(change: Change, before: Built, after: Built) -> Iterator[str]:
    """Yields what a change did of which its line says nothing."""
    for port in before.ports ^ after.ports:
        if str(port) not in re.findall(r"\d+", change.summary):
            yield f"port {port}"
    if change.part is Part.MEMBERS:
        before = replace(before, members=after.members)
    if change.part is not Part.WHOLE and before != after:
        yield f"{before} to {after}"
