"""Keys are added where they lack, withdrawn only if ours, unwanted for sure, and for a while."""

from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.errors import Unavailable
from pileus.cloud.model import NodeKeys, NodeName
from pileus.controllers.ssh_keys.authorized_keys import DesiredKeys
from pileus.controllers.ssh_keys.plan import (
    SECOND_CHECK,
    AddKeys,
    KeepKeys,
    Observation,
    ReportFailure,
    WithdrawKeys,
    plan,
    unwanted_since,
)
from tests.unit.controllers.ssh_keys.keys import key

A, B, C = (key(user) for user in ("ann", "bob", "cyd"))
N1, N2, N3 = (NodeName(name) for name in ("n1", "n2", "n3"))
some_keys = st.frozensets(st.sampled_from([A, B, C]))


@st.composite
def node_keys(draw: st.DrawFn) -> NodeKeys:
    ours = draw(some_keys)
    return NodeKeys(ours, draw(some_keys) - ours)


desires = st.builds(DesiredKeys, some_keys, st.sampled_from([(), ("odd",)]))
keyrings = st.dictionaries(st.sampled_from([N1, N2, N3]), node_keys())
LONG_AGO = dict.fromkeys((A, B, C), -SECOND_CHECK)


def observation(desired, keys, **more):
    return Observation(desired=desired, keys=keys, **more)


def performed(keys, steps):
    after = dict(keys)
    for step in steps:
        for name in step.nodes:
            had, changed = after[name], frozenset(step.keys)
            ours = had.ours | changed if isinstance(step, AddKeys) else had.ours - changed
            after[name] = NodeKeys(ours, had.others)
    return after


@given(desires, keyrings)
def test_after_a_plan_there_is_nothing_left_to_do(desired, keys):
    steps = plan(observation(desired, keys, unwanted_since=LONG_AGO))
    after = performed(keys, steps)

    assert plan(observation(desired, after)) == ()
    assert all(desired.keys <= one.ours | one.others for one in after.values())


@given(desires, keyrings)
def test_what_someone_else_added_is_never_withdrawn(desired, keys):
    steps = plan(observation(desired, keys))
    for step in (each for each in steps if isinstance(each, WithdrawKeys)):
        for name in step.nodes:
            assert frozenset(step.keys) <= keys[name].ours
            assert not frozenset(step.keys) & desired.keys


@given(some_keys, keyrings)
def test_a_source_with_problems_withdraws_nothing(desired, keys):
    steps = plan(observation(DesiredKeys(desired, ("odd",)), keys, unwanted_since=LONG_AGO))

    assert not any(isinstance(step, WithdrawKeys) for step in steps)


def test_nodes_that_need_the_same_share_one_call():
    keys = {N1: NodeKeys(), N2: NodeKeys(), N3: NodeKeys(others=frozenset({A}))}

    steps = plan(observation(DesiredKeys(frozenset({A, B})), keys))

    assert steps == (AddKeys((A, B), (N1, N2)), AddKeys((B,), (N3,)))


def test_a_withdrawal_waits_until_the_key_was_unwanted_for_a_while():
    keys = {N1: NodeKeys(frozenset({A, B}))}
    first = observation(DesiredKeys(), keys, unwanted_since={A: 0.0}, now=5.0)
    since = unwanted_since(plan(first), first)
    second = observation(DesiredKeys(), keys, unwanted_since=since, now=SECOND_CHECK)
    again = observation(DesiredKeys(frozenset({A, B})), keys, unwanted_since=since, now=6.0)

    assert since == {A: 0.0, B: 5.0}
    assert plan(first) == (WithdrawKeys((A, B), (N1,), SECOND_CHECK),)
    assert plan(second) == (WithdrawKeys((A,), (N1,)), WithdrawKeys((B,), (N1,), 5.0))
    assert unwanted_since(plan(again), again) == {}, "desired again: the time starts again"


def test_a_cloud_that_cannot_list_keys_is_not_asked_to_withdraw_them():
    keys = {N1: NodeKeys(others=frozenset({A, B}))}
    seen = observation(DesiredKeys(frozenset({A})), keys, unlisted="cannot list")

    assert plan(seen) == (KeepKeys((B,), "cannot list"),)


def test_a_node_without_an_answer_is_reported_and_not_changed():
    error = Unavailable("down")
    seen = observation(DesiredKeys(frozenset({A})), {}, failures={N1: error})

    assert plan(seen) == (ReportFailure(N1, error),)
