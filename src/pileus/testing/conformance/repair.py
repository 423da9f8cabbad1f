"""Laws on keeping load balancers up to date: fingerprints, manual changes, failures half-way."""

import re
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from pileus.cloud.balancer import (
    Balancers,
    BalancerSpec,
    Change,
    Ingress,
    Owner,
    Part,
    Seen,
    Wish,
)
from pileus.cloud.errors import CloudError, Conflict, Unavailable
from pileus.testing.conformance.convergence import (
    LARGE,
    SMALL,
    US,
    Make,
    built_of,
    look,
    settle,
    standing,
    wish_for,
)
from pileus.testing.conformance.harness import BalancersHarness, Countdown, Crash, LoopFactory, run

OWNER = Owner(US, "u1")
PORT_ERROR = re.compile(r"([a-z0-9][-a-z0-9.]*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
"""The form of a port's error in the Kubernetes API: a CamelCase word, perhaps with a prefix."""
REQUESTS = 25
"""More than any change from one spec to the other needs."""


async def quick_check_finds_nothing(harness: BalancersHarness) -> None:
    wish = wish_for(harness, OWNER, SMALL)
    async with harness.connect() as balancers:
        await settle(harness, balancers, wish)
        assert not balancers.changes(wish, await look(balancers, wish, deep=False))
        full = await look(balancers, wish, deep=True)
    async with harness.connect() as balancers:
        seen = await look(balancers, wish, deep=False)
        if seen.balancer is not None and full.balancer is not None:
            found, whole = dict(seen.balancer.annotations), dict(full.balancer.annotations)
            assert found == whole, "annotations of a quick check differ from those of a full one"
        if not harness.keeps_fingerprints:
            return
        assert not balancers.changes(wish, seen), "a new process finds something to do"
        assert seen.balancer is not None, "a quick check lost the load balancer"


LISTS = 8
"""More lists than a deletion reads."""


def crash_half_way_is_seen(make: Make, loop_factory: LoopFactory) -> None:
    """A process dies while it applies a change; the next one only makes quick checks.

    Meanwhile the desired state stays, or is changed back: only the fingerprint shows what exists.
    """
    for count in range(REQUESTS):
        for wanted in (SMALL, LARGE):
            run(_dies_and_returns(make(), count, wanted), loop_factory)


async def _dies_and_returns(harness: BalancersHarness, count: int, wanted: BalancerSpec) -> None:
    async with harness.connect() as balancers:
        await settle(harness, balancers, wish_for(harness, OWNER, SMALL))
    other = wish_for(harness, OWNER, LARGE)
    harness.crash_when(Countdown(count))
    try:
        async with harness.connect() as balancers:
            await settle(harness, balancers, other, deep=False)
    except Crash:
        pass
    harness.crash_when(lambda: False)
    async with harness.connect() as balancers:
        await settle(harness, balancers, wish_for(harness, OWNER, wanted), deep=False)

    assert standing(harness, US) == {OWNER.uid: built_of(harness, wanted)}, (
        f"a process that died at request {count} left a difference that quick checks do not find"
    )


async def manual_changes_are_undone(harness: BalancersHarness) -> None:
    wish = wish_for(harness, OWNER, SMALL)
    async with harness.connect() as balancers:
        await settle(harness, balancers, wish)
    if not harness.tamper(OWNER):
        return
    assert standing(harness, US) != {OWNER.uid: built_of(harness, SMALL)}, (
        "the harness did not change anything"
    )
    async with harness.connect() as balancers:
        await settle(harness, balancers, wish, deep=True)

    assert standing(harness, US) == {OWNER.uid: built_of(harness, SMALL)}


async def members_alone(harness: BalancersHarness) -> None:
    """A change of `Part.MEMBERS` changes nothing else."""
    async with harness.connect() as balancers:
        await settle(harness, balancers, wish_for(harness, OWNER, SMALL))
        wish = wish_for(harness, OWNER, LARGE)
        seen = await look(balancers, wish, deep=True)
        for change in balancers.changes(wish, seen):
            if change.part is Part.MEMBERS:
                seen = await _applied(balancers, wish, change, seen)

    before, after = built_of(harness, SMALL), standing(harness, US)[OWNER.uid]
    assert replace(after, members=before.members) == before, "more than members was changed"


async def records_alone(harness: BalancersHarness) -> None:
    """A change of `Part.RECORD` changes nothing of the load balancer: plans do not show it."""
    async with harness.connect() as balancers:
        for spec in (SMALL, LARGE, SMALL):
            wish = wish_for(harness, OWNER, spec)
            await settle(harness, _WatchedRecords(balancers, harness), wish)


class _WatchedRecords:
    """Load balancers that fail if a change of `Part.RECORD` does more than it says."""

    def __init__(self, inner: Balancers[Any, Any], harness: BalancersHarness) -> None:
        self._inner, self._harness = inner, harness
        self.owners, self.observe = inner.owners, inner.observe
        self.changes, self.lock_key = inner.changes, inner.lock_key

    async def apply(self, change: Change, seen: Seen) -> Seen:
        before = self._harness.built()
        after: Seen = await self._inner.apply(change, seen)
        if change.part is Part.RECORD:
            assert self._harness.built() == before, (
                f'the change "{change.summary}" has Part.RECORD and changed the load balancer. '
                "Plans hide such changes: use Part.RECORD only for a fingerprint and the like"
            )
        return after


async def _applied(balancers: Balancers[Any, Any], wish: Wish, change: Change, seen: Seen) -> Seen:
    try:
        return await balancers.apply(change, seen)
    except Conflict:
        return await look(balancers, wish, deep=True)


async def addresses_can_be_published(harness: BalancersHarness) -> None:
    """Every address is one that the API server accepts, and port states are current."""
    async with harness.connect() as balancers:
        for spec in (SMALL, LARGE):
            wish = wish_for(harness, OWNER, spec)
            await settle(harness, balancers, wish)
            for deep in (True, False):
                _check_addresses(await look(balancers, wish, deep=deep), spec)


def _check_addresses(seen: Seen, spec: BalancerSpec) -> None:
    for ingress in seen.balancer.ingress if seen.balancer else ():
        _check_ingress(ingress, spec)


def _check_ingress(ingress: Ingress, spec: BalancerSpec) -> None:
    assert ingress.ip or ingress.hostname, "an address without IP and host name"
    assert not ingress.ip or _is_ip(ingress.ip), f'"{ingress.ip}" is not an IP address'
    assert not _is_ip(ingress.hostname), f"{ingress.hostname} is an IP address, not a host name"
    reported = [(each.port, each.transport) for each in ingress.ports]
    wanted = {(each.port, each.transport) for each in spec.listeners}
    assert not reported or set(reported) == wanted, "port states are not those of the listeners"
    assert len(reported) == len(set(reported)), "a port has two states"
    for each in ingress.ports:
        assert not each.error or PORT_ERROR.fullmatch(each.error), f'"{each.error}" is not one word'


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def failures_delete_nothing(make: Make, loop_factory: LoopFactory) -> None:
    for count in range(REQUESTS):
        run(_fails(make(), count), loop_factory)


async def _fails(harness: BalancersHarness, count: int) -> None:
    """What both the old and the new spec contain exists all the time, whatever failed."""
    async with harness.connect() as balancers:
        await settle(harness, balancers, wish_for(harness, OWNER, SMALL))
        other = wish_for(harness, OWNER, LARGE)
        harness.crash_when(Countdown(count), Unavailable("the cloud is down"))
        with suppress(CloudError, ExceptionGroup):
            await settle(harness, balancers, other)
        harness.crash_when(lambda: False)

    after = standing(harness, US).get(OWNER.uid)
    assert after is not None, f"a failure at request {count} deleted the load balancer"
    assert after.ports >= _ports(harness, SMALL) & _ports(harness, LARGE), (
        "a port that stays was deleted"
    )
    assert after.members >= {"b"}, "a member that stays was removed"


def _ports(harness: BalancersHarness, spec: BalancerSpec) -> frozenset[int]:
    return built_of(harness, spec).ports


def one_empty_list_leaves_nothing(make: Make, loop_factory: LoopFactory) -> None:
    """A list that is read for a deletion is empty once: of load balancers, or of their parts.

    The next observation, which the core makes before it forgets the Service, shows what is left.
    """
    for count in range(LISTS):
        run(_deleted_with_an_empty_list(make(), count), loop_factory)


async def _deleted_with_an_empty_list(harness: BalancersHarness, count: int) -> None:
    async with harness.connect() as balancers:
        await settle(harness, balancers, wish_for(harness, OWNER, SMALL))
        if not harness.overlook_when(Countdown(count)):
            return
        for _ in range(2):  # the core checks twice, too
            with suppress(CloudError, ExceptionGroup):
                await settle(harness, balancers, harness.wish(OWNER, None))

    assert standing(harness, US) == {}, f"list {count} was empty, and all of it was left"
    assert harness.strays() == 0, f"list {count} was empty, and parts were left behind"


async def orphans_are_deleted(harness: BalancersHarness) -> None:
    """The load balancer was deleted manually; its parts still have to be deleted."""
    async with harness.connect() as balancers:
        await settle(harness, balancers, wish_for(harness, OWNER, SMALL))
        harness.vandalise(OWNER)
        await settle(harness, balancers, harness.wish(OWNER, None))

    assert standing(harness, US) == {}
    assert harness.strays() == 0, "parts were left behind"
