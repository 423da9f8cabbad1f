"""When the changes of nodes have been gathered, and members are updated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.controllers.service.members import (
    LONGEST_BOUND,
    LONGEST_REMOVAL,
    QUIET,
    QUIET_AFTER_REMOVAL,
    QUIET_ALONE,
    QUIET_TOGETHER,
    SHORTEST_BOUND,
    Gathering,
    MemberChange,
)


def test_a_node_that_joins_alone_hardly_waits():
    gathering = Gathering()

    gathering.changed(0.0, MemberChange("a", is_initialized=False))
    assert gathering.wait(0.0) == pytest.approx(QUIET)
    gathering.changed(0.1, MemberChange("a"))

    assert gathering.wait(0.1) == pytest.approx(QUIET_ALONE)
    assert gathering.wait(0.1 + QUIET_ALONE) == pytest.approx(0)


def test_members_are_updated_when_several_nodes_stop_changing():
    gathering = Gathering()

    gathering.changed(0.0, MemberChange("a"))
    gathering.changed(0.05, MemberChange("b"))

    assert gathering.wait(0.05) == pytest.approx(QUIET_TOGETHER)
    gathering.changed(0.2, MemberChange("b"))
    assert gathering.wait(0.2) == pytest.approx(QUIET_TOGETHER)


def test_a_removal_waits_for_the_node_to_register_again_also_if_others_join():
    gathering = Gathering()

    gathering.changed(0.0, MemberChange("a", is_removal=True))
    gathering.changed(0.1, MemberChange("b"))

    assert gathering.wait(0.1) == pytest.approx(0.9)


def test_a_removal_does_not_lengthen_the_wait_of_later_changes():
    gathering = Gathering()
    gathering.changed(0.0, MemberChange("a", is_removal=True))
    gathering.began()

    gathering.changed(0.2, MemberChange("b"))

    assert gathering.wait(0.2) == pytest.approx(QUIET_TOGETHER)


@given(
    cost=st.floats(0, 100),
    changes=st.lists(
        st.tuples(
            st.floats(0, 1),
            st.builds(MemberChange, st.sampled_from("abc"), st.booleans(), st.booleans()),
        ),
        min_size=1,
    ),
)
def test_no_change_waits_longer_than_its_bound(
    cost: float, changes: list[tuple[float, MemberChange]]
):
    gathering, now = Gathering(), 0.0
    gathering.ended(cost)

    for pause, change in changes:
        now += pause
        gathering.changed(now, change)

    first = changes[0][0]
    has_removal = any(change.is_removal for _, change in changes)
    bound = LONGEST_REMOVAL if has_removal else LONGEST_BOUND
    assert now + gathering.wait(now) <= first + bound + 1e-6
    assert gathering.wait(now) <= QUIET_AFTER_REMOVAL + 1e-6


def test_changes_after_the_beginning_of_an_update_wait_for_the_next_one():
    gathering = Gathering()
    gathering.changed(0.0, MemberChange("a"))
    gathering.began()

    assert gathering.wait(0.5) == 0
    gathering.changed(0.5, MemberChange("b"))
    assert gathering.wait(0.5) == pytest.approx(QUIET_TOGETHER)


def test_a_node_joins_alone_again_after_a_calm_time():
    gathering = Gathering()
    gathering.changed(0.0, MemberChange("a"))
    gathering.began()
    gathering.ended(0.5)

    gathering.changed(4.0, MemberChange("b"))
    gathering.began()
    assert gathering.wait(4.0) == 0
    gathering.changed(9.0, MemberChange("c"))

    assert gathering.wait(9.0) == pytest.approx(QUIET_ALONE)


def test_where_updates_take_longer_more_changes_share_one():
    quick, slow = Gathering(), Gathering()
    quick.ended(0.01)
    slow.ended(2.0)

    for gathering in (quick, slow):
        for tick in range(200):
            gathering.changed(tick / 10, MemberChange(f"n{tick}"))

    assert quick.wait(0.0) == pytest.approx(SHORTEST_BOUND)
    assert slow.wait(0.0) == pytest.approx(LONGEST_BOUND)
