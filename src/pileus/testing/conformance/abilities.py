"""Laws on what a provider declares: a declared ability exists, and an observation costs no more.

Also laws on members: which nodes a provider keeps, and what one deleted machine may do to others.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import ceil
from typing import Any

from pileus.cloud.abilities import Affinity, Requests
from pileus.cloud.balancer import Balancers, BalancerSpec, Change, Owner, Seen
from pileus.cloud.errors import Misconfigured, Unsupported
from pileus.cloud.model import NodeName
from pileus.testing.conformance.convergence import (
    LARGE,
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


async def a_restriction_never_opens(harness: BalancersHarness) -> None:
    """Ranges that are all of another IP family are refused, or admit no one."""
    if not harness.abilities.source_ranges:
        return
    async with harness.connect() as balancers:
        for before in ({"10.0.0.0/8"}, None):
            owner = Owner(US, "u-restricted" if before else "u-new")
            if before:
                spec = spec_of(frozenset({1}), frozenset("a"), None, frozenset(before))
                await settle(harness, balancers, wish_for(harness, owner, spec))
            closed = spec_of(frozenset({1}), frozenset("a"), None, frozenset({"2001:db8::/32"}))
            with suppress(Misconfigured, Unsupported):
                await settle(harness, balancers, wish_for(harness, owner, closed))
            built = standing(harness, US).get(owner.uid)
            assert built is None or built.source_ranges, (
                "a load balancer with IPv4, to which only clients in 2001:db8::/32 may connect, is "
                "open to everyone. Raise no_client_admitted(spec) if spec.admits_no_client"
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


async def families_are_as_declared(harness: BalancersHarness) -> None:
    """What is declared is built, and anything else is refused with Unsupported."""
    able = harness.abilities
    for families in (("IPv4",), ("IPv6",), ("IPv4", "IPv6")):
        owner = Owner(US, f"u-{'-'.join(families)}")
        wish = harness.wish(owner, replace(adapted(harness, SMALL), families=families))
        async with harness.connect() as balancers:
            if able.serves(families):
                await settle(harness, balancers, wish)
                _check_families(standing(harness, US)[owner.uid].families, families)
                # A cloud may have one address of a family: the next one needs it.
                await settle(harness, balancers, harness.wish(owner, None))
                continue
            asked = f"a load balancer with {' and '.join(families)}"
            try:
                seen = (await balancers.observe([wish], deep=True)).get(owner)
                balancers.changes(wish, seen)
            except Unsupported:
                pass
            else:
                raise AssertionError(
                    f"abilities.families ({', '.join(sorted(able.families))}) and dual_stack "
                    f"({able.dual_stack}) do not allow {asked}, but the provider does not raise "
                    "Unsupported. Raise it, or declare what the cloud can do"
                )
        assert owner not in harness.built(), f"{asked} was refused and built"


def _check_families(found: frozenset[str] | None, wanted: tuple[str, ...]) -> None:
    assert found is None or found == {*wanted}, (
        f"a load balancer with {' and '.join(wanted)} is declared (abilities.families, dual_stack) "
        f"and was built with {' and '.join(sorted(found)) or 'none'}. Build what is asked for, or "
        "declare what the cloud can do"
    )


async def changes_cost_no_more_than_declared(harness: BalancersHarness) -> None:
    requests = harness.abilities.requests
    if requests is None or requests.per_change is None:
        return
    async with harness.connect() as balancers:
        counted = _CountedChanges(harness, balancers, requests)
        for spec in (SMALL, LARGE, SMALL, None):
            await settle(harness, counted, wish_for(harness, OWNER, spec))


class _CountedChanges:
    """Load balancers of which no change may make more requests than declared."""

    def __init__(
        self, harness: BalancersHarness, inner: Balancers[Any, Any], requests: Requests
    ) -> None:
        self._inner, self._harness, self._requests = inner, harness, requests
        self.owners, self.observe = inner.owners, inner.observe
        self.changes, self.lock_key = inner.changes, inner.lock_key

    async def apply(self, change: Change, seen: Seen) -> Seen:
        asks, before = _Asks(), self._members()
        self._harness.crash_when(asks)
        try:
            after: Seen = await self._inner.apply(change, seen)
        finally:
            self._harness.crash_when(lambda: False)
        most = self._requests.of_change(len(before ^ self._members()))
        assert most is None or asks.requests <= most, (
            f'the change "{change.summary}" made {asks.requests} requests, but '
            f"abilities.requests ({self._requests}) allows {most}"
        )
        return after

    def _members(self) -> frozenset[str]:
        found = standing(self._harness, US).get(OWNER.uid)
        return found.members if found else frozenset()


async def stopped_machines_join_as_declared(harness: BalancersHarness) -> None:
    """Nodes of stopped machines are members, unless the provider declares otherwise."""
    wanted = adapted(harness, spec_of(frozenset({1}), frozenset("abc")))
    if not harness.stop_machine("c"):
        return
    wish = harness.wish(OWNER, wanted)
    async with harness.connect() as balancers:
        await settle(harness, balancers, wish, waits=False)
        found = standing(harness, US)[OWNER.uid].members
        assert found >= {"a", "b"}, (
            f"the machine of member c is stopped; of a and b, {sorted(found)} are members"
        )
        if not harness.abilities.members_running:
            assert "c" in found, (
                "the machine of node c is stopped, and c did not become a member. Accept it, or "
                "declare abilities.members_running"
            )
        harness.start_machine("c")
        await settle(harness, balancers, wish)

    found = standing(harness, US)[OWNER.uid].members
    assert found == {"a", "b", "c"}, f"all machines run, and {sorted(found)} are members"


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


async def one_address_is_one_member(harness: BalancersHarness) -> None:
    """Two nodes have the same addresses: the load balancer is built, and deleted with its parts."""
    if harness.abilities.members_by_provider_id:
        return
    spec = adapted(harness, SMALL)
    twin = replace(harness.member("b"), name=NodeName("twin-of-b"), provider_id="")
    async with harness.connect() as balancers:
        wish = harness.wish(OWNER, replace(spec, members=spec.members | {twin}))
        await settle(harness, balancers, wish)
        found = standing(harness, US)[OWNER.uid].members
        await settle(harness, balancers, harness.wish(OWNER, None))

    assert "a" in found, f"of the nodes a and b, {sorted(found)} became members"
    assert found & {"b", "twin-of-b"}, "neither of two nodes with one address became a member"
    assert standing(harness, US) == {}
    assert harness.strays() == 0, "parts were left behind"


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
