"""Laws on whose a load balancer is: names prove nothing, annotations need an operator's permission.

A provider that cannot adopt raises `Unsupported` and changes nothing.
"""

from dataclasses import replace
from itertools import product
from typing import Any

from pileus.cloud.balancer import Balancers, BalancerSpec, Change, Owner, Part, Seen, Wish
from pileus.cloud.errors import CloudError, Misconfigured, Rejected, Unsupported
from pileus.testing.conformance.convergence import (
    ROUNDS,
    SMALL,
    THEM,
    US,
    built_of,
    look,
    settle,
    spec_of,
    standing,
    wish_for,
)
from pileus.testing.conformance.harness import BalancersHarness

OWNER = Owner(US, "u1")
NAME = "web"
UNKNOWN = "0a1b2c3d-0000-4000-8000-000000000000"
"""The ID of no load balancer."""
BESIDE = spec_of(frozenset({2, 3}), frozenset("ab"))
"""Without the port that a furnished load balancer has."""


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
    """A provider whose load balancers can be shared leaves a port alone that was there before."""
    try:
        await _adopt_with(harness, owner, named, mark, SMALL)
    except Misconfigured:
        await _adopt_with(harness, owner, named, mark, BESIDE)


async def _adopt_with(
    harness: BalancersHarness, owner: Owner, named: str, mark: Owner | None, spec: BalancerSpec
) -> None:
    wish = replace(wish_for(harness, owner, spec), adopts=named, may_use_foreign=True)
    before_all = harness.built()
    async with harness.connect() as balancers:
        try:
            await _effects(balancers, wish)
        except Misconfigured:
            assert harness.built() == before_all, "adoption was refused, but something was changed"
            raise
        assert await _effects(balancers, wish), "adoption is no change that a plan would show"
        before = (await look(balancers, wish, deep=False)).balancer
        assert before is None or before.owner == mark, "Balancer.owner is not the mark"
        seen = await settle(harness, balancers, wish)

    assert seen.balancer is not None
    assert seen.balancer.id == named, "another load balancer was created"
    after = standing(harness, US)[owner.uid]
    assert after.ports >= built_of(harness, spec).ports
    assert spec is BESIDE or after == built_of(harness, spec)


async def _effects(balancers: Balancers[Any, Any], wish: Wish) -> list[str]:
    return [c.effect for c in balancers.changes(wish, await look(balancers, wish, deep=False))]


async def named_without_being_ours(harness: BalancersHarness) -> None:
    """If only members may be changed, the load balancer that the user names stays unmarked."""
    named = harness.furnish(NAME, None)
    if named is None:
        return
    (mark,) = harness.built()
    wish = replace(
        wish_for(harness, OWNER, SMALL), adopts=named, may_use_foreign=True, only_members=True
    )
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
    wish = replace(wish_for(harness, OWNER, SMALL), adopts=named, may_use_foreign=True)
    refusal = await _refusal(harness, wish)

    assert harness.built() == before
    assert isinstance(refusal, Misconfigured | Unsupported), f"it was not refused: {refusal!r}"


async def a_tenant_reaches_nothing_foreign(harness: BalancersHarness) -> None:
    """Whatever a Service names: without permission nothing is changed, and nothing is disclosed.

    The author of a Service may know any ID, and asks for the whole load balancer or its members.
    """
    marks = (None, Owner(THEM, "uid-of-another-cluster"), Owner(US, "uid-of-another-service"))
    named = [harness.furnish(f"of-others-{place}", mark) for place, mark in enumerate(marks)]
    before, strays = harness.built(), harness.strays()
    texts = set[str]()
    for id_, mark in zip(named, marks, strict=True):
        for only_members in (False, True) if id_ else ():
            wish = replace(
                wish_for(harness, OWNER, SMALL), adopts=id_ or "", only_members=only_members
            )
            refusal = await _refusal(harness, wish)
            assert isinstance(refusal, Misconfigured | Unsupported), (
                f"a load balancer {f'of {mark}' if mark else 'without a mark'} was used without "
                f"the operator's permission: {refusal!r}"
            )
            assert harness.built() == before, "it was refused, but something was changed"
            secrets = [*filter(None, named), *(text for m in marks if m for text in _texts(m))]
            texts.add(str(refusal))
            told = [one for one in secrets if one in str(refusal)]
            assert not told, f"the refusal discloses {told}"
            async with harness.connect() as balancers:
                await settle(harness, balancers, harness.wish(OWNER, None))
            assert harness.built() == before, "it was deleted with the Service"
            assert harness.strays() == strays
    if texts:
        unknown = replace(wish_for(harness, OWNER, SMALL), adopts=UNKNOWN)
        told = str(await _refusal(harness, unknown))
        assert told in texts, f"another refusal discloses that a load balancer exists: {told}"


