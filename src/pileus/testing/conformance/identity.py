"""Laws on whose a load balancer is: a name proves nothing; the user's word does, in the cluster.

A provider that cannot adopt raises `Unsupported` and changes nothing.
"""

from dataclasses import replace
from typing import Any

from pileus.cloud.balancer import Balancers, Change, Owner, Part, Seen, Wish
from pileus.cloud.errors import CloudError, Misconfigured, Unsupported
from pileus.testing.conformance.convergence import (
    ROUNDS,
    SMALL,
    THEM,
    US,
    built_of,
    look,
    settle,
    standing,
    wish_for,
)
from pileus.testing.conformance.harness import BalancersHarness

OWNER = Owner(US, "u1")
NAME = "web"


async def names_are_no_identity(harness: BalancersHarness) -> None:
    """Of the same name: one created manually, and one of each of two Services."""
    if harness.furnish(NAME, None) is None:
        return
    before = harness.built()
    other = Owner(US, "u2")
    async with harness.connect() as balancers:
        for owner in (OWNER, other):
            wish = replace(wish_for(harness, owner, SMALL), name=NAME)
            await settle(harness, balancers, wish)
        expected = dict.fromkeys(("u1", "u2"), built_of(harness, SMALL))
        assert standing(harness, US) == expected
        await settle(harness, balancers, replace(harness.wish(OWNER, None), name=NAME))

    assert standing(harness, US) == {other.uid: built_of(harness, SMALL)}
    assert {o: b for o, b in harness.built().items() if o.cluster != US} == before


async def named_by_the_user_is_adopted(harness: BalancersHarness) -> None:
    for uid, mark in (("u1", None), ("u2", Owner(US, "before-the-restore"))):
        named = harness.furnish(NAME, mark)
        if named is None:
            return
        before = harness.built()
        try:
            await _adopt(harness, Owner(US, uid), named, mark)
        except Unsupported:
            assert harness.built() == before, "adoption was refused, but something was changed"
            return
    assert harness.strays() == 0


async def _adopt(harness: BalancersHarness, owner: Owner, named: str, mark: Owner | None) -> None:
    wish = replace(wish_for(harness, owner, SMALL), adopts=named)
    async with harness.connect() as balancers:
        assert await _effects(balancers, wish), "adoption is no change that a plan would show"
        before = (await look(balancers, wish, deep=False)).balancer
        assert before is None or before.owner == mark, "Balancer.owner is not the mark"
        seen = await settle(harness, balancers, wish)

    assert seen.balancer is not None
    assert seen.balancer.id == named, "another load balancer was created"
    assert standing(harness, US)[owner.uid] == built_of(harness, SMALL)


async def _effects(balancers: Balancers[Any, Any], wish: Wish) -> list[str]:
    return [c.effect for c in balancers.changes(wish, await look(balancers, wish, deep=False))]


async def named_without_being_ours(harness: BalancersHarness) -> None:
    """If only members may be changed, the load balancer that the user names stays unmarked."""
    named = harness.furnish(NAME, None)
    if named is None:
        return
    (mark,) = harness.built()
    wish = replace(wish_for(harness, OWNER, SMALL), adopts=named)
    try:
        seen = await _change_members(harness, wish)
    except Unsupported:
        return

    assert seen.balancer is not None, "the load balancer that the user names is not shown"
    assert seen.balancer.id == named
    assert harness.built().keys() == {mark}, "it was adopted by a change of members"
    assert harness.built()[mark].members == {"a", "b"}, "its members were not changed"


async def _change_members(harness: BalancersHarness, wish: Wish) -> Seen:
    async with harness.connect() as balancers:
        for _ in range(ROUNDS):
            seen = await look(balancers, wish, deep=True)
            for change in _of_members(balancers, wish, seen)[:1]:
                await balancers.apply(change, seen)
        seen = await look(balancers, wish, deep=True)
        assert not _of_members(balancers, wish, seen), "members are changed without an end"
        return seen


def _of_members(balancers: Balancers[Any, Any], wish: Wish, seen: Seen) -> list[Change]:
    return [change for change in balancers.changes(wish, seen) if change.part is Part.MEMBERS]


async def of_another_cluster_is_refused(harness: BalancersHarness) -> None:
    theirs = Owner(THEM, "u9")
    named = harness.furnish(NAME, theirs)
    if named is None:
        return
    before = harness.built()
    wish = replace(wish_for(harness, OWNER, SMALL), adopts=named)
    refusal = await _refusal(harness, wish)

    assert harness.built() == before
    if isinstance(refusal, Unsupported):
        return
    assert isinstance(refusal, Misconfigured), f"it was not refused: {refusal!r}"
    assert THEM in str(refusal), "the refusal does not name the cluster that it belongs to"


async def _refusal(harness: BalancersHarness, wish: Wish) -> CloudError | None:
    async with harness.connect() as balancers:
        try:
            await settle(harness, balancers, wish)
        except CloudError as error:
            return error
    return None
