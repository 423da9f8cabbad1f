"""What is read of balancers and how often, what is noted on them, and how they are adopted."""

from dataclasses import replace

import pytest

from pileus.cloud.balancer import BalancerSpec, BalancerState, Listener, Owner, Part, Wish
from pileus.cloud.errors import Conflict, Misconfigured
from pileus.cloud.model import NodeName, NodeRef
from pileus_lab.local.balancer_plan import Change
from pileus_lab.local.capabilities import LocalBalancers
from pileus_lab.local.cloud import LocalCloud
from pileus_lab.local.model.account import AddFault
from pileus_lab.local.model.balancers import (
    AddMembers,
    ClaimBalancer,
    CreateBalancer,
    RemoveMembers,
    SetTraffic,
)
from pileus_lab.local.model.records import (
    Balancer,
    FaultKind,
    Mark,
    Member,
    Port,
    Traffic,
)
from pileus_lab.local.model.state import A, Operation, Settings
from tests.unit.providers.local.clouds import Hands, local_cloud

OWNER = Owner("blue", "u1")
SPEC = BalancerSpec(
    listeners=frozenset({Listener(port=80, node_port=30080)}),
    members=frozenset(NodeRef(name=NodeName(name)) for name in "ab"),
)
WISH = Wish(owner=OWNER, spec=SPEC, name="web")


def wanting(**changes: object) -> Wish:
    return replace(WISH, spec=replace(SPEC, **changes))


TWO_CHANGES = wanting(
    sticky_seconds=60, members=frozenset({NodeRef(name=NodeName(n)) for n in "abc"})
)


class Counted:
    """The cloud's API, with the names of what was asked of it."""

    def __init__(self, cloud: LocalCloud) -> None:
        self.cloud = cloud
        self.asked: list[str] = []

    async def call(self, operation: Operation[A]) -> A:
        self.asked.append(operation.NAME.removeprefix("balancers."))
        return await self.cloud.call(operation)


class Story:
    def __init__(self, settings: Settings | None = None) -> None:
        self.clock = Hands()
        self.cloud = local_cloud(self.clock, settings=settings)
        self.api = Counted(self.cloud)
        self.balancers = LocalBalancers(self.api)

    async def plan(self, wish: Wish, *, deep: bool = False) -> tuple[Change, ...]:
        seen = await self.balancers.observe([wish], deep=deep)
        return self.balancers.changes(wish, seen[wish.owner])

    async def perform(self, wish: Wish, most: int = 99) -> None:
        """Apply the first changes of the plan, as a process that dies then."""
        seen = (await self.balancers.observe([wish], deep=False))[wish.owner]
        for change in self.balancers.changes(wish, seen)[:most]:
            seen = await self.balancers.apply(change, seen)

    @property
    def only(self) -> Balancer:
        (balancer,) = self.cloud.state.balancers.values()
        return balancer


async def settled(wish: Wish = WISH) -> Story:
    story = Story()
    await story.perform(wish)
    assert await story.plan(wish) == ()
    story.api.asked.clear()
    return story


async def test_a_balancer_is_marked_and_fingerprinted_by_the_call_that_creates_it():
    story = Story()

    await story.perform(WISH)

    assert story.api.asked == ["list_outlines", "create"]
    assert story.only.mark == Mark(cluster="blue", owner="u1")
    assert story.only.fingerprint == WISH.fingerprint


async def test_many_balancers_as_wished_cost_one_list_without_members():
    story = Story()
    wishes = [replace(WISH, owner=Owner("blue", f"u{i}"), name=f"web-{i}") for i in range(50)]
    for wish in wishes:
        await story.perform(wish)
    story.api.asked.clear()

    seen = await story.balancers.observe(wishes, deep=False)

    assert [story.balancers.changes(wish, seen[wish.owner]) for wish in wishes] == [()] * 50
    assert story.api.asked == ["list_outlines"]


