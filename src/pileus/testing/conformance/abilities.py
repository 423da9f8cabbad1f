"""Laws on what a provider declares: a declared ability exists, and an observation costs no more.

Also laws on members: which nodes a provider keeps, and what one deleted machine may do to others.
"""

from collections.abc import Callable
from dataclasses import replace
from math import ceil

from pileus.cloud.abilities import Affinity
from pileus.cloud.balancer import BalancerSpec, Owner
from pileus.testing.conformance.convergence import (
    SMALL,
    US,
    adapted,
    settle,
    spec_of,
    standing,
    wish_for,
)
from pileus.testing.conformance.harness import BalancersHarness

OWNER = Owner(US, "u1")
OBSERVED = 5
"""Load balancers in the law on requests: more than a short page has."""


async def affinity_is_as_declared(harness: BalancersHarness) -> None:
    affinity = harness.abilities.affinity
    if affinity is Affinity.NONE:
        return
    async with harness.connect() as balancers:
        for seconds in (60, 90, None):
            wanted = spec_of(frozenset({1}), frozenset("a"), seconds)
            await settle(harness, balancers, wish_for(harness, OWNER, wanted))
            expected = adapted(harness, wanted).sticky_seconds
            found = standing(harness, US)[OWNER.uid].sticky_seconds
            assert found == expected, (
                f"abilities.affinity is declared as {affinity.value!r}, but a load balancer that "
                f"should have sticky_seconds={expected} has {found}. Apply it, or declare what "
                "the cloud can do"
            )


async def source_ranges_are_as_declared(harness: BalancersHarness) -> None:
    if not harness.abilities.source_ranges:
        return
    async with harness.connect() as balancers:
        for ranges in ({"10.0.0.0/8"}, {"192.0.2.0/24"}, set[str]()):
            wanted = spec_of(frozenset({1}), frozenset("a"), None, frozenset(ranges))
            await settle(harness, balancers, wish_for(harness, OWNER, wanted))
            found = standing(harness, US)[OWNER.uid].source_ranges
            assert found == ranges, (
                "abilities.source_ranges is declared, but a load balancer that should be open to "
                f"{sorted(ranges) or 'everyone'} is open to {sorted(found) or 'everyone'}. Apply "
                "them, or declare source_ranges=False"
            )


async def requests_are_as_declared(harness: BalancersHarness) -> None:
    requests = harness.abilities.requests
    if requests is None:
        return
    wishes = [wish_for(harness, Owner(US, f"u{each}"), SMALL) for each in range(OBSERVED)]
    async with harness.connect() as balancers:
        for wish in wishes:
            await settle(harness, balancers, wish)
    async with harness.connect() as balancers:
        for deep in (False, True):
            asks = _Asks()
            harness.crash_when(asks)
            await balancers.observe(wishes, deep=deep)
            harness.crash_when(lambda: False)
            read = len(wishes) if deep or not harness.keeps_fingerprints else 0
            most = requests.of_check(len(harness.built()), read)
            assert asks.requests <= most, (
                f"a {'full' if deep else 'quick'} check of {len(wishes)} load balancers made "
                f"{asks.requests} requests, but abilities.requests ({requests}) allows {most}"
            )


class _Asks:
    """Counts requests: a harness asks before and after each."""

    def __init__(self) -> None:
        self._asks = 0

    def __call__(self) -> bool:
        self._asks += 1
        return False

    @property
    def requests(self) -> int:
        return ceil(self._asks / 2)


async def unnamed_members_are_accepted(harness: BalancersHarness) -> None:
    """A node without a provider ID is a member, unless the provider declares otherwise."""
    if harness.abilities.members_by_provider_id:
        return
    wanted = _without_ids(adapted(harness, SMALL))
    async with harness.connect() as balancers:
        await settle(harness, balancers, harness.wish(OWNER, wanted))

    found = standing(harness, US)[OWNER.uid].members
    assert found == {"a", "b"}, (
        f"of the nodes a and b without provider IDs, {sorted(found)} became members. Accept them, "
        "or declare abilities.members_by_provider_id"
    )


async def registering_again_keeps_the_place(harness: BalancersHarness) -> None:
    """A node is created again, first without its provider ID: it stays a member all the time."""
    named = adapted(harness, SMALL)
    passes = [named, *([] if _needs_ids(harness) else [_without_ids(named)]), named]
    async with harness.connect() as balancers:
        await settle(harness, balancers, harness.wish(OWNER, named))
        harness.crash_when(_members_stay(harness, frozenset("ab")))
        for spec in passes:
            await settle(harness, balancers, harness.wish(OWNER, spec))
        harness.crash_when(lambda: False)


def _needs_ids(harness: BalancersHarness) -> bool:
    """The core then gives such a node the provider ID that its machine had before."""
    return harness.abilities.members_by_provider_id


def _without_ids(spec: BalancerSpec) -> BalancerSpec:
    return replace(spec, members=frozenset(replace(m, provider_id="") for m in spec.members))


def _members_stay(harness: BalancersHarness, names: frozenset[str]) -> Callable[[], bool]:
    def check() -> bool:
        found = standing(harness, US)[OWNER.uid].members
        assert found >= names, f"member {', '.join(sorted(names - found))} lost its place"
        return False

    return check


async def members_that_stay_are_never_removed(harness: BalancersHarness) -> None:
    """While members are exchanged, those in both specs serve traffic all the time."""
    async with harness.connect() as balancers:
        one = frozenset({1})
        await settle(harness, balancers, wish_for(harness, OWNER, spec_of(one, frozenset("ab"))))
        harness.crash_when(_members_stay(harness, frozenset("b")))
        await settle(harness, balancers, wish_for(harness, OWNER, spec_of(one, frozenset("bcd"))))
        harness.crash_when(lambda: False)


async def a_deleted_machine_harms_no_other_member(harness: BalancersHarness) -> None:
    """The Node of a deleted machine stays in `members` for a while: the others are updated."""
    async with harness.connect() as balancers:
        await settle(harness, balancers, wish_for(harness, OWNER, SMALL))
        wanted = replace(
            adapted(harness, SMALL), members=frozenset(harness.member(name) for name in "abc")
        )
        if not harness.delete_machine("a"):
            return
        await settle(harness, balancers, harness.wish(OWNER, wanted))

    found = standing(harness, US)[OWNER.uid].members
    assert found >= {"b", "c"}, (
        f"the machine of member a is deleted; of b and c, {sorted(found)} are members"
    )
