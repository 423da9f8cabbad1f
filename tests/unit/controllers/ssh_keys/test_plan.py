"""Keys are added where they lack, withdrawn only if ours, unwanted for sure, and for a while."""

from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.balancer import Effect
from pileus.cloud.model import NodeKeys, NodeName
from pileus.controllers.ssh_keys.authorized_keys import Wanted
from pileus.controllers.ssh_keys.plan import (
    SECOND_LOOK,
    Step,
    additions,
    confirmed,
    unwanted_since,
    withdrawals,
)
from tests.unit.controllers.ssh_keys.keys import key

A, B, C = (key(user) for user in ("ann", "bob", "cyd"))
N1, N2, N3 = (NodeName(name) for name in ("n1", "n2", "n3"))
some_keys = st.frozensets(st.sampled_from([A, B, C]))


@st.composite
def node_keys(draw: st.DrawFn) -> NodeKeys:
    ours = draw(some_keys)
    return NodeKeys(ours, draw(some_keys) - ours)


wishes = st.builds(Wanted, some_keys, st.sampled_from([(), ("odd",)]))
sights = st.dictionaries(st.sampled_from([N1, N2, N3]), node_keys())


def performed(seen, steps):
    after = dict(seen)
    for step in steps:
        for name in step.nodes:
            keys = after[name]
            if step.effect is Effect.CREATE:
                after[name] = NodeKeys(keys.ours | frozenset(step.keys), keys.others)
            else:
                after[name] = NodeKeys(keys.ours - frozenset(step.keys), keys.others)
    return after


@given(wishes, sights)
def test_after_a_plan_there_is_nothing_left_to_do(wanted, seen):
    steps = (*additions(wanted, seen), *withdrawals(wanted, seen))
    after = performed(seen, steps)

    assert not additions(wanted, after)
    assert not withdrawals(wanted, after)
    assert all(wanted.keys <= keys.ours | keys.others for keys in after.values())


@given(wishes, sights)
def test_what_someone_else_added_is_never_withdrawn(wanted, seen):
    for step in withdrawals(wanted, seen):
        for name in step.nodes:
            assert frozenset(step.keys) <= seen[name].ours
            assert not frozenset(step.keys) & wanted.keys


@given(some_keys, sights)
def test_a_source_with_problems_withdraws_nothing(keys, seen):
    assert withdrawals(Wanted(keys, ("odd",)), seen) == ()


def test_nodes_that_need_the_same_share_one_call():
    seen = {N1: NodeKeys(), N2: NodeKeys(), N3: NodeKeys(others=frozenset({A}))}

    steps = additions(Wanted(frozenset({A, B})), seen)

    assert steps == (Step(Effect.CREATE, (A, B), (N1, N2)), Step(Effect.CREATE, (B,), (N3,)))


def test_a_withdrawal_waits_until_the_key_was_unwanted_for_a_while():
    steps = withdrawals(Wanted(), {N1: NodeKeys(frozenset({A, B}))})
    since = unwanted_since(steps, {A: 0.0}, now=5.0)

    assert since == {A: 0.0, B: 5.0}
    assert confirmed(steps, since, SECOND_LOOK) == (Step(Effect.DELETE, (A,), (N1,)),)
    assert confirmed(steps, since, 5.0) == ()
    assert unwanted_since((), since, 6.0) == {}, "wanted again: the time begins anew"