async def test_only_those_are_read_in_whole_that_are_not_as_wished():
    story = await settled()
    other = replace(WISH, owner=Owner("blue", "u2"), spec=replace(SPEC, sticky_seconds=5))
    await story.perform(other)
    story.api.asked.clear()
    changed = replace(other, spec=replace(SPEC, sticky_seconds=6))

    seen = await story.balancers.observe([WISH, changed], deep=False)

    assert story.api.asked == ["list_outlines", "list"]
    assert not isinstance(seen[OWNER].found, Balancer)
    assert isinstance(seen[other.owner].found, Balancer)
    with pytest.raises(Conflict, match="observe again"):
        story.balancers.changes(TWO_CHANGES, seen[OWNER])


async def test_one_change_is_one_call_that_notes_the_new_fingerprint_too():
    story = await settled()
    grown = wanting(members=frozenset(NodeRef(name=NodeName(name)) for name in "abc"))

    await story.perform(grown)

    assert story.api.asked == ["list_outlines", "list", "add_members"]
    assert story.only.fingerprint == grown.fingerprint
    assert await story.plan(grown, deep=True) == ()


async def test_several_changes_are_noted_as_done_by_a_last_one():
    story = await settled()

    changes = await story.plan(TWO_CHANGES)
    await story.perform(TWO_CHANGES)

    assert [change.part for change in changes] == [Part.MEMBERS, Part.WHOLE, Part.RECORD]
    assert story.only.fingerprint == TWO_CHANGES.fingerprint


@pytest.mark.parametrize("done", [1, 2])
async def test_who_dies_half_way_is_followed_by_a_look_at_all_even_if_the_wish_goes_back(done: int):
    story = await settled()
    await story.perform(TWO_CHANGES, most=done)

    assert story.only.fingerprint == ""
    assert await story.plan(WISH) != ()
    await story.perform(WISH)

    assert await story.plan(WISH, deep=True) == ()
    assert len(story.only.members) == 2
    assert story.only.traffic.sticky_seconds is None


async def test_nothing_is_noted_as_done_while_a_change_was_held_back():
    story = await settled()
    seen = (await story.balancers.observe([TWO_CHANGES], deep=False))[OWNER]
    members, *others = story.balancers.changes(TWO_CHANGES, seen)
    for change in others:
        seen = await story.balancers.apply(change, seen)

    assert members.part is Part.MEMBERS
    assert story.only.fingerprint == ""
    assert [change.summary for change in await story.plan(TWO_CHANGES)] == ["member c"]


async def test_trap_8_another_spelling_of_a_wish_is_no_change():
    story = await settled(wanting(families=("IPv6",), requested_address="::1"))

    assert await story.plan(wanting(families=("IPv6",), requested_address="0:0::1")) == ()
    assert (
        await story.plan(wanting(families=("IPv6",), requested_address="0:0::1"), deep=True) == ()
    )


@pytest.mark.parametrize(
    "edit",
    [
        lambda lb: RemoveMembers(balancer=lb, names=("a",)),
        lambda lb: AddMembers(balancer=lb, members=(Member(name="intruder"),)),
        lambda lb: SetTraffic(balancer=lb, traffic=Traffic(sources=("10.0.0.0/8",))),
    ],
)
async def test_what_hands_did_is_seen_by_a_deep_look_alone_and_undone(edit):
    story = await settled()
    as_wished = story.only
    await story.cloud.operate(edit(as_wished.id))

    assert await story.plan(WISH) == ()
    (mended,) = await story.plan(WISH, deep=True)
    seen = (await story.balancers.observe([WISH], deep=True))[OWNER]
    await story.balancers.apply(mended, seen)

    assert story.only == as_wished


async def test_a_balancer_that_is_not_told_in_whole_is_unknown():
    story = await settled()
    await story.cloud.operate(
        AddFault(kind=FaultKind.PARTIAL, where="balancers.list", share=1.0, times=1)
    )

    assert await story.balancers.observe([WISH], deep=True) == {}


async def test_a_balancer_that_cannot_listen_has_failed_and_says_why():
    story = await settled()
    where = (story.only.id, "listener 127.78.0.1:80/TCP")
    story.cloud.health = lambda: {where: "permission denied", (story.only.id, "a"): "not open"}

    for deep in (False, True):
        seen = (await story.balancers.observe([WISH], deep=deep))[OWNER]
        assert seen.balancer is not None
        assert seen.balancer.state is BalancerState.FAILED
        assert seen.balancer.problem == "listener 127.78.0.1:80/TCP: permission denied"
        assert seen.balancer.members == 2