async def an_address_of_others_is_refused(harness: BalancersHarness) -> None:
    """A Service that asks for an address in use gets nothing, also on a port of its own.

    Nothing is changed, and the refusal names nothing of the other load balancer but the address.
    """
    held, secrets = _furnished(harness)
    before, strays = harness.built(), harness.strays()
    for (holder, address), ports in product(held.items(), (SMALL, BESIDE)):
        spec = replace(ports, requested_address=address)
        refusal = await _refusal(harness, wish_for(harness, OWNER, spec))
        assert isinstance(refusal, Rejected), (
            f"the address {address} of {holder} was not refused: {refusal!r}"
        )
        told = [one for one in secrets if one in str(refusal).replace(address, "")]
        assert not told, f"the refusal discloses {told}: {refusal}"
        assert harness.built() == before, "it was refused, but something was changed"
        async with harness.connect() as balancers:
            await settle(harness, balancers, harness.wish(OWNER, None))
        assert (harness.built(), harness.strays()) == (before, strays)


async def a_load_balancer_keeps_its_own_address(harness: BalancersHarness) -> None:
    """One that exists may ignore the request with a notice, instead of an error."""
    held, secrets = _furnished(harness)
    async with harness.connect() as balancers:
        await settle(harness, balancers, wish_for(harness, OWNER, SMALL))
    before, strays = harness.built(), harness.strays()
    addresses = {owner: one.address for owner, one in before.items()}
    for address in held.values():
        wish = wish_for(harness, OWNER, replace(SMALL, requested_address=address))
        refusal = await _refusal(harness, wish)
        async with harness.connect() as balancers:
            seen = await look(balancers, wish, deep=True)
        notices = seen.balancer.notices if seen.balancer else ()
        said = [str(refusal or ""), *(one.message for one in notices)]
        assert any(said), f"nothing is said about the address {address}, which others have"
        texts = [one.replace(address, "") for one in said]
        told = [one for one in secrets for text in texts if one in text]
        assert not told, f"it is disclosed that {told}: {texts}"
        assert (harness.built(), harness.strays()) == (before, strays)
        assert {owner: one.address for owner, one in harness.built().items()} == addresses


def _furnished(harness: BalancersHarness) -> tuple[dict[Owner, str], list[str]]:
    """Returns the addresses of load balancers of others, and texts that no refusal may contain."""
    marks = (None, Owner(THEM, "uid-of-another-cluster"), Owner(US, "uid-of-another-service"))
    names = [f"of-others-{place}" for place in range(len(marks))]
    ids = [harness.furnish(name, mark) for name, mark in zip(names, marks, strict=True)]
    held = {owner: one.address for owner, one in harness.built().items() if one.address}
    secrets = [*names, *filter(None, ids), *(text for one in marks if one for text in _texts(one))]
    return held, secrets


def _texts(mark: Owner) -> tuple[str, ...]:
    return (mark.uid, *((mark.cluster,) if mark.cluster != US else ()))


async def _refusal(harness: BalancersHarness, wish: Wish) -> CloudError | None:
    async with harness.connect() as balancers:
        try:
            await settle(harness, balancers, wish)
        except CloudError as error:
            return error
    return None