BY_HAND = CreateBalancer(name="old", ports=(Port(port=80, node_port=30080),))


async def with_old(mark: Mark) -> tuple[Story, Wish]:
    """A cloud with one balancer, and the wish to adopt it."""
    story = Story()
    old = await story.cloud.operate(
        CreateBalancer(name="old", mark=mark, ports=BY_HAND.ports, fingerprint=WISH.fingerprint)
    )
    return story, replace(WISH, adopts=old.id, may_use_foreign=True)


@pytest.mark.parametrize(
    ("mark", "whose"),
    [
        pytest.param(Mark(), "created manually", id="by hand"),
        pytest.param(Mark(cluster="blue", owner="before-restore"), "of before-restore", id="uid"),
    ],
)
async def test_trap_16_what_the_user_names_is_adopted_and_mended(mark: Mark, whose: str):
    story, adopting = await with_old(mark)
    address = story.only.addresses

    shown = [change.summary for change in await story.plan(adopting)]
    await story.perform(adopting)

    assert shown[0] == f"balancer old ({story.only.id}), {whose}: adopt it"
    assert shown[1] == "members a, b"
    assert story.only.mark == Mark(cluster="blue", owner="u1")
    assert story.only.addresses == address
    assert await story.plan(adopting) == await story.plan(WISH, deep=True) == ()


async def test_trap_16_who_dies_while_adopting_has_adopted_and_mends_the_rest_later():
    story, adopting = await with_old(Mark())

    await story.perform(adopting, most=1)

    assert story.only.mark == Mark(cluster="blue", owner="u1")
    assert story.only.fingerprint == ""
    await story.perform(adopting)
    assert len(story.only.members) == 2


@pytest.mark.parametrize("deep", [False, True])
async def test_trap_3_nothing_is_adopted_that_belongs_to_another_cluster(deep: bool):
    story, adopting = await with_old(Mark(cluster="red", owner="u9"))

    with pytest.raises(Misconfigured, match=r"\(old\) .* belongs to cluster red, owner u9"):
        await story.plan(adopting, deep=deep)


async def test_trap_3_a_balancer_of_the_same_name_is_not_ours():
    story = Story()
    theirs = await story.cloud.operate(CreateBalancer(name="web"))

    await story.perform(WISH)
    await story.perform(replace(WISH, spec=None))

    assert story.only == theirs


async def test_what_does_not_exist_is_not_adopted_and_nothing_is_created_in_its_place():
    story = Story()

    with pytest.raises(
        Misconfigured, match="lb-7 cannot be adopted: there is no balancer with that ID"
    ):
        await story.plan(replace(WISH, adopts="lb-7", may_use_foreign=True))


async def test_who_has_a_balancer_adopts_no_second_one():
    story = await settled()
    ours = story.only.id
    other = await story.cloud.operate(BY_HAND)

    with pytest.raises(Misconfigured, match=f"this Service has {ours} already"):
        await story.plan(replace(WISH, adopts=other.id, may_use_foreign=True))


async def test_what_was_only_named_is_not_deleted():
    story, adopting = await with_old(Mark())

    assert await story.plan(replace(adopting, spec=None), deep=True) == ()


async def test_what_someone_else_claimed_meanwhile_is_left_to_them():
    story, adopting = await with_old(Mark())
    seen = (await story.balancers.observe([adopting], deep=False))[OWNER]
    claim, *_ = story.balancers.changes(adopting, seen)
    hers = Mark(cluster="blue", owner="u2")
    await story.cloud.operate(ClaimBalancer(balancer=story.only.id, mark=hers))

    with pytest.raises(Conflict, match="another owner"):
        await story.balancers.apply(claim, seen)

    assert story.only.mark == hers


async def test_a_busy_balancer_is_not_adopted_yet():
    story = Story(Settings(settle_seconds=5))
    old = await story.cloud.operate(BY_HAND)

    assert await story.plan(replace(WISH, adopts=old.id, may_use_foreign=True)) == ()
    story.clock.forward(6)
    assert await story.plan(replace(WISH, adopts=old.id, may_use_foreign=True)) != ()
